"""The filters, run by a small interpreter of the instructions that libseccomp writes."""

from __future__ import annotations

import errno
import platform
import struct

import pytest

from runner.backends import seccomp

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers below are those of x86-64")
ALLOW, KILL = "allow", "kill"


def verdict(program: bytes, number: int, *arguments: int, arch: int = 0xC000003E) -> str:
    """What the filter says to a call: ``allow``, ``kill``, or an error's name."""
    data = struct.pack("=IIQ6Q", number & 0xFFFFFFFF, arch, 0, *(*arguments, *(0,) * (6 - len(arguments))))
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at, held = 0, 0
    while True:
        code, true, false, k = lines[at]
        at += 1
        if code == 0x20:
            held = struct.unpack_from("=I", data, k)[0]
        elif code == 0x54:
            held &= k
        elif code == 0x05:
            at += k
        elif code == 0x06:
            action = k & 0xFFFF0000
            known = {0x7FFF0000: ALLOW, 0x00050000: errno.errorcode.get(k & 0xFFFF, "none")}
            return known.get(action, KILL)
        else:
            holds = {0x15: held == k, 0x25: held > k, 0x35: held >= k, 0x45: bool(held & k)}[code]
            at += true if holds else false


@pytest.mark.parametrize(
    ("number", "arguments", "expected"),
    [
        (39, (), ALLOW),  # getpid
        (165, (), "EPERM"),  # mount
        (435, (), "ENOSYS"),  # clone3
        (451, (), ALLOW),  # cachestat, the newest that is known
        (452, (), "ENOSYS"),  # fchmodat2
        (1023, (), "ENOSYS"),
        (56, (0x11,), ALLOW),  # clone as fork
        (56, (0x10000011,), "EPERM"),  # with a user namespace
        (56, (0x40000011,), "EPERM"),
        (41, (1,), ALLOW),  # AF_UNIX
        (41, (38,), "EAFNOSUPPORT"),  # AF_ALG
        (41, (40,), "EAFNOSUPPORT"),  # AF_VSOCK
        (16, (0, 0x5412), "EPERM"),  # TIOCSTI
        (16, (0, 0x5400000005412), "EPERM"),  # with high bits set, which the kernel ignores
        (16, (0, 0x5401), ALLOW),
        (302, (0, 7), ALLOW),  # prlimit64 of oneself
        (302, (1, 7), "EPERM"),  # of the agent
        (101, (), "EPERM"),  # ptrace
        (135, (0x40000,), "EPERM"),
        (0x40000000 + 39, (), KILL),  # x32
    ],
)
def test_verdicts_in_a_jail(number: int, arguments: tuple[int, ...], expected: str) -> None:
    assert verdict(seccomp.program(), number, *arguments) == expected


def test_another_abi_is_killed_in_a_jail() -> None:
    assert verdict(seccomp.program(), 20, arch=0x40000003) == KILL


@pytest.mark.parametrize(
    ("number", "arguments", "expected"),
    [
        (332, (), "ENOSYS"),  # statx
        (437, (), "ENOSYS"),  # openat2
        (452, (), "ENOSYS"),
        (101, (), ALLOW),  # ptrace, which proot lives on
        (-2, (), ALLOW),  # how proot takes back a call
        (157, (4, 0), "none"),  # prctl(PR_SET_DUMPABLE): success without effect
        (157, (15,), ALLOW),
    ],
)
def test_verdicts_below_proot(number: int, arguments: tuple[int, ...], expected: str) -> None:
    assert verdict(seccomp.compatible(), number, *arguments) == expected
