"""The workspace folder inside the sandbox: write, read and remove files, and say what a run changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .protocol import MAX_ENTRIES, MAX_PATH_BYTES, Json

MAX_DEPTH = 64
MAX_SKIPPED = 100
STANDARD = ("uploads", "downloads", "skills", "outputs")  # always there, never part of a version when empty
_PART_PREFIX = ".foliobox-part-"


class Stamp(NamedTuple):
    """What is compared: content cannot change without one of these (but see shared mappings)."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int


class Scan:
    """One look at the whole tree."""

    def __init__(self) -> None:
        self.files: dict[str, Stamp] = {}
        self.links: dict[str, str] = {}
        self.folders: list[str] = []
        self.skipped: list[Json] = []
        self.truncated = False

    def skip(self, path: str, reason: str) -> None:
        """Note something that cannot be kept; names are shown with escapes."""
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append({"path": os.fsencode(path).decode("utf-8", "backslashreplace")[:512], "reason": reason})


class Tree:
    """Files below one root folder, with the state that the host is known to have."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.known: dict[str, Stamp] = {}
        self.known_links: dict[str, str] = {}
        self.known_folders: list[str] = []
        self._mapped: dict[str, str] = {}
        self._parts = 0

    def prepare(self) -> None:
        """Make the root and the standard folders, as far as nothing stands in their way."""
        for name in ("", *STANDARD):
            with contextlib.suppress(FileExistsError):
                os.makedirs(os.path.join(self.root, name), exist_ok=True)

    # -- host → sandbox ------------------------------------------------------------------------------------

    def begin(self) -> tuple[int, str]:
        """A new file to write into, not yet visible under its name: descriptor and temporary path."""
        self._parts += 1
        path = os.path.join(self.root, f"{_PART_PREFIX}{self._parts}")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), path

    def place(self, part: str, path: str, mode: int, modified_ns: int) -> None:
        """Give a written file its name; whatever stood there (link, FIFO, folder) is replaced, not followed."""
        target = self._parents(path)
        os.chmod(part, mode & 0o777)
        if modified_ns:
            os.utime(part, ns=(modified_ns, modified_ns))
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(target).st_mode):
                shutil.rmtree(target)
        os.replace(part, target)
        self.known[path] = _stamp(os.lstat(target))
        self.known_links.pop(path, None)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link again that a version holds."""
        place = self._parents(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        os.symlink(target, place)
        self.known_links[path] = target

    def folder(self, path: str) -> None:
        """Make a folder that a version holds empty."""
        os.makedirs(self._parents(path), exist_ok=True)
        if path not in self.known_folders:
            self.known_folders.append(path)

    def remove(self, path: str) -> None:
        """Remove a file or a link, if it is there."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            place = os.path.join(self.root, path)
            if stat.S_ISDIR(os.lstat(place).st_mode):
                shutil.rmtree(place)
            else:
                os.unlink(place)
        self.known.pop(path, None)
        self.known_links.pop(path, None)

    def clear(self) -> None:
        """Empty the whole tree."""
        for entry in os.scandir(self.root):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        self.known, self.known_links, self.known_folders = {}, {}, []

    # -- sandbox → host ------------------------------------------------------------------------------------

    def reader(self, path: str, limit: int) -> tuple[int, Callable[[int], bytes]]:
        """Size and a ``read(n)`` that gives at most ``limit`` bytes; OSError unless it is a regular file."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
        fd = os.open(os.path.join(self.root, path), flags)
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            os.close(fd)
            raise OSError("not a regular file")
        left = min(info.st_size, limit)

        def read(count: int) -> bytes:
            nonlocal left
            try:
                data = os.read(fd, min(count, left)) if left else b""
            except OSError:
                data = b""
            left -= len(data)
            if not data:
                os.close(fd)
            return data

        return info.st_size, read

    def scan(self) -> Scan:
        """Look at everything below the root; links are noted, never followed."""
        found = Scan()
        self._walk(self.root, "", 0, found)
        return found

    def changes(self, mapped: Iterable[str] = ()) -> Json:
        """What differs from the known state, which the result then is.

        ``created``, ``modified`` and ``deleted`` list files; links and empty folders are given whole.
        ``mapped`` are paths that some process holds mapped shared and writable: they are read again.
        """
        found = self.scan()
        created, modified = [], []
        forced = self._changed_mappings(found, mapped)
        for path, stamp in found.files.items():
            before = self.known.get(path)
            if before is None:
                created.append(_describe(path, stamp))
            elif before != stamp or path in forced:
                modified.append(_describe(path, stamp))
        deleted = [path for path in self.known if path not in found.files] if not found.truncated else []
        report: Json = {"created": created, "modified": modified, "deleted": deleted}
        if found.links != self.known_links or found.folders != self.known_folders:
            report["links"], report["folders"] = found.links, found.folders
        if found.skipped:
            report["skipped"] = found.skipped
        if found.truncated:
            report["truncated"] = True
        self.known, self.known_links, self.known_folders = found.files, found.links, found.folders
        return report

    def _changed_mappings(self, found: Scan, mapped: Iterable[str]) -> set[str]:
        forced: set[str] = set()
        digests: dict[str, str] = {}
        for path in mapped:
            if path in found.files:
                with contextlib.suppress(OSError), open(os.path.join(self.root, path), "rb") as file:
                    digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
                    if self._mapped.get(path) != digests[path]:
                        forced.add(path)
        self._mapped = digests
        return forced

    def _walk(self, folder: str, prefix: str, depth: int, found: Scan) -> None:
        try:
            with os.scandir(folder) as entries:
                listing = list(entries)
        except OSError:
            found.skip(prefix, "folder cannot be read")
            return
        if not listing and prefix and prefix[:-1] not in STANDARD:
            found.folders.append(prefix[:-1])
        for entry in listing:
            if len(found.files) + len(found.links) + len(found.folders) >= MAX_ENTRIES:
                found.truncated = True
                return
            self._note(entry, prefix + entry.name, depth, found)

    def _note(self, entry: os.DirEntry[str], path: str, depth: int, found: Scan) -> None:
        try:
            size = len(path.encode())
        except UnicodeEncodeError:
            found.skip(path, "name is not UTF-8")
            return
        if size > MAX_PATH_BYTES:
            found.skip(path, f"path is longer than {MAX_PATH_BYTES} bytes")
            return
        try:
            info = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(info.st_mode):
                if not entry.name.startswith(_PART_PREFIX):
                    found.files[path] = _stamp(info)
            elif stat.S_ISDIR(info.st_mode):
                if depth >= MAX_DEPTH:
                    found.skip(path, f"deeper than {MAX_DEPTH} folders")
                else:
                    self._walk(entry.path, path + "/", depth + 1, found)
            elif stat.S_ISLNK(info.st_mode):
                target = os.readlink(entry.path)
                target.encode()
                found.links[path] = target
            else:
                found.skip(path, "neither a file, a folder nor a link")
        except UnicodeEncodeError:
            found.skip(path, "link target is not UTF-8")
        except OSError:
            found.skip(path, "cannot be read")

    def _parents(self, path: str) -> str:
        """Absolute place of ``path`` with its parent folders made; a link or file in the way is removed."""
        place = self.root
        *parents, name = path.split("/")
        for segment in parents:
            place = os.path.join(place, segment)
            try:
                if stat.S_ISDIR(os.lstat(place).st_mode):
                    continue
                os.unlink(place)
            except FileNotFoundError:
                pass
            os.mkdir(place, 0o755)
        return os.path.join(place, name)


def _stamp(info: os.stat_result) -> Stamp:
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode & 0o777)


def _describe(path: str, stamp: Stamp) -> Json:
    return {"path": path, "size": stamp.size, "mode": stamp.mode, "modified_ns": stamp.mtime_ns}
