"""Control groups on a fake tree: where they are made, what is written, what is read, how they are removed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from runner.backends.bubblewrap.cgroup import LEAF, PREFIX, Group, Parents, find_parents
from runner.model import SandboxLimits

LIMITS = SandboxLimits(memory_bytes=1 << 30, cpus=1.5, pids=99)


def open_below(folder: Path) -> set[str]:
    """Files of a folder that this process has open."""
    places = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            places.append(Path(os.readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")))
    return {place.name for place in places if place.parent == folder}


def v2(root: Path, path: str = "svc", controllers: str = "cpu memory pids io", processes: str = "") -> Path:
    """A delegated group in a unified tree."""
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text(controllers)
    group = root / path
    group.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "cgroup.procs": processes, "cgroup.controllers": controllers, "cgroup.subtree_control": "",
        "cgroup.type": "domain",
    }.items():  # fmt: skip
        (group / name).write_text(text)
    return group


def fake_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of a real group have files from the start and go away with them."""
    real_mkdir, real_rmdir = Path.mkdir, Path.rmdir

    def mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        real_mkdir(self, mode, parents, exist_ok)
        if self.name.startswith(PREFIX) or self.name == LEAF:
            for name in ("cgroup.procs", "cgroup.kill", "memory.peak"):
                (self / name).write_text("")

    def rmdir(self: Path) -> None:
        if (self / "cgroup.procs").exists() and (self / "cgroup.procs").read_text():
            raise OSError(16, "busy")
        for file in self.glob("*"):
            file.unlink()
        real_rmdir(self)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)


def test_v2_is_delegated_and_the_runner_moves_into_a_leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = v2(tmp_path / "cg", processes="17\n")
    fake_kernel(monkeypatch)
    parents = find_parents(tmp_path / "cg", "0::/svc\n")
    assert (parents.v2, parents.v2_controllers, parents.complete) == (group, True, True)
    assert (group / "cgroup.subtree_control").read_text() == "+memory +pids +cpu"
    assert (group / LEAF / "cgroup.procs").read_text() == "17"


def test_v2_a_second_runner_in_the_leaf_uses_the_same_parent(tmp_path: Path) -> None:
    group = v2(tmp_path / "cg")
    v2(tmp_path / "cg", f"svc/{LEAF}")
    (group / "cgroup.subtree_control").write_text("cpu memory pids")
    assert find_parents(tmp_path / "cg", f"0::/svc/{LEAF}\n").v2 == group


def test_v2_without_controllers_is_for_killing_only(tmp_path: Path) -> None:
    group = v2(tmp_path / "cg", controllers="hugetlb")
    parents = find_parents(tmp_path / "cg", "0::/svc\n")
    assert (parents.v2, parents.v2_controllers, parents.complete) == (group, False, False)


def test_v2_that_is_not_ours_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    v2(tmp_path / "cg")
    monkeypatch.setattr(os, "access", lambda *_: False)
    parents = find_parents(tmp_path / "cg", "0::/svc\n")
    assert parents == Parents({}, None, False)
    assert not parents.complete


def test_v2_limits_and_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = v2(tmp_path / "cg")
    fake_kernel(monkeypatch)
    group = Group.planned(Parents({}, parent, True), "one")
    assert group.folders == [str(parent / "foliobox-one")]
    assert not (parent / "foliobox-one").exists()
    group.make(LIMITS)
    made = parent / "foliobox-one"
    written = {name: (made / name).read_text() for name in ("memory.max", "pids.max", "cpu.max", "memory.swap.max")}
    assert written == {"memory.max": "1073741824", "pids.max": "99", "cpu.max": "150000 100000", "memory.swap.max": "0"}
    assert (made / "memory.oom.group").read_text() == "0"
    (made / "memory.current").write_text("5\n")
    (made / "memory.peak").write_text("7\n")
    (made / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    usage = group.usage()
    assert (usage.memory_bytes, usage.peak_memory_bytes, usage.oom_kills) == (5, 7, 1)
    (made / "memory.current").write_text("66\n")
    (made / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    usage = group.usage()
    assert (usage.memory_bytes, usage.oom_kills) == (66, 2)
    assert open_below(made) == {"memory.current", "memory.peak", "memory.events"}
    assert group.remove()
    assert not made.exists()
    assert open_below(made) == set()
    assert group.usage().memory_bytes is None


def test_v2_peak_is_unknown_where_it_cannot_be_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = v2(tmp_path / "cg")
    fake_kernel(monkeypatch)
    group = Group.planned(Parents({}, parent, True), "one")
    group.make(LIMITS)
    (parent / "foliobox-one" / "memory.peak").unlink()
    group.reset_peak()
    assert group.usage().peak_memory_bytes is None
    assert group.remove()


def test_v1_has_a_folder_for_each_controller_and_v2_for_killing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_kernel(monkeypatch)
    names = {name: tmp_path / name for name in ("memory", "pids", "cpu")}
    for folder in names.values():
        folder.mkdir()
    unified = v2(tmp_path / "unified", controllers="")
    group = Group.planned(Parents(names, unified, False), "one")
    group.make(LIMITS)
    assert [Path(folder).parent.name for folder in group.folders] == ["svc", "memory", "pids", "cpu"]
    assert (tmp_path / "cpu/foliobox-one/cpu.cfs_quota_us").read_text() == "150000"
    group.kill()
    assert (unified / "foliobox-one/cgroup.kill").read_text() == "1"
    assert group.remove()


def test_a_group_that_cannot_be_limited_raises_and_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = v2(tmp_path / "cg")
    fake_kernel(monkeypatch)
    group = Group.planned(Parents({}, parent, True), "one")
    (parent / "foliobox-one").mkdir()
    with pytest.raises(FileExistsError):
        group.make(LIMITS)
    assert group.remove()


def test_busy_groups_are_reported_in_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = v2(tmp_path / "cg")
    fake_kernel(monkeypatch)
    group = Group.planned(Parents({}, parent, True), "one")
    group.make(LIMITS)
    (parent / "foliobox-one" / "cgroup.procs").write_text("999999999\n")
    assert not group.remove(limit_s=0.05)


def test_only_groups_of_ours_are_reopened(tmp_path: Path) -> None:
    named = ["/etc", "/sys/fs/cgroup/memory", str(tmp_path / ".." / "foliobox-x"), str(tmp_path / "foliobox-y")]
    assert Group.reopen(named).folders == [str(tmp_path / "foliobox-y")]
