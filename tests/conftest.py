"""Fixtures of all tiers: the column, one service for a whole session, a conversation for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import pytest

from tests.support import differences
from tests.support.columns import BUBBLEWRAP, CHOSEN, COLUMNS, Column
from tests.support.runner import Chat, Runner, running

LEFT_OUT = pytest.StashKey[dict[str, str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--column``: how sandboxes are started by the services of this process."""
    parser.addoption("--column", choices=list(COLUMNS), help="the way to start sandboxes; see docs/backends.md")


def pytest_configure(config: pytest.Config) -> None:
    """Every service that is started inherits the column through the settings that choose it."""
    config.stash[LEFT_OUT] = {}
    name = config.getoption("--column") or os.environ.get(CHOSEN)
    if name or "SANDBOX_BACKEND" not in os.environ:
        column = COLUMNS[name or BUBBLEWRAP.name]
        os.environ.update({CHOSEN: column.name, **column.settings()})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is known to differ on this column."""
    name = os.environ.get(CHOSEN, "")
    rows = {item.nodeid: row for item in items if (row := differences.left_out(name, item.nodeid))}
    if rows:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in rows])
        items[:] = [item for item in items if item.nodeid not in rows]
    config.stash[LEFT_OUT] = rows


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out and for which row of the table."""
    for nodeid, row in config.stash[LEFT_OUT].items():
        terminalreporter.write_line(f"not run on {os.environ[CHOSEN]}, differs by {row}: {nodeid}")


@pytest.fixture(scope="session")
def column() -> Column:
    """The column of this test process."""
    return COLUMNS[os.environ.get(CHOSEN, BUBBLEWRAP.name)]


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """The service that tests share; one that must be killed starts its own with ``running``."""
    with running(tmp_path_factory.mktemp("runner")) as service:
        health = httpx.get(f"{service.url}/healthz").json()
        assert health["ok"], f"no sandbox can be started here: {health['detail']}"
        yield service


@pytest.fixture(scope="session")
def http(runner: Runner) -> Iterator[httpx.Client]:
    """A client with the right key."""
    with runner.client() as client:
        yield client


@pytest.fixture
def chat(http: httpx.Client) -> Iterator[Chat]:
    """A conversation of its own, purged afterwards."""
    conversation = Chat(http)
    yield conversation
    conversation.purge()
