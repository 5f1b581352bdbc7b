"""Builds the command of an unisolated sandbox as pure functions.

proot follows every process with ptrace and rewrites paths, so that programs see the root file system and
private folders at the usual places. That is a convenience for programs, not a wall against them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.backends.base import WORKSPACE
from runner.model import SandboxLimits

MARK = "FOLIOBOX_SANDBOX"
FOLDERS = {"workspace": WORKSPACE, "tmp": "/tmp", "home": "/home/sandbox", "shm": "/dev/shm"}
GLUE = "proot"


def command(
    launcher: Sequence[str],
    proot: str,
    rootfs: str,
    private: Path,
    payload: Sequence[str],
    limits: SandboxLimits,
    host_uid: int | None,
    filter_fd: int,
) -> list[str]:
    """The launcher gives up what it can (see ``shim``), then becomes proot, which starts the payload."""
    orders = {"uid": host_uid, "filter": filter_fd, "rlimits": rlimits(limits, own_uid=host_uid is not None)}
    return [*launcher, json.dumps(orders), proot, *options(rootfs, private), *payload]


def options(rootfs: str, private: Path) -> list[str]:
    """What proot shows of the host: /proc and /dev, and the sandbox's private folders."""
    binds = ["/proc", "/dev", *(f"{private / name}:{target}" for name, target in FOLDERS.items())]
    return ["-r", rootfs, *(part for bind in binds for part in ("-b", bind)), "-w", "/"]


def environment(base: Mapping[str, str], sandbox_id: str, private: Path) -> dict[str, str]:
    """The agent's environment, the mark by which processes are found again, and proot's own folder."""
    return {**base, MARK: sandbox_id, "PROOT_TMP_DIR": str(private / GLUE)}


def rlimits(limits: SandboxLimits, *, own_uid: bool) -> dict[str, int]:
    """Per-process limits, by the names of Python's ``resource``; nothing limits a sandbox as a whole."""
    found = {
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": limits.workspace_bytes,
        "RLIMIT_NOFILE": limits.nofile,
        "RLIMIT_DATA": limits.memory_bytes,
    }
    return {**found, "RLIMIT_NPROC": limits.pids} if own_uid else found
