"""Workspaces: paths, store, manifests, merging, history, races and kills."""
