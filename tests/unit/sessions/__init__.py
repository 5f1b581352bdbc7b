"""Tests of the sessions service that need no sandbox."""
