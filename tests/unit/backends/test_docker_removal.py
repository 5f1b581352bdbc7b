"""What may have been made without our knowledge is looked for again, and nothing of others is touched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.backends.docker.args import Engine
from runner.backends.docker.backend import DockerBackend
from runner.backends.docker.config import DockerConfig
from runner.backends.docker.door import ContainerGone, Door
from runner.backends.docker.removal import Removal
from runner.errors import BackendUnavailable
from runner.model import SandboxLimits

OURS = {"foliobox.boot": "b"}


class Daemon:
    """Containers by name, as id and labels; ``away`` is a daemon that does not answer."""

    def __init__(self) -> None:
        self.made: dict[str, tuple[str, dict[str, str]]] = {}
        self.away = False
        self.asked: list[str] = []
        self.refusal: Exception | None = None

    async def call(self, _: Door, method: str, *args: Any, **__: object) -> Any:
        self.asked.append(method)
        if self.away:
            raise BackendUnavailable("away")
        if method == "create_container_from_config":
            raise BackendUnavailable("refused or not heard of") from self.refusal
        if method == "inspect_container":
            if args[0] not in self.made:
                raise ContainerGone("none")
            container, labels = self.made[args[0]]
            return {"Id": container, "Config": {"Labels": labels}}
        if method == "remove_container":
            self.made = {name: made for name, made in self.made.items() if made[0] != args[0]}
        return None


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon()
    monkeypatch.setattr(Door, "call", lambda *args, **options: made.call(*args, **options))
    return made


async def tried(removal: Removal) -> None:
    """One more try, to its end."""
    removal.try_again()
    assert removal._trying is not None
    await removal._trying


async def test_what_comes_late_is_removed(daemon: Daemon) -> None:
    removal = Removal(Door({}, 5))
    await removal.remove_named("n", OURS, late=True)
    await tried(removal)
    assert removal.pending == 1
    daemon.made = {"n": ("1", OURS), "other": ("2", OURS)}
    await tried(removal)
    assert list(daemon.made) == ["other"]
    assert removal.pending == 0


async def test_what_never_comes_is_forgotten_after_some_minutes(daemon: Daemon) -> None:
    now = 100.0
    removal = Removal(Door({}, 5), lambda: now)
    await removal.remove_named("n", OURS, late=True)
    now += 299
    await tried(removal)
    assert removal.pending == 1
    now += 2
    await tried(removal)
    assert removal.pending == 0


async def test_what_the_daemon_refused_is_not_waited_for(daemon: Daemon) -> None:
    removal = Removal(Door({}, 5))
    await removal.remove_named("n", OURS, late=False)
    assert removal.pending == 0


async def test_one_of_the_same_name_is_left_alone(daemon: Daemon) -> None:
    daemon.made = {"n": ("1", {"foliobox.boot": "another"})}
    removal = Removal(Door({}, 5))
    await removal.remove_named("n", OURS, late=True)
    assert (list(daemon.made), removal.pending) == (["n"], 0)


async def test_while_nobody_answers_all_stay_in_mind(daemon: Daemon) -> None:
    daemon.made, daemon.away = {"n": ("1", OURS), "2": ("2", {})}, True
    removal = Removal(Door({}, 5))
    await removal.remove_named("n", OURS, late=False)
    assert not await removal.remove("2")
    await tried(removal)
    assert removal.pending == 2
    daemon.away = False
    await tried(removal)
    assert (daemon.made, removal.pending) == ({}, 0)


class _Answer(Exception):
    response = object()


@pytest.mark.parametrize(("refusal", "pending"), [(None, 1), (TimeoutError(), 1), (_Answer(), 0)])
async def test_a_start_whose_end_nobody_knows_is_looked_for_by_every_good_look(
    daemon: Daemon, tmp_path: Path, refusal: Exception | None, pending: int
) -> None:
    daemon.refusal = refusal
    backend = DockerBackend(DockerConfig(tmp_path))
    with pytest.raises(BackendUnavailable):
        await backend._starter.start(Engine("image", "runc"), "s", SandboxLimits(), ["agent"])
    assert backend._removal.pending == pending
    daemon.asked.clear()
    assert await backend.trouble() == ""
    if backend._removal._trying is not None:
        await backend._removal._trying
    assert daemon.asked.count("inspect_container") == pending
