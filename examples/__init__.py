"""Examples: they are run by the tests."""
