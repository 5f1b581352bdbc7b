"""Builds the command of a bubblewrap sandbox as a pure function; every flag is decided here.

Order of the launch: own cgroup → unprivileged uid → no new privileges → rlimits → bubblewrap with an empty
environment and its options in a descriptor → seccomp → agent. No mount point lies below a folder that user
code can write (GHSA-pxhw-h44j-8pfx), and nothing of the host but the root file system is bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.backends.base import SANDBOX_UID, WORKSPACE
from runner.model import SandboxLimits

HOSTNAME = "sandbox"


def options(
    rootfs: str, limits: SandboxLimits, environment: Mapping[str, str], seccomp_fd: int
) -> list[str]:
    """Options for ``bwrap --args FD``: only that number is visible in the sandbox's command line."""
    return [
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net",
        "--unshare-cgroup-try", "--disable-userns", "--as-pid-1",
        "--uid", str(SANDBOX_UID), "--gid", str(SANDBOX_UID), "--hostname", HOSTNAME,
        "--new-session", "--die-with-parent", "--cap-drop", "ALL",
        "--clearenv", *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        "--ro-bind", rootfs, "/",
        "--proc", "/proc", "--dev", "/dev",
        *_tmpfs("/dev/shm", limits.shm_bytes),
        *_tmpfs("/tmp", limits.tmp_bytes),
        *_tmpfs("/home/sandbox", limits.home_bytes),
        *_tmpfs(WORKSPACE, limits.workspace_bytes),
        "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", "/", "--seccomp", str(seccomp_fd),
    ]  # fmt: skip


def _tmpfs(path: str, size: int) -> list[str]:
    return ["--perms", "0700", "--size", str(size), "--tmpfs", path]


def command(
    bwrap: str,
    options_fd: int,
    payload: Sequence[str],
    limits: SandboxLimits,
    host_uid: int | None,
    cgroup_procs: Sequence[str],
) -> list[str]:
    """The whole chain of programs. ``host_uid`` is None when the runner itself is unprivileged."""
    join = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1" || exit 120; shift; n=$((n-1)); done; exec "$@"'
    chain = ["/bin/sh", "-c", join, "sh", str(len(cgroup_procs)), *cgroup_procs]
    chain += ["setpriv"]
    if host_uid is not None:
        chain += ["--reuid", str(host_uid), "--regid", str(host_uid), "--clear-groups", "--bounding-set=-all"]
    chain += ["--no-new-privs", "--inh-caps=-all", "--"]
    chain += ["prlimit", *rlimits(limits, own_uid=host_uid is not None), "--"]
    return [*chain, bwrap, "--args", str(options_fd), "--", *payload]


def rlimits(limits: SandboxLimits, *, own_uid: bool) -> list[str]:
    """Per-process limits. RLIMIT_NPROC counts per host uid, hence only where a sandbox has its own."""
    flags = [
        "--core=0",
        f"--fsize={limits.workspace_bytes}",
        f"--nofile={limits.nofile}:{limits.nofile}",
        "--memlock=65536",
        "--msgqueue=0",
        "--rtprio=0",
        "--nice=0",
    ]
    return [*flags, f"--nproc={limits.pids}"] if own_uid else flags
