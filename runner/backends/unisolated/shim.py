"""The launcher: gives up uid, privileges and limits, loads a system call filter, becomes another program.

Standard library only; runs as a program of its own: ``python -I -S shim.py ORDERS PROGRAM ARGUMENT …``.
Every step that fails ends it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from typing import Any

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def give_up(orders: dict[str, Any]) -> None:
    """Do what the orders say. Raises OSError."""
    for name, value in orders["rlimits"].items():
        kind = getattr(resource, name)
        ceiling = resource.getrlimit(kind)[1]
        bound = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
        resource.setrlimit(kind, (bound, bound))
    uid = orders["uid"]
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    code = os.read(orders["filter"], 1 << 20)
    os.close(orders["filter"])
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program))


def _prctl(option: int, argument: int, pointer: Any = None) -> None:
    if _libc.prctl(option, ctypes.c_ulong(argument), pointer, None, None):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


if __name__ == "__main__":
    os.setsid()
    give_up(json.loads(sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
