"""Workspaces: the store, paths, manifests and history of a conversation's files."""
