"""Sessions: ids with a life of their own over conversations, for gateways of the sessions protocol."""
