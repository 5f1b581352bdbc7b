"""Logs and, later, metrics."""
