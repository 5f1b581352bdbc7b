"""What the agent is and has that its children must not be and have: a uid, and a limit of open files.

The uid: where the kernel does not keep processes of one uid apart (gVisor), the agent has guest uid 0 behind an
effective uid of the sandbox's: what it writes belongs to user code, which is not allowed to end it or to open its
memory and descriptors. Its children are the sandbox's uid altogether. The container has three capabilities for that:
SETUID and SETGID, and KILL.

The limit: the kernel counts what a uid has under way in descriptors sent over sockets, for all sandboxes together, and
lets nobody send any whose own limit of open files is below the count. The agent has to, for every cell: so it takes
the most that it may have, and children get the sandbox's. With that they bring the count to their limit, and to 253
more for each thread of theirs that sends in the same moment.
"""

from __future__ import annotations

import os
import resource

_children: int | None = None
_files: int | None = None


def hold(uid: int) -> None:
    """Be ``uid`` for all that is done and 0 behind it; from now on children become ``uid`` for good. Raises OSError."""
    global _children
    os.setgroups([])
    os.setresgid(0, uid, 0)
    os.setresuid(0, uid, 0)
    _children = uid


def keep_files(limit: int) -> None:
    """Have all the open files that the engine allows; from now on children have ``limit``, and can never have more."""
    global _files
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _files = limit if most == resource.RLIM_INFINITY else min(limit, most)


def give_up() -> None:
    """In a child: nothing but the sandbox's uid and limits is left. Raises OSError, ValueError: it must not go on."""
    if _files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_files, _files))
    if _children is not None:
        os.setresuid(0, 0, 0)
        os.setgroups([])
        os.setresgid(_children, _children, _children)
        os.setresuid(_children, _children, _children)
