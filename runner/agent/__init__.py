"""The sandbox end of Foliobox: standard library only, sent into each sandbox at its start."""
