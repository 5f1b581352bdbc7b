"""Who the agent and its children are where the kernel does not keep processes of one uid apart (gVisor).

There the agent has guest uid 0 behind an effective uid of the sandbox's: what it writes belongs to user code, which is
not allowed to end it or to open its memory and descriptors. Its children are the sandbox's uid altogether.
The container has three capabilities for that: SETUID and SETGID, and KILL.
"""

from __future__ import annotations

import os

_children: int | None = None


def hold(uid: int) -> None:
    """Be ``uid`` for all that is done and 0 behind it; from now on children become ``uid`` for good. Raises OSError."""
    global _children
    os.setgroups([])
    os.setresgid(0, uid, 0)
    os.setresuid(0, uid, 0)
    _children = uid


def give_up() -> None:
    """In a child: nothing but the sandbox's uid is left. Raises OSError, and then the child must not go on."""
    if _children is not None:
        os.setresuid(0, 0, 0)
        os.setgroups([])
        os.setresgid(_children, _children, _children)
        os.setresuid(_children, _children, _children)
