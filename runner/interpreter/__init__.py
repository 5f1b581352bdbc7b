"""The host end of a sandbox's stream: run cells, move files, interrupt, restart."""
