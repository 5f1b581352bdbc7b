"""The one-shot surface: runs without a conversation, and leases, in the protocol of a gateway that knows no keys."""
