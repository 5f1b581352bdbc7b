"""What the daemon is asked to create: every flag, as a golden body for each kind of runtime."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from runner.backends.docker import args
from runner.backends.docker.args import Engine, Identity
from runner.backends.docker.profile import profile
from runner.backends.egress import EgressConfig
from runner.model import SandboxLimits

GOLDEN = Path(__file__).with_name("golden")
WHO = Identity("deployment", "boot", "sandbox", 600.0)
ENVIRONMENT = {"PATH": "/bin", "HOME": "/home"}
LIMITS = SandboxLimits(1 << 30, 0.5, 100, 512, 64 << 20, 1000, 32 << 20, 16 << 20, 8 << 20)


def body(engine: Engine) -> args.Json:
    return args.container(engine, WHO, LIMITS, ["python3", "-c", "pass"], ENVIRONMENT, "{}")


@pytest.mark.parametrize(
    "engine",
    [
        Engine("sha256:1", "runc", tcp_memory=True, content="abc"),
        Engine("sha256:1", "runsc", guest_root=True, content="abc"),
    ],
    ids=lambda engine: engine.runtime,
)
def test_the_body_is_the_golden_one(engine: Engine) -> None:
    """After a decision to change it: write what the assertion shows."""
    assert body(engine) == json.loads((GOLDEN / f"docker-{engine.runtime}.json").read_text())


def test_nothing_gives_power() -> None:
    for engine in (Engine("i", "runc"), Engine("i", "runsc", guest_root=True)):
        made = body(engine)
        host = made["HostConfig"]
        assert host["CapDrop"] == ["ALL"]
        assert set(host["CapAdd"]) <= {"KILL", "SETGID", "SETUID"}
        assert (made["User"] == "0:0") == bool(host["CapAdd"]) == engine.guest_root
        assert not {"Binds", "Mounts", "Devices", "VolumesFrom", "Links", "PortBindings", "ExtraHosts"} & set(host)
        assert host["NetworkMode"] == "none"
        assert "no-new-privileges:true" in host["SecurityOpt"]


def test_with_network_only_the_network_is_another() -> None:
    engine, granted = Engine("i", "runc"), replace(WHO, egress=EgressConfig("inside", "http://egress:3128"))
    without, made = body(engine), args.container(engine, granted, LIMITS, ["python3", "-c", "pass"], ENVIRONMENT, "{}")
    assert made["Labels"] == without["Labels"] | {"foliobox.egress": "inside http://egress:3128"}
    assert (without["NetworkDisabled"], made["NetworkDisabled"]) == (True, False)
    own_resolver = {"Dns": ["127.0.0.1"], "DnsOptions": ["timeout:1", "attempts:1"], "DnsSearch": ["."]}
    assert made["HostConfig"] == without["HostConfig"] | {"NetworkMode": "inside", **own_resolver}
    changed = {"HostConfig", "Labels", "NetworkDisabled"}
    assert {name for name in made if made[name] != without[name]} == changed


def test_sizes_follow_the_limits() -> None:
    host = body(Engine("i", "runc"))["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == LIMITS.memory_bytes
    assert host["PidsLimit"] == LIMITS.pids
    assert f"size={LIMITS.workspace_bytes + LIMITS.rounding_bytes}," in host["Tmpfs"]["/workspace"]
    assert all("uid=10001,gid=10001" in options and "nr_inodes=" in options for options in host["Tmpfs"].values())


def test_processes_are_counted_where_the_runtime_counts_them() -> None:
    """A guest kernel's own threads count against the control group, so the guest's processes are limited inside."""
    for engine, limit, inner in ((Engine("i", "runc"), 100, []), (Engine("i", "runsc", guest_root=True), 4096, [100])):
        host = body(engine)["HostConfig"]
        assert host["PidsLimit"] == limit
        assert [item["Hard"] for item in host["Ulimits"] if item["Name"] == "nproc"] == inner


def test_only_what_shares_no_uid_is_limited_in_open_files_by_the_daemon() -> None:
    """The agent needs more than user code, which the agent limits itself (tests/unit/agent/test_spawn.py)."""
    for engine, limit in ((Engine("i", "runc"), []), (Engine("i", "runsc", guest_root=True), [LIMITS.nofile])):
        given = body(engine)["HostConfig"]["Ulimits"]
        assert [item["Hard"] for item in given if item["Name"] == "nofile"] == limit


def test_the_filter_that_is_shipped_refuses_by_default() -> None:
    told = json.loads(profile())
    assert told["defaultAction"] == "SCMP_ACT_ERRNO"
    assert "\n" not in profile()
