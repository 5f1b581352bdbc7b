"""What runs the service: a unit for systemd, and the health check of its image."""
