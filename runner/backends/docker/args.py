"""Builds what the daemon is asked to create, as pure functions; every flag of a container is decided here.

Nothing in it comes from a caller of the service but numbers of ``SandboxLimits``. Sources: the flags of the
project's security notes; runc 1.1.5 ignores the mode of a tmpfs whose mount point exists in the image, hence an
explicit owner; a guest kernel of gVisor counts host threads against the limit of processes, hence RLIMIT_NPROC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runner.backends.base import HOSTNAME, SANDBOX_UID, WORKSPACE
from runner.backends.docker import labels
from runner.backends.egress import EgressConfig
from runner.backends.proc import HOST_FACTS
from runner.model import SandboxLimits

Json = dict[str, Any]
GUEST_ROOT_CAPABILITIES: Final = ("KILL", "SETGID", "SETUID")
_GUEST_HOST_TASKS: Final = 4096
_CPU_SHARES: Final = 512  # half of what the runner has, so that it answers while every sandbox computes
# Below what the agent gives its template (300) and interpreters (600): it may raise its own score and never lower it.
_OOM_SCORE_ADJ: Final = 100
_MASKED: Final = (
    "/proc/asound", "/proc/acpi", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
)  # fmt: skip
_READONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys")


@dataclass(frozen=True, slots=True)
class Engine:
    """What a start depends on: ``image`` by its id, so that all sandboxes of a start run the same bits.

    ``guest_root``: the runtime's kernel does not protect a process from others of its uid, so that the agent keeps
    guest uid 0 with three capabilities, and all else is ``SANDBOX_UID``. ``tcp_memory``: cgroup v1 counts socket
    buffers only where they have a limit of their own.
    """

    image: str
    runtime: str
    guest_root: bool = False
    tcp_memory: bool = False
    content: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose container it is, as labels."""

    deployment: str
    boot: str
    sandbox_id: str
    orphan_s: float
    egress: EgressConfig | None = None  # of one with network

    def labels(self, engine: Engine) -> dict[str, str]:
        """What the next start of this deployment reads."""
        told = {
            labels.DEPLOYMENT: self.deployment,
            labels.BOOT: self.boot,
            labels.SANDBOX: self.sandbox_id,
            labels.IMAGE: engine.content,
            labels.RUNTIME: engine.runtime,
            labels.ORPHAN_AFTER: f"{self.orphan_s:g}",
        }
        return told | ({labels.EGRESS: self.egress.label} if self.egress else {})


def container(
    engine: Engine,
    identity: Identity,
    limits: SandboxLimits,
    command: Sequence[str],
    environment: Mapping[str, str],
    profile: str,
) -> Json:
    """The body of a create call. ``profile`` is the seccomp filter as JSON."""
    user = "0:0" if engine.guest_root else f"{SANDBOX_UID}:{SANDBOX_UID}"
    return {
        "Image": engine.image,
        "Hostname": HOSTNAME,
        "User": user,
        # The daemon adds HOSTNAME; the environment is to be the same on every backend.
        "Entrypoint": ["/usr/bin/env", "-u", "HOSTNAME", *command],
        "Cmd": [],
        "Env": [f"{name}={value}" for name, value in environment.items()],
        "WorkingDir": "/",
        "Labels": identity.labels(engine),
        "Tty": False,
        "OpenStdin": True,
        "StdinOnce": False,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": identity.egress is None,
        "Healthcheck": {"Test": ["NONE"]},
        "StopTimeout": 2,  # the agent is PID 1 and obeys nobody but its host; a daemon that stops need not wait for it
        "HostConfig": _host(engine, limits, profile) | _network(identity.egress),
    }


def _network(egress: EgressConfig | None) -> Json:
    """None, or the one that was made for egress.

    Where a container names no resolver of its own, engines of before 2024 have the host ask for it, on an internal
    network too (CVE-2024-29018). With its own loopback as one, names of containers are still found and no others.
    """
    if egress is None:
        return {"NetworkMode": "none"}
    options = ["timeout:1", "attempts:1"]
    return {"NetworkMode": egress.network, "Dns": ["127.0.0.1"], "DnsOptions": options, "DnsSearch": ["."]}


def _host(engine: Engine, limits: SandboxLimits, profile: str) -> Json:
    host: Json = {
        "Runtime": engine.runtime,
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": list(GUEST_ROOT_CAPABILITIES) if engine.guest_root else [],
        "SecurityOpt": ["no-new-privileges:true", f"seccomp={profile}"],
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        "NanoCpus": int(limits.cpus * 1_000_000_000),
        "CpuShares": _CPU_SHARES,
        "PidsLimit": _GUEST_HOST_TASKS if engine.guest_root else limits.pids,
        "OomScoreAdj": _OOM_SCORE_ADJ,
        "Ulimits": [_ulimit(name, value) for name, value in _ulimits(engine, limits)],
        "Tmpfs": tmpfs(limits),
        "MaskedPaths": [*_MASKED, *HOST_FACTS],
        "ReadonlyPaths": list(_READONLY),
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
        "AutoRemove": False,  # how it ended is asked for after its end
        "Init": False,
        "PublishAllPorts": False,
    }
    if engine.tcp_memory:
        host["KernelMemoryTCP"] = limits.memory_bytes // 16
    return host


def _ulimits(engine: Engine, limits: SandboxLimits) -> list[tuple[str, int]]:
    flags = [
        ("core", 0),
        ("fsize", limits.workspace_bytes),
        ("memlock", 65536),
        ("msgqueue", 0),
        ("rtprio", 0),
        ("nice", 0),
    ]
    # Elsewhere sandboxes share a uid: RLIMIT_NPROC would count the processes of all of them together, and the agent
    # needs more open files than its children get from it (agent/identity.py). It has as many as the daemon gives
    # without a word, which are many: not every daemon may give more than it has.
    return [*flags, ("nofile", limits.nofile), ("nproc", limits.pids)] if engine.guest_root else flags


def _ulimit(name: str, value: int) -> Json:
    return {"Name": name, "Soft": value, "Hard": value}


def tmpfs(limits: SandboxLimits) -> dict[str, str]:
    """Every place that can be written to, with its owner, size and number of files."""
    return {
        WORKSPACE: _options(limits.workspace_bytes + limits.rounding_bytes, 2 * limits.workspace_files + 1024),
        "/tmp": _options(limits.tmp_bytes, 20_000),
        "/home/sandbox": _options(limits.home_bytes, 10_000),
        "/dev/shm": _options(limits.shm_bytes, 2_000),
    }


def _options(size: int, files: int) -> str:
    owner = f"uid={SANDBOX_UID},gid={SANDBOX_UID},mode=0700"
    return f"rw,exec,nosuid,nodev,size={size},nr_inodes={files},{owner}"
