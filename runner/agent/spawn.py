"""Starts a program in a session of its own, and never waits for a process that user code could stop.

``posix_spawn`` shares its memory with the child and holds the parent, uninterruptibly, until the child has
executed: one SIGSTOP at that moment and the agent would stand still for good. Here the two are apart at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal

from . import identity, system

_ABOVE = 10  # no descriptor that a program is given has a number from here on


def spawn(path: str, arguments: list[str], env: dict[str, str], places: dict[int, int], wait_s: float = 0.0) -> int:
    """Run ``path`` with descriptors at their ``places`` (number there: descriptor here); gives its pid.

    Raises OSError when it cannot be executed, if that shows within ``wait_s``; else the child ends with 127.
    """
    me = os.getpid()
    told, tell = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
        if pid == 0:
            _become(path, arguments, env, places, tell)
    finally:
        if os.getpid() != me:  # whatever may have been raised: two agents must not go on
            os._exit(127)
        os.close(tell)
        error = _error(told, wait_s)
        os.close(told)
    if error:
        raise OSError(error, os.strerror(error))
    return pid


def _error(told: int, wait_s: float) -> int:
    """Why the child could not execute its program; 0 when it has, or has not done so yet."""
    if not select.select([told], [], [], wait_s)[0]:
        return 0
    return int.from_bytes(os.read(told, 4), "big")


def _become(path: str, arguments: list[str], env: dict[str, str], places: dict[int, int], tell: int) -> None:
    """In the child: become the program, or say why not."""
    try:
        tell = fcntl.fcntl(tell, fcntl.F_DUPFD_CLOEXEC, _ABOVE)
        for number in (signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        system.yield_to_agent()
        identity.give_up()
        for place, fd in places.items():
            os.dup2(fd, place)
            os.set_inheritable(place, True)  # dup2 leaves it as it is where both are the same
        os.execve(path, arguments, env)
    except OSError as error:
        # gVisor says of arguments or an environment that are too large that a name is; every path here is short.
        code = errno.E2BIG if error.errno == errno.ENAMETOOLONG else error.errno or 1
        os.write(tell, code.to_bytes(4, "big"))
    except ValueError:  # a name or a value that no environment can hold
        os.write(tell, (22).to_bytes(4, "big"))
    finally:
        os._exit(127)
