"""Sandboxes without an engine: namespaces by bubblewrap over the built root file system."""
