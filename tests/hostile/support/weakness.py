"""Walls taken out of a launch, one name each, for the controls: the attack must be seen to succeed without them.

A weakened service is the real one whose ``BubblewrapBackend.plan`` passes through here; before every start of
a sandbox it reads the names (and one folder of the host) from a file that the test writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.backends.bubblewrap import mounts
from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.launch import Plan

FILE = "FOLIOBOX_TEST_WEAKNESS"
SHARED_UID = 1_899_999_999
UNBOUNDED = "unbounded_mounts"
Weakening = Callable[[Plan, str], Plan]


def without(options: Sequence[str], *flags: str) -> list[str]:
    """Options with some flags (of no argument) left out; each must be there."""
    assert set(flags) <= set(options), flags
    return [option for option in options if option not in flags]


def _drop(*flags: str) -> Weakening:
    return lambda plan, _: replace(plan, options=without(plan.options, *flags))


def _add(*options: str) -> Weakening:
    return lambda plan, folder: replace(plan, options=[*plan.options, *(o.replace("FOLDER", folder) for o in options)])


def no_seccomp(plan: Plan, _: str) -> Plan:
    """No system call filter."""
    return replace(plan, seccomp=None)


def dumpable(plan: Plan, _: str) -> Plan:
    """The agent and the template stay readable and writable for processes of their uid."""
    sources = plan.bundle[4:].replace(b"set_dumpable(False)", b"set_dumpable(True)")
    assert sources != plan.bundle[4:]
    return replace(plan, bundle=len(sources).to_bytes(4, "big") + sources)


def _chain(old: str, *new: str) -> Weakening:
    """A launch with one argument of its chain, the one that begins with ``old``, replaced or left out."""

    def weaken(plan: Plan, _: str) -> Plan:
        at = next(at for at, argument in enumerate(plan.chain) if argument.startswith(old))
        return replace(plan, chain=[*plan.chain[:at], *new, *plan.chain[at + 1 :]])

    return weaken


def roomy(plan: Plan, _: str) -> Plan:
    """In-memory folders without a size that matters."""
    options = list(plan.options)
    for at, option in enumerate(options):
        if option == "--size":
            options[at + 1] = str(1 << 40)
    return replace(plan, options=options)


def _agent(old: str, new: str) -> Weakening:
    """The agent with one expression of its source replaced."""

    def weaken(plan: Plan, _: str) -> Plan:
        sources = plan.bundle[4:].replace(old.encode(), new.encode())
        assert sources != plan.bundle[4:], f"the agent has no {old!r} any more"
        return replace(plan, bundle=len(sources).to_bytes(4, "big") + sources)

    return weaken


def inherited_environment(plan: Plan, _: str) -> Plan:
    """The runner's environment all the way in."""
    return replace(plan, options=without(plan.options, "--clearenv"), environment=dict(os.environ))


def options_in_argv(plan: Plan, folder: str) -> Plan:
    """Options on the command line, with bwrap as PID 1 in the sandbox, as of findings 1 and 2."""
    visible = [*without(plan.options, "--as-pid-1"), "--setenv", "HOST_FOLDER", folder]
    return replace(plan, chain=[*plan.chain, *visible], options=[])


def no_pid_namespace(plan: Plan, _: str) -> Plan:
    """All processes of the host in sight."""
    options = without(plan.options, "--unshare-pid", "--as-pid-1")
    at = options.index("--proc")
    return replace(plan, options=[*options[:at], "--bind", "/proc", "/proc", *options[at + 2 :]])


def no_cgroup(plan: Plan, _: str) -> Plan:
    """Joins no control group."""
    return replace(plan, chain=plan.chain[plan.chain.index("setpriv") :])


def host_root(plan: Plan, _: str) -> Plan:
    """The runner's own uid, root, mapped to the sandbox's (finding 4)."""
    start, end = plan.chain.index("--reuid"), plan.chain.index("--no-new-privs")
    return replace(plan, chain=[*plan.chain[:start], *plan.chain[end:]])


def shared_uid(plan: Plan, _: str) -> Plan:
    """The same host uid for every sandbox (finding 8)."""
    chain = list(plan.chain)
    for flag in ("--reuid", "--regid"):
        chain[chain.index(flag) + 1] = str(SHARED_UID)
    return replace(plan, chain=chain)


def inherited_descriptor(plan: Plan, folder: str) -> Plan:
    """An open folder of the host left inheritable."""
    return replace(plan, inherit=(os.open(folder, os.O_RDONLY | os.O_DIRECTORY),))


def site_of_home(plan: Plan, _: str) -> Plan:
    """The template started as plain Python: user site packages and the current folder count (finding 17)."""
    sources = plan.bundle[4:].replace(b'\\"-P\\", \\"-s\\", ', b"")
    assert sources != plan.bundle[4:]
    options = list(plan.options)
    at = options.index("PYTHONNOUSERSITE")
    del options[at - 1 : at + 2]
    return replace(plan, options=options, bundle=len(sources).to_bytes(4, "big") + sources)


WEAKNESSES: dict[str, Weakening] = {
    "no_seccomp": no_seccomp,
    "dumpable": dumpable,
    "patient": _agent("TIMEOUT_KILL_S = 0.8", "TIMEOUT_KILL_S = 600"),
    "talkative": _agent("STREAM_KEEP = 16 << 20", "STREAM_KEEP = 1 << 50"),
    "showy": _agent("DISPLAYS_KEEP = 256", "DISPLAYS_KEEP = 1 << 50"),
    "cores": _chain("--core", "--core=unlimited"),
    "no_process_limit": _chain("--nproc"),
    "roomy": roomy,
    UNBOUNDED: lambda plan, _: plan,
    "inherited_environment": inherited_environment,
    "options_in_argv": options_in_argv,
    "no_pid_namespace": no_pid_namespace,
    "agent_not_pid_1": _drop("--as-pid-1"),
    "nested_user_namespaces": _drop("--disable-userns"),
    "shared_network": _drop("--unshare-net"),
    "shared_ipc": _drop("--unshare-ipc"),
    "outlives_runner": _drop("--die-with-parent"),
    "no_cgroup": no_cgroup,
    "host_root": host_root,
    "shared_uid": shared_uid,
    "inherited_descriptor": inherited_descriptor,
    "host_folder": _add("--bind", "FOLDER", "/mnt"),
    "host_folder_as_tmp": _add("--bind", "FOLDER", "/tmp"),
    "site_of_home": site_of_home,
    "interpreter_runs_on": _agent(
        "return info.si_code == os.CLD_STOPPED", "os.kill(pid, signal.SIGCONT); return info.si_code > 0"
    ),
    "follows_links": _agent("entry.stat(follow_symlinks=False)", "entry.stat()"),
    "opens_links": _agent("| os.O_NOFOLLOW | os.O_NOCTTY", ""),
    "writes_through_links": _agent(
        "os.replace(part, target)", "__import__('shutil').copyfile(part, target); os.unlink(part)"
    ),
    "reports_everything": _agent("if stat.S_ISREG(info.st_mode):", "if not stat.S_ISDIR(info.st_mode):"),
}


def install() -> None:
    """Weaken this process's launches by what the file named in the environment says at each start."""
    strong, bound = BubblewrapBackend.plan, mounts.bound

    def names() -> list[str]:
        found: list[str] = json.loads(Path(os.environ[FILE]).read_text())["names"]
        return found

    def plan(self: BubblewrapBackend, *arguments: Any) -> Plan:
        order = json.loads(Path(os.environ[FILE]).read_text())
        made = strong(self, *arguments)
        for name in order["names"]:
            made = WEAKNESSES[name](made, order["folder"])
        return made

    BubblewrapBackend.plan = plan  # type: ignore[method-assign,assignment]
    mounts.bound = lambda outer: UNBOUNDED not in names() and bound(outer)
