"""The service every surface calls: conversations, their sandboxes, runs and files."""
