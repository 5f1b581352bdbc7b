"""Commands of ``foliobox``: one short file each."""
