"""Follows a trace and knows at each moment what would survive a power cut. Pure, and strict.

Credit is given to what POSIX promises and to nothing more: bytes are durable after an fsync or fdatasync of
that file, a name after an fsync of its folder, both after a syncfs; each covers what had *ended* when it
began, and counts when it has *ended*. A call that another one has seen the effect of has happened.
What cannot be followed (a shared writable mapping, a write of another process) is a ``TraceError``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tests.durability.support.nodes import File, Folder, Node, walk
from tests.durability.support.trace import Call, Step, TraceError

# (index of the folder's descriptor or None, index of the path) of what a call makes, changes or removes
PATHS: Final[Mapping[str, tuple[int | None, int]]] = {
    "open": (None, 0),
    "creat": (None, 0),
    "openat": (0, 1),
    "openat2": (0, 1),
    "mkdir": (None, 0),
    "mkdirat": (0, 1),
    "link": (None, 1),
    "linkat": (2, 3),
    "rename": (None, 1),
    "renameat": (2, 3),
    "renameat2": (2, 3),
    "unlink": (None, 0),
    "unlinkat": (0, 1),
    "rmdir": (None, 0),
    "truncate": (None, 0),
}
_SOURCES: Final = {"link": (None, 0), "linkat": (0, 1), "rename": (None, 0), "renameat": (0, 1), "renameat2": (0, 1)}
_BY_FD: Final = ("write", "pwrite64", "writev", "pwritev", "pwritev2", "ftruncate", "fallocate")
_UNKNOWN: Final = ("sendfile", "copy_file_range", "splice")
CALLS: Final = (
    *PATHS, *_BY_FD, *_UNKNOWN, "fsync", "fdatasync", "syncfs", "sync", "sync_file_range", "mmap", "lseek",
    "close", "dup", "dup2", "dup3", "fcntl", "clone", "clone3", "fork", "vfork", "sendto", "sendmsg", "sendmmsg",
)  # fmt: skip
_SELF_FD = re.compile(r"/proc/self/fd/(\d+)")


def threads(steps: Iterable[Step]) -> set[int]:
    """The first process of a trace and its threads: they share descriptors and are the service."""
    found: set[int] = set()
    for step in steps:
        found = found or {step.call.pid}
        call = step.call
        made = step.phase == "end" and call.name in ("clone", "clone3") and call.pid in found
        if made and call.result and any("CLONE_THREAD" in arg for arg in call.args):
            found.add(call.result)
    return found


class Model:
    """The folder ``root`` as the calls of the processes ``members`` make it; empty and durable at first."""

    def __init__(self, root: str, members: set[int], cwd: str = "/") -> None:
        self.root = Folder()
        self.named_early: list[tuple[int, str]] = []  # (line, path): a name before its bytes were durable
        self._top, self._cwd, self._members = root, cwd, members
        self._fds: dict[int, tuple[Node, str]] = {}
        self._offsets: dict[int, int] = {}
        self._flying: dict[int, Call] = {}
        self._seen: set[int] = set()  # processes whose call in flight was applied because others saw its effect
        self._syncs: dict[int, list[Callable[[], None]]] = {}
        self._line = 0
        self.changes = 0  # how often the folder, or what of it is durable, may have become different

    def feed(self, step: Step) -> None:
        """Take one step in."""
        call, self._line = step.call, step.line
        if call.pid not in self._members:
            self._foreign(step)
        elif step.phase == "begin":
            self._begin(call)
        else:
            self._end(call)

    def sent(self, step: Step) -> bytes:
        """What begins to leave on a socket with this step; empty when nothing does."""
        call = step.call
        if step.phase != "begin" or call.pid not in self._members:
            return b""
        if call.name in ("sendto", "sendmsg", "sendmmsg"):
            return call.strings()
        if call.name in ("write", "writev") and call.fd(0)[1].startswith(("TCP", "socket")):
            return call.strings()
        return b""

    # -- beginnings --------------------------------------------------------------------------------------------

    def _begin(self, call: Call) -> None:
        if call.name == "close":
            self._fds.pop(call.fd(0)[0], None)
        elif call.name in ("fsync", "fdatasync"):
            known = self._fds.get(call.fd(0)[0])
            self._syncs[call.pid] = [known[0].synced()] if known else []
        elif call.name in ("syncfs", "sync"):
            everything = {id(n): n for n in (self.root, *(n for _, n in walk(self.root, True)))}
            everything |= {id(n): n for n, _ in self._fds.values()}  # files that have no name yet among them
            self._syncs[call.pid] = [node.synced() for node in everything.values()]
        elif call.name in PATHS and self._inside(self._path(call, PATHS[call.name])) is not None:
            self._flying[call.pid] = call

    def _foreign(self, step: Step) -> None:
        """Another process: it may start programs, and may not touch the folder."""
        call = step.call
        if step.phase == "begin" or not call.ok or call.name not in PATHS or call.name.startswith("open"):
            return
        if self._inside(self._path(call, PATHS[call.name])) is not None:
            raise TraceError(f"line {step.line}: process {call.pid} is not the service and changed {call.args}")

    # -- ends --------------------------------------------------------------------------------------------------

    def _end(self, call: Call) -> None:
        self._flying.pop(call.pid, None)
        if call.pid in self._seen:
            self._seen.discard(call.pid)
            if call.name.startswith("open") and call.ok:
                self._opened(call, self._path(call, PATHS[call.name]))
            return
        if call.name in ("fsync", "fdatasync", "syncfs", "sync"):
            for end in self._syncs.pop(call.pid, []):
                if call.ok:
                    end()
                    self.changes += 1
        elif call.name in PATHS:
            self._on_path(call)
        elif call.ok:
            self._on_fd(call)

    def _on_path(self, call: Call) -> None:
        path = self._path(call, PATHS[call.name])
        if call.error == "EEXIST":
            self._witness(path)
        if not call.ok or self._inside(path) is None:
            if call.name.startswith("open") and call.ok and call.result is not None:
                self._fds.pop(call.result, None)
            return
        self._apply(call, path)

    def _apply(self, call: Call, path: str) -> None:
        self.changes += 1
        if call.name in ("open", "openat", "openat2", "creat"):
            self._made(call, path)
            self._opened(call, path)
        elif call.name in ("mkdir", "mkdirat"):
            self._parent(path).entries.setdefault(os.path.basename(path), Folder())
        elif call.name in ("unlink", "unlinkat", "rmdir"):
            self._parent(path).entries.pop(os.path.basename(path), None)
        elif call.name == "truncate":
            node = self._find(path)
            if isinstance(node, File):
                node.truncate(call.number(1))
        else:
            self._named(call, path)

    def _named(self, call: Call, path: str) -> None:
        """A link or a rename."""
        source = self._path(call, _SOURCES[call.name])
        by_fd = _SELF_FD.fullmatch(source)
        if by_fd or (call.name == "linkat" and not call.text(1)):
            number = int(by_fd[1]) if by_fd else call.fd(0)[0]
            node: Node | None = self._fds[number][0] if number in self._fds else None
        else:
            node = self._find(source)
        if node is None:
            raise TraceError(f"line {self._line}: {source} became {path}, and nothing is known of it")
        if isinstance(node, File) and node.dirty:
            self.named_early.append((self._line, self._inside(path) or path))
        if call.name.startswith("rename"):
            self._parent(source).entries.pop(os.path.basename(source), None)
        self._parent(path).entries[os.path.basename(path)] = node

    def _made(self, call: Call, path: str) -> None:
        flags = " ".join(call.args)
        if "O_TMPFILE" in flags:
            return
        node = self._find(path)
        if node is None:
            self._witness(path)
            node = self._find(path)
        if node is None and (call.name == "creat" or "O_CREAT" in flags):
            node = self._parent(path).entries[os.path.basename(path)] = File()
        if isinstance(node, File) and (call.name == "creat" or "O_TRUNC" in flags):
            node.truncate(0)

    def _opened(self, call: Call, path: str) -> None:
        assert call.result is not None
        flags = " ".join(call.args)
        node = File() if "O_TMPFILE" in flags else self._find(path)
        if node is None:
            raise TraceError(f"line {self._line}: {path} was opened, and nothing is known of it")
        self._fds[call.result] = (node, "append" if "O_APPEND" in flags else "")
        self._offsets[call.result] = 0

    def _on_fd(self, call: Call) -> None:
        if call.name == "mmap":
            if "MAP_SHARED" in call.args[3] and "PROT_WRITE" in call.args[2]:
                number = call.fd(4)[0]
                if number in self._fds:
                    raise TraceError(f"line {self._line}: a shared writable mapping cannot be followed")
            return
        if call.name in (
            "clone",
            "clone3",
            "fork",
            "vfork",
            "sendto",
            "sendmsg",
            "sendmmsg",
            "sync_file_range",
            "close",
        ):
            return
        if call.name in _UNKNOWN:
            if any(
                call.fd(index)[0] in self._fds
                for index in range(min(3, len(call.args)))
                if call.args[index][0].isdigit()
            ):
                raise TraceError(f"line {self._line}: {call.name} into the folder: its bytes are not in the trace")
            return
        number = call.fd(0)[0]
        known = self._fds.get(number)
        if known is None:
            return
        node, mode = known
        assert call.result is not None
        if call.name in ("dup", "dup2", "dup3") or (call.name == "fcntl" and call.args[1].startswith("F_DUPFD")):
            self._fds[call.result] = known
            self._offsets[call.result] = self._offsets[number]
        elif call.name == "lseek":
            self._offsets[number] = call.result
        elif isinstance(node, File):
            self.changes += 1
            self._bytes(call, node, number, mode)

    def _bytes(self, call: Call, node: File, number: int, mode: str) -> None:
        assert call.result is not None
        if call.name in ("write", "writev", "pwrite64", "pwritev", "pwritev2"):
            data = call.strings()[: call.result]
            if len(data) != call.result:
                raise TraceError(f"line {self._line}: {call.name}: the trace has only a part of the bytes")
            if call.name in ("write", "writev"):
                node.write(data, None if mode else self._offsets[number])
                self._offsets[number] += call.result
            else:
                node.write(data, call.number(3))
        elif call.name == "ftruncate":
            node.truncate(call.number(1))
        elif call.name == "fallocate" and call.args[1] == "0":
            node.truncate(max(len(node.now), call.number(2) + call.number(3)))

    # -- names -------------------------------------------------------------------------------------------------

    def _path(self, call: Call, where: tuple[int | None, int]) -> str:
        folder, index = where
        base = self._cwd
        if folder is not None:
            base = call.fd(folder)[1] or base
        return os.path.normpath(os.path.join(base, os.fsdecode(call.text(index))))

    def _inside(self, path: str) -> str | None:
        """A path below the root; empty for the root itself, None for others."""
        if path == self._top:
            return ""
        return path[len(self._top) + 1 :] if path.startswith(self._top + "/") else None

    def _find(self, path: str) -> Node | None:
        below = self._inside(path)
        node: Node | None = self.root if below is not None else None
        for part in (below or "").split("/"):
            if part:
                node = node.entries.get(part) if isinstance(node, Folder) else None
        return node

    def _parent(self, path: str) -> Folder:
        parent = os.path.dirname(path)
        if self._find(parent) is None:
            self._witness(parent)
        node = self._find(parent)
        if not isinstance(node, Folder):
            raise TraceError(f"line {self._line}: {path} came into a folder of which nothing is known")
        return node

    def _witness(self, path: str) -> None:
        """Somebody saw that ``path`` is there: a call in flight that makes it has happened."""
        for pid, call in list(self._flying.items()):
            if pid not in self._seen and self._path(call, PATHS[call.name]) == path and self._find(path) is None:
                self._seen.add(pid)
                if call.name.startswith(("open", "creat")):
                    self._made(call, path)
                else:
                    self._apply(call, path)
