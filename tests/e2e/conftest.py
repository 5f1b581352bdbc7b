"""Which files run in which column: on gVisor those that ask something of the kernel or of what lies over it."""

from __future__ import annotations

import os

import pytest

from tests.support.columns import CHOSEN, RUNSC

# Their subject is the service itself or what the image contains, which is the same in every column, and on gVisor
# they take several times as long.
NOT_ON_GVISOR = (
    "test_example_gateway.py",
    "test_fetch.py",
    "test_gateway_commands_documents.py",
    "test_gateway_commands_media.py",
    "test_gateway_commands_table.py",
    "test_sessions_faults.py",
    "test_sessions_more.py",
    "test_sessions_objects.py",
    "test_sessions_safety.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out there."""
    if os.environ.get(CHOSEN) == RUNSC.name:
        left_out = [item for item in items if "tests/e2e" in item.nodeid and item.path.name in NOT_ON_GVISOR]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
