"""Tests of the same layer as the folder names."""
