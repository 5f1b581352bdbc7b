"""A deployment has one lasting id, a copy of its folder has another; and which of its containers are used on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.backends.docker.args import Engine, Identity
from runner.backends.docker.backend import DockerBackend
from runner.backends.docker.config import DockerConfig
from runner.backends.docker.door import Door
from runner.backends.docker.labels import container_name, deployment_id, goes_on


def test_it_lasts(tmp_path: Path) -> None:
    assert deployment_id(tmp_path / "new" / "data") == deployment_id(tmp_path / "new" / "data")
    assert deployment_id(tmp_path / "other") != deployment_id(tmp_path / "new" / "data")


@pytest.mark.parametrize("copy", [shutil.copy2, os.link], ids=["files", "links"])
def test_a_copy_is_another_deployment_and_a_moved_one_is_not(tmp_path: Path, copy: Callable[..., object]) -> None:
    first = deployment_id(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy", copy_function=copy)
    assert deployment_id(tmp_path / "copy") != first
    (tmp_path / "data").rename(tmp_path / "moved")
    assert deployment_id(tmp_path / "moved") == first


def altered(monkeypatch: pytest.MonkeyPatch, field: int, of: Callable[[Path], bool]) -> None:
    """Let a field of ``stat`` be another one, for some paths."""
    stat = Path.stat

    def elsewhere(path: Path, **options: Any) -> os.stat_result:
        facts = list(stat(path, **options))
        facts[field] += of(path)
        return os.stat_result(facts)

    monkeypatch.setattr(Path, "stat", elsewhere)


def test_numbers_of_devices_change_over_a_restart_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = deployment_id(tmp_path)
    altered(monkeypatch, 2, lambda _: True)
    assert deployment_id(tmp_path) == first


def test_a_copy_to_the_root_of_another_disk_is_another_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Roots have one inode on all disks."""
    first = deployment_id(tmp_path)
    altered(monkeypatch, 1, lambda path: path.name == "deployment-id")
    assert deployment_id(tmp_path) != first


@pytest.mark.parametrize(
    ("content", "expected"), [("new", ["same"]), ("old", ["other-image"]), ("", []), ("unseen", [])]
)
async def test_a_survivor_of_another_image_or_runtime_is_not_used_on(
    content: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {
        "same": Engine("1", "runsc", content="new"),
        "other-image": Engine("0", "runsc", content="old"),
        "other-runtime": Engine("1", "runc", content="new"),
        "untold": Engine("0", "runsc"),
    }
    listed = [
        {"Id": name, "Labels": Identity("d", "before", name, 600.0).labels(engine)} for name, engine in made.items()
    ]

    async def call(*_: object, **__: object) -> Any:
        return listed

    monkeypatch.setattr(Door, "call", call)
    backend = DockerBackend(DockerConfig(tmp_path))
    backend._engine = Engine("1", "runsc", content=content)
    assert await backend.survivors() == expected


def test_names_and_labels() -> None:
    told = Identity("d", "b", "s", 600.0).labels(Engine("image", "runsc", content="hash"))
    assert told == {
        "foliobox.deployment": "d", "foliobox.boot": "b", "foliobox.sandbox": "s",
        "foliobox.image": "hash", "foliobox.runtime": "runsc", "foliobox.orphan-after": "600",
    }  # fmt: skip
    assert container_name("s") == "foliobox-s"


def test_with_network_it_goes_on_under_the_same_grant_only() -> None:
    plain = {"foliobox.runtime": "runc", "foliobox.image": "hash"}
    granted = plain | {"foliobox.egress": "inside http://egress:3128"}
    for egress in ("", "inside http://egress:3128", "inside http://other:3128"):
        assert goes_on(plain, "runc", "hash", egress)
        assert goes_on(granted, "runc", "hash", egress) == (egress == "inside http://egress:3128")
