"""Builds the command of a bubblewrap sandbox as pure functions; every flag is decided here.

Order of the launch: own cgroup → unprivileged uid → no new privileges → rlimits → bubblewrap with an empty
environment and its options in a descriptor → seccomp → agent. No mount point lies below a folder that user
code can write (GHSA-pxhw-h44j-8pfx), and nothing of the host but the root file system is bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.backends.base import HOSTNAME, SANDBOX_UID, WORKSPACE
from runner.model import SandboxLimits

OUTSIDE = 1  # processes of a sandbox that are not in its namespaces: they count for the control group and its uid


def options(
    rootfs: str, limits: SandboxLimits, environment: Mapping[str, str], hidden: Sequence[str] = ()
) -> list[str]:
    """Options for ``bwrap --args FD``: only that number is visible in the command line on the host.

    ``hidden`` lists files that exist in this host's /proc and cannot be opened in the sandbox.
    """
    return [
        "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net",
        "--unshare-cgroup-try", "--disable-userns", "--as-pid-1",
        "--uid", str(SANDBOX_UID), "--gid", str(SANDBOX_UID), "--hostname", HOSTNAME,
        "--new-session", "--die-with-parent", "--cap-drop", "ALL",
        "--clearenv", *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        "--ro-bind", rootfs, "/",
        "--proc", "/proc", *(part for path in hidden for part in ("--ro-bind", "/dev/null", path)),
        "--dev", "/dev",
        *_tmpfs("/dev/shm", limits.shm_bytes),
        *_tmpfs("/tmp", limits.tmp_bytes),
        *_tmpfs("/home/sandbox", limits.home_bytes),
        *_tmpfs(WORKSPACE, limits.workspace_bytes + limits.rounding_bytes),
        "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", "/",
    ]  # fmt: skip


def _tmpfs(path: str, size: int) -> list[str]:
    return ["--perms", "0700", "--size", str(size), "--tmpfs", path]


def chain(bwrap: str, limits: SandboxLimits, host_uid: int | None, cgroup_procs: Sequence[str]) -> list[str]:
    """The programs that become ``bwrap``, one after the other; each step that fails ends the launch.

    ``host_uid`` is None when the runner itself is unprivileged.
    """
    join = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1" || exit 120; shift; n=$((n-1)); done; exec "$@"'
    programs = ["/bin/sh", "-c", join, "sh", str(len(cgroup_procs)), *cgroup_procs]
    programs += ["setpriv"]
    if host_uid is not None:
        programs += ["--reuid", str(host_uid), "--regid", str(host_uid), "--clear-groups", "--bounding-set=-all"]
    programs += ["--no-new-privs", "--inh-caps=-all", "--"]
    return [*programs, "prlimit", *rlimits(limits, own_uid=host_uid is not None), "--", bwrap]


def rlimits(limits: SandboxLimits, *, own_uid: bool) -> list[str]:
    """Per-process limits. RLIMIT_NPROC counts per host uid, hence only where a sandbox has its own.

    It is met before the control group's limit, and must be: the kernel looks at it before it copies a process's
    memory and at the group's after that, so that a bomb at the group's limit does nothing but copy, and takes
    seconds to die.
    """
    flags = [
        "--core=0",
        f"--fsize={limits.workspace_bytes}",
        f"--nofile={limits.nofile}:{limits.nofile}",
        "--memlock=65536",
        "--msgqueue=0",
        "--rtprio=0",
        "--nice=0",
    ]
    return [*flags, f"--nproc={limits.pids - OUTSIDE}"] if own_uid else flags
