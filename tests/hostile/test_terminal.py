"""Case 10: no terminal of the runner can be written to or typed into from a sandbox (CVE-2017-5226).

A launch under a terminal of the test's, once as it is and once without its own session: the host reads the
terminal's other end. Kernels since 6.2 may refuse TIOCSTI to everybody, so the control writes to /dev/tty.
"""

from __future__ import annotations

import errno
import os
import select
import subprocess
from dataclasses import replace
from pathlib import Path

from runner.backends import seccomp
from runner.backends.bubblewrap import args
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.bubblewrap.launch import Plan
from runner.model import SandboxLimits
from tests.hostile.conftest import Weaken
from tests.hostile.support.place import Place
from tests.hostile.support.weakness import without

TYPE = (
    "import fcntl, os, termios\n"
    "for path in ('/dev/tty', '/proc/self/fd/0'):\n"
    "    try:\n        fcntl.ioctl(os.open(path, os.O_RDWR | os.O_NOCTTY), termios.TIOCSTI, b'!')\n"
    "    except OSError as error:\n        print(error.errno)\n"
)
WRITE = ["/bin/sh", "-c", "echo canary > /dev/tty"]


def launch(plan: Plan) -> bytes:
    """Run a plan as the leader of a session with a terminal; gives what arrived at the terminal."""
    master, slave = os.openpty()
    try:
        with plan.opened() as (command, fds):
            held = subprocess.Popen(
                ["setsid", "--ctty", *command],
                pass_fds=fds,
                stdin=slave,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(plan.environment),
            )
            held.communicate(timeout=20)
        return os.read(master, 1 << 10) if select.select([master], [], [], 0)[0] else b""
    finally:
        os.close(master)
        os.close(slave)


def plan() -> Plan:
    """A launch as the backend makes it, with another payload and no group."""
    config = BubblewrapConfig.from_env(os.environ)
    limits = SandboxLimits()
    assert config.bwrap is not None
    return Plan(
        chain=args.chain(config.bwrap, limits, 1_900_000_000, []),
        options=args.options(str(Path(config.rootfs).resolve()), limits, {"PATH": "/usr/bin:/bin"}),
        payload=WRITE,
        seccomp=seccomp.program(),
    )


def test_terminal_is_out_of_reach_and_control() -> None:
    assert launch(plan()) == b""
    weaker = replace(plan(), options=without(plan().options, "--new-session"))
    assert launch(weaker) == b"canary\r\n"


OWN_TERMINAL = """
import fcntl, os, termios
master, slave = os.openpty()
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    number = 0
    try:
        fcntl.ioctl(slave, termios.TIOCSTI, b"!")
    except OSError as error:
        number = error.errno
    os.write(write, bytes([number]))
    os._exit(0)
print(os.read(read, 1)[0])
"""


def test_typing_is_refused(strong: Place, weaken: Weaken) -> None:
    """Without the filter the call reaches the kernel, which does it (0) or has it switched off (EIO)."""
    assert strong.say(TYPE).split()[0] == str(errno.ENXIO)
    assert strong.say(OWN_TERMINAL) == f"{errno.EPERM}\n"
    assert weaken("no_seccomp").say(OWN_TERMINAL) in ("0\n", f"{errno.EIO}\n")
