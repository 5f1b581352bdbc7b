"""Foliobox: the service on the host side, and the agent it sends into sandboxes."""

__version__ = "0.1.0"
