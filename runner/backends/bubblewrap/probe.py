"""Tries what a bubblewrap sandbox needs on this host, and says which walls stand, from what a real one shows."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from runner.backends import leases, seccomp
from runner.backends.base import BackendReport, Isolation, Wall, image_name
from runner.backends.bubblewrap import args
from runner.backends.bubblewrap.cgroup import Group, Parents
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.bubblewrap.launch import Plan
from runner.errors import BackendUnavailable

NAMESPACES = ("user", "pid", "ipc", "uts", "net", "mnt")
_LIMIT_S = 10
_UID_ADVICE = "start the runner as root to give each sandbox its own host uid"
_LOOK = "uname -r; cat /proc/self/status; cd /proc/self/ns; for n in *; do readlink $n; done"
_NO_GROUPS = Parents({}, None, False)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a sandbox showed of itself; ``error`` says why it did not start."""

    kernel: str = ""
    status: dict[str, str] | None = None
    namespaces: frozenset[str] = frozenset()
    error: str = ""


def probe(config: BubblewrapConfig, hidden: Sequence[str], parents: Parents) -> tuple[BackendReport, Parents]:
    """Start a real sandbox and look at it; gives the report and where groups can really be made. Raises nothing."""
    if config.bwrap is None:
        return _unavailable("bubblewrap is not installed: install the package bubblewrap"), parents
    if not (config.rootfs / "etc/foliobox/image.json").is_file():
        return _unavailable(f"no root file system at {config.rootfs}: run `make setup`"), parents
    try:
        seccomp.program()
    except Exception as error:
        why = f"the system call filter cannot be built ({error!r}): install the package libseccomp2"
        return _unavailable(why), parents
    group_error = ""
    seen = _look(config, hidden, parents)
    if seen.error and Group.planned(parents, "x").folders:
        group_error, seen = seen.error, _look(config, hidden, _NO_GROUPS)
        parents = _NO_GROUPS
    if seen.error:
        return _unavailable(f"a sandbox could not be started: {seen.error}"), parents
    walls = (*_inner_walls(seen), *_outer_walls(config, parents, group_error))
    missing = [wall.name for wall in walls[:3] if not wall.stands]
    if missing:
        return _unavailable(f"a sandbox started without {', '.join(missing)}"), parents
    isolation: Isolation = "shared-kernel" if seen.kernel == platform.release() else "separate-kernel"
    return BackendReport("bubblewrap", True, isolation, image_name(config.rootfs), True, "", walls), parents


def _inner_walls(seen: _Seen) -> tuple[Wall, ...]:
    status = seen.status or {}
    shared = [name for name in NAMESPACES if _own_namespace(name) in seen.namespaces]
    powers = [name for name in ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb") if int(status.get(name, "1"), 16)]
    fine = status.get("NoNewPrivs") == "1" and not powers
    return (
        Wall("namespaces", not shared, f"shared with the host: {', '.join(shared)}" if shared else ""),
        Wall("seccomp", status.get("Seccomp") == "2"),
        Wall("no-new-privileges", fine, f"capabilities: {', '.join(powers)}" if powers else ""),
    )


def _outer_walls(config: BubblewrapConfig, parents: Parents, group_error: str) -> tuple[Wall, ...]:
    advice = f"groups cannot be used: {group_error}" if group_error else _cgroup_advice(parents)
    return (
        Wall("own-uid", config.privileged, "" if config.privileged else _UID_ADVICE),
        Wall("cgroups", parents.complete, "" if parents.complete else advice),
    )


def _own_namespace(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:
        return ""


def _unavailable(detail: str) -> BackendReport:
    return BackendReport("bubblewrap", False, detail=detail)


def _cgroup_advice(parents: Parents) -> str:
    if parents.v1:
        return "only some control groups can be made; start the runner as root"
    return "no control group can be made: start the runner as root, or as a systemd unit with Delegate=yes"


def _look(config: BubblewrapConfig, hidden: Sequence[str], parents: Parents) -> _Seen:
    limits = config.limits
    group = Group.planned(parents, f"probe-{secrets.token_hex(4)}")
    with contextlib.ExitStack() as stack:
        stack.callback(group.remove)
        try:
            uid = None
            if config.privileged:
                lease = leases.take_uid()
                stack.callback(lease.release)
                uid = lease.uid
            group.make(limits)
            assert config.bwrap is not None
            rootfs = str(config.rootfs.resolve(strict=True))
            plan = Plan(
                chain=args.chain(config.bwrap, limits, uid, group.procs),
                options=args.options(rootfs, limits, {"PATH": "/usr/bin:/bin"}, hidden),
                payload=["/bin/sh", "-c", _LOOK],
                seccomp=seccomp.program(),
            )
            done = _run(plan)
        except (OSError, subprocess.TimeoutExpired, BackendUnavailable) as error:
            return _Seen(error=f"{type(error).__name__}: {error}")
    if done.returncode:
        return _Seen(error=done.stderr.decode("utf-8", "replace").strip()[-400:] or f"exit code {done.returncode}")
    return _read(done.stdout.decode("utf-8", "replace"))


def _run(plan: Plan) -> subprocess.CompletedProcess[bytes]:
    with plan.opened() as (command, fds):
        return subprocess.run(
            command, pass_fds=fds, env=dict(plan.environment), cwd="/", stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip


def _read(text: str) -> _Seen:
    kernel, _, rest = text.partition("\n")
    status = {}
    for line in rest.splitlines():
        name, colon, value = line.partition(":\t")
        if colon:
            status[name] = value.strip()
    return _Seen(kernel.strip(), status, frozenset(line for line in rest.splitlines() if ":[" in line))
