"""Conformance of the two gateway surfaces: clients and gateways written from the contracts, not from our schemas."""
