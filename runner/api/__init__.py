"""The only package that speaks HTTP, with ``runner/app.py``."""
