"""The command without isolation: what proot shows, what the launcher gives up."""

from __future__ import annotations

import json
from pathlib import Path

from runner.backends.unisolated import args
from runner.model import SandboxLimits

LIMITS = SandboxLimits()
PRIVATE = Path("/private")


def test_paths_of_programs_are_the_usual_ones() -> None:
    found = args.options("/rootfs", PRIVATE)
    assert found[:2] == ["-r", "/rootfs"]
    binds = [found[at + 1] for at, option in enumerate(found) if option == "-b"]
    assert binds == [
        "/proc", "/dev", "/private/workspace:/workspace", "/private/tmp:/tmp", "/private/home:/home/sandbox",
        "/private/shm:/dev/shm",
    ]  # fmt: skip


def test_launcher_is_told_what_to_give_up() -> None:
    command = args.command(["python", "shim.py"], "/usr/bin/proot", "/rootfs", PRIVATE, ["agent"], LIMITS, 7, 3)
    orders = json.loads(command[2])
    assert (orders["uid"], orders["filter"], orders["rlimits"]["RLIMIT_NPROC"]) == (7, 3, LIMITS.pids)
    assert command[3] == "/usr/bin/proot"
    assert command[-1] == "agent"
    assert "RLIMIT_NPROC" not in args.rlimits(LIMITS, own_uid=False)


def test_environment_carries_the_mark() -> None:
    assert args.environment({"A": "1"}, "id", PRIVATE) == {
        "A": "1", "FOLIOBOX_SANDBOX": "id", "PROOT_TMP_DIR": "/private/proot",
    }  # fmt: skip
