"""What the service itself may reach outside: addresses, targets, and a client that cannot be led elsewhere."""
