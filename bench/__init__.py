"""Benchmarks over HTTP, each beside a floor or a peer that was measured in the same run. Never a test."""
