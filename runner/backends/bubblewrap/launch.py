"""A start of a sandbox as data, and the descriptors that carry it; nothing here decides a flag."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from runner.backends.child import Child

LAUNCHER_ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@dataclass(frozen=True, slots=True)
class Plan:
    """``chain`` ends in ``bwrap``'s path, ``options`` go to it in a descriptor, ``bundle`` is written to stdin."""

    chain: list[str]
    options: list[str]
    payload: list[str]
    seccomp: bytes | None
    bundle: bytes = b""
    environment: Mapping[str, str] = field(default_factory=lambda: dict(LAUNCHER_ENVIRONMENT))
    inherit: tuple[int, ...] = ()

    @contextlib.contextmanager
    def opened(self) -> Iterator[tuple[list[str], tuple[int, ...]]]:
        """The command, and the descriptors it needs, which are closed afterwards. Raises OSError."""
        with contextlib.ExitStack() as stack:
            options = list(self.options)
            fds = []
            if self.seccomp is not None:
                fds.append(_memory_file(stack, "seccomp", self.seccomp))
                options += ["--seccomp", str(fds[-1])]
            fds.append(_memory_file(stack, "options", b"".join(option.encode() + b"\0" for option in options)))
            yield [*self.chain, "--args", str(fds[-1]), "--", *self.payload], (*fds, *self.inherit)

    async def spawn(self) -> Child:
        """Start it with pipes at its stdio. Raises OSError."""
        with self.opened() as (command, fds):
            return await Child.start(command, fds, self.environment)


def _memory_file(stack: contextlib.ExitStack, name: str, content: bytes) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    stack.callback(os.close, fd)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
