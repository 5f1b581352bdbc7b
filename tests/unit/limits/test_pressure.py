"""Whether the host can bear one more sandbox, decided from what was read of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.errors import HostPressure, StoreFull
from runner.limits.config import Floors
from runner.limits.host import HostReader
from runner.limits.pressure import AT_REST_BYTES, FREE_FILES, FREE_INODES, Disk, Host, Pressure, refusal, shortages
from tests.support import disks

MIB = 1 << 20
FLOORS = Floors()
PLENTY = Host(8 << 30, Disk(8 << 30, 1_000_000), 30_000, 1000)


class Fixed:
    """A reader that always sees the same host."""

    def __init__(self, host: Host) -> None:
        self.host, self.looks = host, 0

    def __call__(self) -> Host:
        self.looks += 1
        return self.host

    def disk(self) -> Disk:
        return self.host.disk


def names(host: Host, starting: int = 0) -> list[str]:
    return [shortage.resource for shortage in shortages(host, FLOORS, starting)]


def test_a_host_with_plenty_is_short_of_nothing() -> None:
    assert names(PLENTY) == []
    assert names(Host()) == []  # what is not known stops nobody


@pytest.mark.parametrize(
    ("low", "resource", "setting"),
    [
        ({"memory_bytes": FLOORS.memory_bytes + AT_REST_BYTES - 1}, "memory", "SANDBOX_MIN_FREE_MEMORY"),
        ({"disk": Disk(FLOORS.disk_bytes - 1)}, "disk", "SANDBOX_MIN_FREE_DISK"),
        ({"disk": Disk(8 << 30, FREE_INODES - 1)}, "disk", "inodes"),
        ({"pids": FLOORS.pids}, "pids", "SANDBOX_MIN_FREE_PIDS"),
        ({"open_files": FREE_FILES}, "open_files", "LimitNOFILE"),
    ],
)
def test_each_resource_names_itself_and_what_to_change(low: dict[str, Any], resource: str, setting: str) -> None:
    (shortage,) = shortages(replace(PLENTY, **low), FLOORS)
    error = refusal((shortage,))
    assert isinstance(error, HostPressure)
    assert (shortage.resource, error.fields["short"]) == (resource, [resource])
    assert setting in error.detail
    assert error.fields["retry_after_ms"] == 5000


def test_the_floor_itself_is_enough() -> None:
    assert names(replace(PLENTY, memory_bytes=FLOORS.memory_bytes + AT_REST_BYTES)) == []
    assert names(replace(PLENTY, disk=Disk(FLOORS.disk_bytes))) == []


def test_starts_under_way_are_counted_in() -> None:
    host = replace(PLENTY, memory_bytes=FLOORS.memory_bytes + 3 * AT_REST_BYTES)
    assert (names(host, 2), names(host, 3)) == ([], ["memory"])


def test_uploads_stop_before_the_reserve() -> None:
    pressure = Pressure(FLOORS, Fixed(replace(PLENTY, disk=Disk(FLOORS.disk_bytes + 100))))
    pressure.check_disk(100)
    with pytest.raises(StoreFull, match="SANDBOX_MIN_FREE_DISK") as caught:
        pressure.check_disk(101)
    assert caught.value.fields["limit"] == 100
    with pytest.raises(StoreFull, match="inodes"):
        Pressure(FLOORS, Fixed(replace(PLENTY, disk=Disk(8 << 30, 1)))).check_disk()


def test_a_look_is_used_for_a_moment() -> None:
    now, read = 0.0, Fixed(PLENTY)
    pressure = Pressure(FLOORS, read, clock=lambda: now)
    pressure.look()
    now = 0.1
    pressure.look()
    assert read.looks == 1
    pressure.look(anew=True)
    now = 0.5
    pressure.look()
    assert read.looks == 3


def test_the_state_tells_each_resource() -> None:
    host = Host(memory_bytes=0, disk=Disk(8 << 30), pids=30_000)
    assert Pressure(FLOORS, Fixed(host)).state() == {
        "memory": "short", "disk": "ok", "pids": "ok", "open_files": "unknown",
    }  # fmt: skip


# -- reading ---------------------------------------------------------------------------------------------------


class Tree:
    """A /proc and a /sys/fs/cgroup with what a test puts there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    1048576 kB\n")
        self.write("proc/loadavg", "0.1 0.2 0.3 2/500 4711\n")
        self.write("proc/sys/kernel/pid_max", "32768\n")
        self.write("proc/sys/kernel/threads-max", "20500\n")
        self.write("proc/self/fd/0", "")

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def read(self, *, own_groups: bool = True) -> Host:
        return HostReader(self.root, self.root / "proc", self.root / "cgroup", own_groups=own_groups)()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_without_groups_the_host_counts(tree: Tree) -> None:
    host = tree.read()
    assert (host.memory_bytes, host.pids) == (1 << 30, 20_000)
    assert host.open_files is not None
    assert (host.disk.bytes or 0) > 0


def test_the_tightest_group_above_counts_on_v2(tree: Tree) -> None:
    tree.write("cgroup/cgroup.controllers", "memory pids")
    tree.write("proc/self/cgroup", "0::/outer/inner\n")
    tree.write("cgroup/outer/memory.max", str(400 * MIB))
    tree.write("cgroup/outer/memory.current", str(300 * MIB))
    tree.write("cgroup/outer/memory.stat", f"anon 1\ninactive_file {50 * MIB}\n")
    tree.write("cgroup/outer/pids.max", "600")
    tree.write("cgroup/outer/pids.current", "100")
    tree.write("cgroup/outer/inner/memory.max", "max")
    tree.write("cgroup/outer/inner/memory.current", str(300 * MIB))
    tree.write("cgroup/outer/inner/pids.max", "max")
    host = tree.read()
    assert (host.memory_bytes, host.pids) == (150 * MIB, 500)


def test_groups_of_v1_count_too(tree: Tree) -> None:
    tree.write("proc/self/cgroup", "8:pids:/a\n4:cpu,memory:/a\n")
    tree.write("cgroup/memory/a/memory.limit_in_bytes", str(200 * MIB))
    tree.write("cgroup/memory/a/memory.usage_in_bytes", str(150 * MIB))
    tree.write("cgroup/memory/a/memory.stat", f"total_inactive_file {20 * MIB}\n")
    tree.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    tree.write("cgroup/memory/memory.usage_in_bytes", str(150 * MIB))
    tree.write("cgroup/pids/a/pids.max", "64")
    tree.write("cgroup/pids/a/pids.current", "60")
    host = tree.read()
    assert (host.memory_bytes, host.pids) == (70 * MIB, 4)
    of_an_engine = tree.read(own_groups=False)
    assert (of_an_engine.memory_bytes, of_an_engine.pids) == (1 << 30, 20_000)


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    host = HostReader(tmp_path / "no", tmp_path / "no", tmp_path / "no")()
    assert host == Host()


def test_this_host_can_be_read() -> None:
    host = HostReader(Path("/"))()
    assert min(host.memory_bytes or 0, host.pids or 0, host.disk.bytes or 0, host.open_files or 0) > 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB with 4,096 inodes."""
    with disks.small_disk(tmp_path / "small", "size=8m,nr_inodes=4096") as place:
        yield place


def test_a_disk_that_fills_is_seen(small_disk: Path) -> None:
    pressure = Pressure(Floors(disk_bytes=4 * MIB), HostReader(small_disk))
    pressure.check_disk(MIB)
    (small_disk / "big").write_bytes(bytes(5 * MIB))
    with pytest.raises(StoreFull):
        pressure.check_disk(MIB)
    assert [s.resource for s in pressure.shortages(anew=True)] == ["disk"]
    (small_disk / "big").unlink()
    pressure.check_disk(MIB)


def test_a_disk_without_inodes_is_seen(small_disk: Path) -> None:
    pressure = Pressure(Floors(disk_bytes=MIB), HostReader(small_disk))
    for number in range(2100):
        (small_disk / str(number)).touch()
    with pytest.raises(StoreFull, match="inodes"):
        pressure.check_disk()
