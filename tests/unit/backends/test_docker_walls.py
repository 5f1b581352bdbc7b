"""What is concluded from what a probe's container shows; each wall falls by what it stands for, and by nothing else."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from runner.backends.docker.probe import _is_gvisor, _plain
from runner.backends.docker.walls import Seen, content_of, isolation_of, walls_of

MEMORY = 1 << 30
INFO = {"KernelVersion": "6.12.1", "MemoryLimit": True, "CpuCfsQuota": True, "PidsLimit": True}
ALL = ["namespaces", "seccomp", "no-new-privileges", "own-uid", "agent", "network", "cgroups"]


def facts(**changed: Any) -> dict[str, Any]:
    return {
        "kernel": "6.12.1", "uid": [10001] * 3, "caps": {"CapPrm": "0", "CapEff": "0", "CapInh": "0"}, "seccomp": 2,
        "no_new_privileges": 1, "namespaces": {"pid": "pid:[1]", "net": ""}, "first": True, "network": ["lo"],
        "memory": f"{MEMORY}\n", "image": json.dumps({"name": "x", "hash": "abc"}), "opened": [], **changed,
    }  # fmt: skip


def fallen(seen: Seen, info: dict[str, Any] | None = None) -> dict[str, str]:
    info = INFO if info is None else info
    walls = walls_of(seen, info, isolation_of(seen.facts, info), MEMORY)
    assert [wall.name for wall in walls] == ALL
    assert {wall.name for wall in walls if wall.stands and wall.detail} <= {"seccomp"}
    return {wall.name: wall.detail for wall in walls if not wall.stands}


def test_a_good_container_has_all_walls() -> None:
    assert fallen(Seen(facts(), alive=True)) == {}


@pytest.mark.parametrize(
    ("changed", "name", "detail"),
    [
        ({"namespaces": {"net": os.readlink("/proc/self/ns/net")}}, "namespaces", "net"),
        ({"first": False}, "namespaces", ""),
        ({"seccomp": 0}, "seccomp", "filter"),
        ({"caps": {"CapEff": "00000000a80425fb"}}, "no-new-privileges", "CapEff"),
        ({"no_new_privileges": 0}, "no-new-privileges", ""),
        ({"uid": [0, 10001, 0]}, "own-uid", "0, 10001, 0"),
        ({"opened": ["/proc/1/mem"]}, "agent", "/proc/1/mem"),
        ({"network": ["lo", "eth0"]}, "network", "eth0"),
        ({"memory": "max", "kernel": "6.12.1"}, "cgroups", "MemoryLimit"),
        ({"memory": str(2 * MEMORY)}, "cgroups", str(2 * MEMORY)),
    ],
)
def test_each_falls_alone(changed: dict[str, Any], name: str, detail: str) -> None:
    info = {**INFO, "MemoryLimit": changed.get("memory") != "max"}
    found = fallen(Seen(facts(**changed), alive=True), info)
    assert list(found) == [name]
    assert detail in found[name]


def test_an_agent_that_was_ended_by_its_child_is_no_wall() -> None:
    assert list(fallen(Seen(facts(), alive=False))) == ["agent"]


def test_a_kernel_of_its_own_needs_no_filter_of_the_hosts() -> None:
    seen = Seen(facts(kernel="4.4.0", seccomp=0, memory=""), alive=True, memory_limit=MEMORY)
    assert isolation_of(seen.facts, INFO) == "separate-kernel"
    assert fallen(seen) == {}


@pytest.mark.parametrize(("kernel", "seccomp", "told"), [("4.4.0", 0, True), ("4.4.0", 2, False), ("6.12.1", 2, False)])
def test_a_filter_that_is_not_loaded_is_told(kernel: str, seccomp: int, told: bool) -> None:
    found = facts(kernel=kernel, seccomp=seccomp)
    wall = walls_of(Seen(found, alive=True), INFO, isolation_of(found, INFO), MEMORY)[1]
    assert (wall.name, wall.stands) == ("seccomp", True)
    assert ("no filter is loaded" in wall.detail) is told


def test_limits_are_the_daemons_word_where_nobody_sees_them() -> None:
    assert fallen(Seen(facts(memory=""), alive=True)) == {}
    assert list(fallen(Seen(facts(memory=""), alive=True, warnings=("no swap limit",)))) == ["cgroups"]
    assert list(fallen(Seen(facts(memory=""), alive=True, memory_limit=MEMORY + 1))) == ["cgroups"]


@pytest.mark.parametrize(
    ("guest", "host", "isolation"),
    [
        ("6.1", "6.1", "shared-kernel"),
        ("4.4.0", "6.1", "separate-kernel"),
        ("", "6.1", "unknown"),
        ("6.1", "", "unknown"),
    ],
)
def test_isolation_is_measured_against_the_daemons_kernel(guest: str, host: str, isolation: str) -> None:
    assert isolation_of({"kernel": guest}, {"KernelVersion": host}) == isolation


@pytest.mark.parametrize("image", ["", "{}", "[]", None, '{"hash": "unknown"}'])
def test_an_image_that_says_nothing_has_no_hash(image: object) -> None:
    assert content_of({"image": image}) == ""
    assert content_of(facts()) == "abc"


@pytest.mark.parametrize(
    ("runtime", "path", "gvisor"),
    [("runsc", "x", True), ("safe", "/usr/bin/runsc-wrap", True), ("gVisor", "", True), ("runc", "runc", False)],
)
def test_gvisor_is_known_by_its_name_or_its_program(runtime: str, path: str, gvisor: bool) -> None:
    assert _is_gvisor(runtime, {"Runtimes": {runtime: {"path": path}}}) is gvisor


def test_the_runtime_without_gvisor_is_the_daemons_own() -> None:
    both: dict[str, object] = {"runc": {}, "runsc": {}}
    assert _plain({"DefaultRuntime": "runsc"}, both) == "runc"
    assert _plain({"DefaultRuntime": "crun"}, {"crun": {}}) == "crun"
    assert _plain({}, both) == "runc"
