"""Which files run in which column: on Docker those that ask something of the engine, the image or the kernel."""

from __future__ import annotations

import os

import pytest

from tests.support.columns import CHOSEN, RUNC, RUNSC

# Their subject is the service before any sandbox: addresses, archives, storage, refusals.
OF_THE_SERVICE = (
    "test_example_gateway.py",
    "test_fetch.py",
    "test_gateway_commands_media.py",
    "test_gateway_commands_table.py",
    "test_sessions_faults.py",
    "test_sessions_more.py",
    "test_sessions_objects.py",
    "test_sessions_safety.py",
)
# What the conformance kits go through on runc as well.
OF_THE_KITS = (
    "test_oneshot_access.py",
    "test_oneshot_artifacts.py",
    "test_sessions_kept.py",
    "test_sessions_protocol.py",
)
# What the image contains is the same on gVisor, and takes several times as long there; keys, links and connections
# are looked at before anybody asks for a sandbox; leases are judged by processes that the host sees, and of a guest
# kernel it sees none. Both protocols are gone through there by the examples of their guides (test_documentation.py).
NOT_ON_GVISOR = (
    "test_connections.py",
    "test_docs_page.py",
    "test_gateway_commands_documents.py",
    "test_gateway_commands_typst.py",
    "test_keys.py",
    "test_links.py",
    "test_oneshot_leases.py",
    "test_oneshot_run.py",
    "test_serve_log.py",
    "test_sessions_life.py",
)
NOT_RUN = {RUNC.name: OF_THE_SERVICE + OF_THE_KITS, RUNSC.name: OF_THE_SERVICE + OF_THE_KITS + NOT_ON_GVISOR}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave them out there."""
    names = NOT_RUN.get(os.environ.get(CHOSEN, ""), ())
    left_out = [item for item in items if "tests/e2e" in item.nodeid and item.path.name in names]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
