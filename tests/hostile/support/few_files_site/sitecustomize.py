"""Loaded by Python at the start of a weakened service (PYTHONPATH): its agents have no more files than user code."""

from tests.hostile.support import few_files

few_files.install()
