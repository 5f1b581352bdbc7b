"""Sandboxes as containers of a Docker daemon, with any runtime that it has; gVisor's among them."""
