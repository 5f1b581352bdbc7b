"""Single runs and leases: conversations with a short life, for a gateway that knows neither."""
