"""A deployment has one lasting id, and a copy of its folder has another."""

from __future__ import annotations

import shutil
from pathlib import Path

from runner.backends.docker.args import Engine, Identity
from runner.backends.docker.labels import container_name, deployment_id


def test_it_lasts(tmp_path: Path) -> None:
    assert deployment_id(tmp_path / "new" / "data") == deployment_id(tmp_path / "new" / "data")
    assert deployment_id(tmp_path / "other") != deployment_id(tmp_path / "new" / "data")


def test_a_copy_is_another_deployment_and_a_moved_one_is_not(tmp_path: Path) -> None:
    first = deployment_id(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert deployment_id(tmp_path / "copy") != first
    (tmp_path / "data").rename(tmp_path / "moved")
    assert deployment_id(tmp_path / "moved") == first


def test_names_and_labels() -> None:
    told = Identity("d", "b", "s", 600.0).labels(Engine("image", "runsc", content="hash"))
    assert told == {
        "foliobox.deployment": "d", "foliobox.boot": "b", "foliobox.sandbox": "s",
        "foliobox.image": "hash", "foliobox.runtime": "runsc", "foliobox.orphan-after": "600",
    }  # fmt: skip
    assert container_name("s") == "foliobox-s"
