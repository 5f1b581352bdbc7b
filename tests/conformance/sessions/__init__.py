"""The sessions surface as its gateway uses it."""
