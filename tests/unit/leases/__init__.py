"""Single runs and leases."""
