"""Loaded by Python at the start of a weakened service (PYTHONPATH): takes walls out of its launches."""

from tests.hostile.support import weakness

weakness.install()
