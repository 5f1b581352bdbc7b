"""Sandboxes in name only, for hosts that refuse namespaces: the same root file system and agent under proot."""
