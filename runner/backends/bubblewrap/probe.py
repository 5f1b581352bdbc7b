"""Tries what a bubblewrap sandbox needs on this host, and says which walls stand."""

from __future__ import annotations

import json
import os
import platform
import subprocess

from runner.backends.base import BackendReport, Wall
from runner.backends.bubblewrap import args, seccomp
from runner.backends.bubblewrap.cgroup import Parents
from runner.backends.bubblewrap.config import UID_BASE, BubblewrapConfig
from runner.model import SandboxLimits

_LIMIT_S = 10
_UID_ADVICE = "start the runner as root to give each sandbox its own host uid"


def probe(config: BubblewrapConfig, parents: Parents) -> BackendReport:
    """Start a real, empty sandbox and compare its kernel with the host's. Raises nothing."""
    if config.bwrap is None:
        return _unavailable("bubblewrap is not installed: install the package bubblewrap")
    if not (config.rootfs / "etc/foliobox/image.json").is_file():
        return _unavailable(f"no root file system at {config.rootfs}: run `make setup`")
    image = _image(config)
    filtered, why_not = _seccomp()
    if not filtered:
        return _unavailable(f"the system call filter cannot be built ({why_not}): install the package libseccomp2")
    kernel, error = _kernel_inside(config)
    if error:
        return _unavailable(f"a sandbox could not be started: {error}")
    same = kernel == platform.release()
    walls = (
        Wall("namespaces", True),
        Wall("seccomp", True),
        Wall("no-new-privileges", True),
        Wall("own-uid", config.privileged, "" if config.privileged else _UID_ADVICE),
        Wall("cgroups", parents.complete, "" if parents.complete else _cgroup_advice(parents)),
    )  # fmt: skip
    isolation = "shared-kernel" if same else "separate-kernel"
    return BackendReport("bubblewrap", True, isolation, image, True, "", walls)  # type: ignore[arg-type]


def _unavailable(detail: str) -> BackendReport:
    return BackendReport("bubblewrap", False, detail=detail)


def _cgroup_advice(parents: Parents) -> str:
    if parents.v1:
        return "only some control groups can be made; start the runner as root"
    return "no control group can be made: start the runner as root, or as a systemd unit with Delegate=yes"


def _image(config: BubblewrapConfig) -> str:
    try:
        record = json.loads((config.rootfs / "etc/foliobox/image.json").read_text())
        return f"{record['name']}:{record['hash']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


def _seccomp() -> tuple[bool, str]:
    try:
        seccomp.program()
    except Exception as error:
        return False, repr(error)
    return True, ""


def _kernel_inside(config: BubblewrapConfig) -> tuple[str, str]:
    limits = SandboxLimits()
    fds: list[int] = []
    try:
        for name, content in (("seccomp", seccomp.program()), ("options", b"")):
            fds.append(os.memfd_create(name, 0))
            os.write(fds[-1], content)
        rootfs = str(config.rootfs.resolve(strict=True))
        options = args.options(rootfs, limits, {"PATH": "/usr/bin"}, fds[0])
        os.write(fds[1], b"".join(option.encode() + b"\0" for option in options))
        for fd in fds:
            os.lseek(fd, 0, os.SEEK_SET)
        assert config.bwrap is not None
        uid = UID_BASE if config.privileged else None
        command = args.command(config.bwrap, fds[1], ["/usr/bin/uname", "-r"], limits, uid, [])
        done = subprocess.run(
            command, pass_fds=fds, env={"PATH": "/usr/bin:/bin"}, cwd="/", stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", repr(error)
    finally:
        for fd in fds:
            os.close(fd)
    if done.returncode:
        return "", done.stderr.decode("utf-8", "replace").strip()[-400:] or f"exit code {done.returncode}"
    return done.stdout.decode().strip(), ""
