"""A Docker engine for tests: found, or installed and started in private, and stopped with what it started."""
