"""The one-shot surface as its gateway uses it."""
