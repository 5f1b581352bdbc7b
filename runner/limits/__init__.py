"""Ceilings of this deployment and the clamping of what callers ask for."""
