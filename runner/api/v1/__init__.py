"""The native surface: conversations, runs and files under ``/v1``."""
