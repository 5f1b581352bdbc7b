"""Fixtures of hostile tests: a strong place, weakened places, and the look around after every case."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.hostile.support import outside, weakness
from tests.hostile.support.place import Place
from tests.support.columns import BUBBLEWRAP, CHOSEN, RUNC, RUNSC
from tests.support.runner import Chat, Runner

REPOSITORY = Path(__file__).resolve().parent.parent.parent
WEAK_SITE = Path(__file__).resolve().parent / "support" / "weak_site"
Weaken = Callable[..., Place]
Make = Callable[..., Place]
SMALL = {
    "SANDBOX_MEMORY": "320m",
    "SANDBOX_WORKSPACE_SIZE": "16m",
    "SANDBOX_WORKSPACE_FILES": "1000",
    "SANDBOX_TMPFS_SIZE": "16m",
}


# Cases beside those of columns/ that run on Docker's columns too. With runc the host sees a sandbox's processes as it
# sees bubblewrap's; of a guest kernel it sees none, so that there only verdicts over HTTP count. test_noise.py takes
# minutes and measures the service, which is the same.
OVER_HTTP = ("test_api_cases.py", "test_file_cases.py", "test_forgery.py", "test_output.py", "test_terminal.py")
SEEN_BY_THE_HOST = (
    "test_agent.py", "test_egress.py", "test_host_paths.py", "test_leftovers.py", "test_memory.py",
    "test_neighbours.py", "test_secrets.py", "test_sockets.py", "test_syscalls.py",
)  # fmt: skip
NEED_THE_HOSTS_VIEW = ("test_27_forged_frames_on_every_descriptor_bring_no_forged_result",)  # in files of OVER_HTTP
CASES = {RUNC.name: (*OVER_HTTP, *SEEN_BY_THE_HOST), RUNSC.name: OVER_HTTP}
BUBBLEWRAP_ONLY = {"weaken", "weak_service", "small", "small_service"}  # services with walls of bubblewrap taken out


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """These cases look at other processes' memory and descriptors: as a user they cannot tell anything."""
    mine = [item for item in items if "tests/hostile" in item.nodeid]
    if os.geteuid() != 0:
        for item in mine:
            item.add_marker(pytest.mark.skip(reason="needs root: the verdict is read from /proc of the host"))
    name = os.environ.get(CHOSEN, BUBBLEWRAP.name)
    if name in CASES:
        others = [item for item in mine if not _runs_on_an_engine(item, name)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]


def _runs_on_an_engine(item: pytest.Item, column: str) -> bool:
    if item.path.parent.name == "columns":
        return True
    seen = column == RUNC.name or getattr(item, "originalname", item.name) not in NEED_THE_HOSTS_VIEW
    fixtures = set(getattr(item, "fixturenames", ()))
    return item.path.name in CASES[column] and seen and not fixtures & BUBBLEWRAP_ONLY


@pytest.fixture(scope="session")
def neighbour(http: httpx.Client) -> Iterator[Chat]:
    """A conversation that nobody attacks and that must go on working."""
    chat = Chat(http)
    chat.ok("kept = 1")
    yield chat
    chat.purge()


@pytest.fixture(autouse=True)
def aftermath(runner: Runner, http: httpx.Client, neighbour: Chat) -> Iterator[None]:
    """After each case: health, the neighbour's variables, and nothing left of sandboxes that are gone."""
    known = set(outside.records(runner))
    yield
    known |= set(outside.records(runner))
    assert http.get("/healthz").json()["ok"]
    neighbour.ok("kept += 1")
    outside.wait_for(lambda: not outside.left_on_host(runner, known), "groups and mounts of the case are gone")


@pytest.fixture
def strong(runner: Runner, chat: Chat) -> Place:
    """A fresh conversation behind all walls."""
    return Place(runner, chat)


class WeakService:
    """The real service with walls taken out; each conversation gets a sandbox started by the latest order."""

    def __init__(self, data: Path, **settings: str) -> None:
        self._order = data.with_suffix(".weakness")
        self.order((), "")
        env = {
            "SANDBOX_POOL_SIZE": "0",
            "PYTHONPATH": os.pathsep.join((str(WEAK_SITE), str(REPOSITORY))),
            weakness.FILE: str(self._order),
            **settings,
        }
        self.runner = Runner(data, env)

    def order(self, names: tuple[str, ...], folder: str) -> None:
        """Which walls the next sandboxes lack, and the folder of the host they are about."""
        self._order.write_text(json.dumps({"names": names, "folder": folder}))


@pytest.fixture(scope="session")
def weak_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeakService]:
    """One weakened service for all controls."""
    service = WeakService(tmp_path_factory.mktemp("weak") / "data")
    service.runner.start()
    yield service
    service.runner.stop()


@pytest.fixture
def weaken(weak_service: WeakService) -> Iterator[Weaken]:
    """``weaken("no_seccomp", …, folder=…)`` gives a fresh conversation without those walls."""
    with weak_service.runner.client() as http:
        chats: list[Chat] = []

        def make(*names: str, folder: Path | str = "") -> Place:
            weak_service.order(names, str(folder))
            chats.append(Chat(http))
            place = Place(weak_service.runner, chats[-1])
            place.say("print()")
            return place

        yield make
        for chat in chats:
            chat.purge()


@pytest.fixture(scope="session")
def small_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WeakService]:
    """A service whose sandboxes are small, so that their limits are reached soon."""
    service = WeakService(tmp_path_factory.mktemp("small") / "data", **SMALL)
    service.runner.start()
    yield service
    service.runner.stop()


@pytest.fixture(scope="session")
def small(small_service: WeakService) -> Iterator[Make]:
    """``small("no_cgroup", …)`` gives a conversation in a small sandbox, strong unless walls are named."""
    with small_service.runner.client() as http:

        def make(*names: str) -> Place:
            small_service.order(names, "")
            place = Place(small_service.runner, Chat(http))
            place.say("print()")
            return place

        yield make


@pytest.fixture
def host_folder(tmp_path: Path) -> Path:
    """A folder of the host with a canary that everybody could read and write, if they reached it."""
    folder = tmp_path / "host"
    folder.mkdir()
    canary = folder / "canary"
    canary.write_text("canary of the host\n")
    for path in (folder, canary):
        path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(0o755)
    tmp_path.chmod(0o755)
    return folder
