"""The profile for Docker: written from the lists, whole, and by no call weaker than the filter of bubblewrap."""

from __future__ import annotations

import errno
import itertools
import json
import os
import platform
import struct
import tempfile
from typing import Any

import pyseccomp
import pytest

from images.seccomp import generate
from runner.backends import seccomp
from tests.unit.backends.test_seccomp import ALLOW, verdict

x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers below are those of x86-64")
NUMBERS = (*range(335), *range(424, seccomp.NEWEST + 1))


def compiled() -> bytes:
    """The shipped profile as runc loads it: rules that say what the default says are left out."""
    profile = json.loads(generate.PROFILE.read_text())
    rules = pyseccomp.SyscallFilter(pyseccomp.ERRNO(profile["defaultErrnoRet"]))
    for rule in profile["syscalls"]:
        allows = rule["action"] == "SCMP_ACT_ALLOW"
        if not allows and rule["errnoRet"] == profile["defaultErrnoRet"]:
            continue
        action = pyseccomp.ALLOW if allows else pyseccomp.ERRNO(rule["errnoRet"])
        conditions = [
            pyseccomp.Arg(arg["index"], pyseccomp.MASKED_EQ, arg["value"], arg["valueTwo"]) for arg in rule["args"]
        ]
        for name in rule["names"]:
            rules.add_rule(action, name, *conditions)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.flush()
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)


def name_of(number: int) -> str:
    """The name of a call."""
    return str(pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, number).decode())


def test_the_file_is_what_the_generator_writes() -> None:
    assert generate.PROFILE.read_text() == generate.text(), "run: python3 images/seccomp/generate.py"


@x86_64
def test_every_call_has_one_answer() -> None:
    answered = [name for rule in generate.by_arguments() for name in rule["names"]]  # type: ignore[attr-defined]
    bound = set(answered)
    for number in NUMBERS:
        name = name_of(number)
        lists = [generate.allowed(), seccomp.DENIED, seccomp.MISSING, generate.OBSOLETE, sorted(bound)]
        assert sum(name in names for names in lists) == 1, name


@x86_64
def test_nothing_is_allowed_that_bubblewrap_refuses() -> None:
    strict, other = compiled(), seccomp.program()
    words = (0, 1, 2, 7, 0xFFFFFFFF, 0x5412, 0x541C, 0x5401, *(1 << bit for bit in range(32)), *range(64))
    values = sorted({word | high for word in words for high in (0, 1 << 32)})
    scheduling = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
    calls: list[tuple[int, ...]] = [(number,) for number in range(1200)]
    for name in ("clone", "socket", "personality", "prlimit64", "setpriority", "ioprio_set", *scheduling):
        number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
        calls += [(number, *pair) for pair in itertools.product(values, (1, 7, 1 << 32 | 1))]
    calls += [(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, "ioctl"), 0, value) for value in values]
    allowed = [call for call in calls if verdict(strict, *call) == ALLOW]
    assert len(allowed) > 300, "the comparison must have something to compare"
    # The kernel looks at 32 bits of each of these arguments.
    seen = {call: (call[0], *(value & 0xFFFFFFFF for value in call[1:])) for call in allowed}
    assert [call for call, as_seen in seen.items() if verdict(other, *as_seen) != ALLOW] == []


@x86_64
@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("getpid", (), ALLOW),
        ("mount", (), "EPERM"),
        ("clone3", (), "ENOSYS"),
        ("modify_ldt", (), "ENOSYS"),
        ("clone", (0x11,), ALLOW),
        ("clone", (0x10000011,), "EPERM"),
        ("socket", (1,), ALLOW),
        ("socket", (38,), "EAFNOSUPPORT"),
        ("socket", (1 << 32 | 38,), "EAFNOSUPPORT"),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), "EPERM"),
        ("ioctl", (0, 1 << 40 | 0x5412), "EPERM"),
        ("prlimit64", (0,), ALLOW),
        ("prlimit64", (1,), "EPERM"),
        ("setpriority", (0, 7), ALLOW),
        ("setpriority", (0, 1), "EPERM"),
        ("setpriority", (0, 1 << 32 | 1), "EPERM"),
        ("setpriority", (1, 7), "EPERM"),
        ("sched_setaffinity", (1 << 32 | 1,), "EPERM"),
        ("personality", (0x40000,), "EPERM"),
    ],
)
def test_answers(call: str, arguments: tuple[int, ...], expected: str) -> None:
    number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, call)
    assert verdict(compiled(), number, *arguments) == expected


@pytest.mark.parametrize("excluded", [(0,), (1,), (0x5412, 0x541C), (1, 2, 10, 16), (0, 0xFFFFFFFF)])
def test_blocks_hold_every_value_but_the_excluded(excluded: tuple[int, ...]) -> None:
    blocks = generate.all_but(excluded)
    near = {value ^ (1 << bit) for value in excluded for bit in range(32)} | set(range(64)) | {0xFFFFFFFF}
    for value in near | set(excluded):
        holding = sum(value & mask == bits for mask, bits in blocks)
        assert holding == (value not in excluded), hex(value)


def test_a_name_in_two_lists_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "allowed", lambda: ["read", "mount"])
    with pytest.raises(ValueError, match="mount"):
        generate.profile()


def test_what_no_list_names_looks_missing() -> None:
    profile: dict[str, Any] = json.loads(generate.PROFILE.read_text())
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", errno.ENOSYS)
    # Without them runc 1.1 answers calls newer than the profile with EPERM, which callers take for a refusal.
    assert [entry["architecture"] for entry in profile["archMap"]] == list(generate.ARCHITECTURES)
    assert all(entry["subArchitectures"] == [] for entry in profile["archMap"])
    assert len(compiled()) % struct.calcsize("=HBBI") == 0
