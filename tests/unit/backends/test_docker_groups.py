"""Where a container's control group is found, and where none is."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.backends.docker.groups import find

ID = "c" * 64


def host(tmp_path: Path, folder: str, membership: str) -> tuple[Path, Path]:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    (root / folder).mkdir(parents=True)
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(membership)
    return root, proc


@pytest.mark.parametrize(
    ("folder", "membership"),
    [
        (f"memory/docker/{ID}", f"5:memory:/docker/{ID}\n0::/x"),
        (f"memory/mine/{ID}", f"5:cpu:/other\n4:hugetlb,memory:/mine/{ID}"),
        (f"memory/docker/{ID}", "5:memory:/elsewhere"),  # the pid is another name space's
        (f"memory/system.slice/docker-{ID}.scope", ""),
    ],
)
def test_v1(tmp_path: Path, folder: str, membership: str) -> None:
    root, proc = host(tmp_path, folder, membership)
    found = find(ID, 7, root, proc)
    assert found is not None
    assert not found.v2
    assert found.folder("other") == root / folder.replace(ID, "other")
    assert found.memory_limit(ID) is None
    (root / folder / "memory.limit_in_bytes").write_text("1024\n")
    assert found.memory_limit(ID) == 1024


def test_v2_with_a_group_below(tmp_path: Path) -> None:
    root, proc = host(tmp_path, f"a.slice/docker-{ID}.scope", f"0::/a.slice/docker-{ID}.scope/init\n")
    (root / "cgroup.controllers").write_text("memory pids\n")
    found = find(ID, 7, root, proc)
    assert found is not None
    assert found.v2
    folder = found.folder(ID)
    (folder / "memory.max").write_text("max\n")
    assert found.memory_limit(ID) is None
    (folder / "memory.current").write_text("5\n")
    (folder / "memory.events").write_text("oom 2\noom_kill 1\n")
    counters = found.counters(ID)
    assert (counters.usage().memory_bytes, counters.usage().oom_kills) == (5, 1)
    counters.close()
    assert counters.usage().memory_bytes is None


def test_unseen(tmp_path: Path) -> None:
    assert find(ID, 7, tmp_path, tmp_path) is None
