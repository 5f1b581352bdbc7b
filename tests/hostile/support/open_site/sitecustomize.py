"""Loaded by Python at the start of an open service (PYTHONPATH): lets everybody in as one tenant."""

from tests.hostile.support import open_gate

open_gate.install()
