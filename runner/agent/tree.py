"""The workspace folder inside the sandbox: write, read and remove files, and say what a run changed."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Collection
from typing import NamedTuple

from .protocol import FILES_ALONG, MAX_ALONG, MAX_ENTRIES, MAX_LEVELS, MAX_PATH_BYTES, Json

MAX_SKIPPED = 100
STANDARD = ("uploads", "downloads", "skills", "outputs")  # always there, never part of a version when empty
_PART_PREFIX = ".foliobox-part-"


class Stamp(NamedTuple):
    """What is compared: content cannot change without one of these (but see ``writes.py``)."""

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
        self.empty: list[str] = []
        self.folders: dict[str, int] = {}
        self.skipped: list[Json] = []
        self.truncated = False

    @property
    def room(self) -> int:
        """How many more entries are looked at."""
        return max(0, MAX_ENTRIES - len(self.files) - len(self.links) - len(self.folders))

    def skip(self, path: str, reason: str) -> None:
        """Note something that cannot be kept; names are shown with escapes."""
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append({"path": os.fsencode(path).decode("utf-8", "backslashreplace")[:512], "reason": reason})


class _Reader:
    """Gives the bytes of an open file piece by piece; closed at the end, or when nobody wants it any more."""

    def __init__(self, fd: int, left: int) -> None:
        self._fd, self._left = fd, left

    def __call__(self, count: int) -> bytes:
        data = os.read(self._fd, min(count, self._left)) if self._left else b""
        if self._left and not data:
            raise OSError("the file is shorter than it was")
        self._left -= len(data)
        return data

    def __del__(self) -> None:
        os.close(self._fd)


class Tree:
    """Files below one root folder, with the state that the host is known to have."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.known: dict[str, Stamp] = {}
        self.known_links: dict[str, str] = {}
        self.known_empty: set[str] = set()
        self.folders: dict[str, int] = {}
        self.folders_changed = True
        self.mapped: dict[str, str] = {}
        self._parts: set[str] = set()
        self._part_count = 0

    def prepare(self) -> None:
        """Make the root and the standard folders, as far as nothing stands in their way."""
        for name in STANDARD:
            try:
                os.mkdir(os.path.join(self.root, name))
            except FileExistsError:
                continue
            except FileNotFoundError:
                os.makedirs(os.path.join(self.root, name))
            self.folders_changed = True

    def note_folders(self) -> None:
        """Look which folders there are, without taking note of files."""
        self.folders, self.folders_changed = self.scan().folders, False

    # -- host → sandbox ------------------------------------------------------------------------------------

    def begin(self) -> tuple[int, str]:
        """A new file to write into, not yet visible under its name: descriptor and temporary path."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            self._part_count += 1
            path = os.path.join(self.root, f"{_PART_PREFIX}{self._part_count}")
            with contextlib.suppress(FileExistsError):
                fd = os.open(path, flags, 0o600)
                self._parts.add(path)
                return fd, path

    def place(self, part: str, path: str, mode: int, modified_ns: int) -> None:
        """Give a written file its name; whatever stood there (link, FIFO, folder) is replaced, not followed."""
        target = self._parents(path)
        os.chmod(part, mode & 0o777)
        if modified_ns:
            os.utime(part, ns=(modified_ns, modified_ns))
        if _is_folder(target):
            _remove_folder(target)
        os.replace(part, target)
        self._parts.discard(part)
        self.known[path] = _stamp(os.lstat(target))
        self.known_links.pop(path, None)

    def discard(self, part: str) -> None:
        """Forget a file that was begun and will not be placed."""
        self._parts.discard(part)
        with contextlib.suppress(OSError):
            os.unlink(part)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link again that a version holds."""
        place = self._parents(path)
        self.remove(path)
        os.symlink(target, place)
        self.known_links[path] = target

    def folder(self, path: str) -> None:
        """Make a folder that a version holds empty."""
        place = self._parents(path)
        if not _is_folder(place):
            self.remove(path)
            os.mkdir(place)
            self.folders_changed = True
        self.known_empty.add(path)

    def remove(self, path: str) -> None:
        """Remove whatever is at ``path``, if there is something."""
        place = os.path.join(self.root, path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if _is_folder(place):
                _remove_folder(place)
            else:
                os.unlink(place)
        self.known.pop(path, None)
        self.known_links.pop(path, None)

    def clear(self) -> None:
        """Empty the whole tree."""
        for entry in list(os.scandir(self.root)):
            if entry.is_dir(follow_symlinks=False):
                _remove_folder(entry.path)
            else:
                os.unlink(entry.path)
        self.known, self.known_links, self.known_empty = {}, {}, set()
        self.folders_changed = True

    # -- sandbox → host ------------------------------------------------------------------------------------

    def reader(self, path: str, limit: int) -> tuple[int, Callable[[int], bytes]]:
        """Size and a ``read(n)`` that gives at most ``limit`` bytes; OSError unless it is a regular file."""
        place = os.path.join(self.root, path)
        try:
            fd = _open(place)
        except PermissionError:
            fd = self._open_forbidden(place, path)
        info = os.fstat(fd)
        reader = _Reader(fd, min(info.st_size, limit))
        if not stat.S_ISREG(info.st_mode):
            raise OSError("not a regular file")
        return info.st_size, reader

    def content(self, path: str, limit: int) -> bytes:
        """At most ``limit`` bytes of a small file; OSError unless it is a regular one."""
        size, read = self.reader(path, limit)
        parts = []
        left = min(size, limit)
        while left:
            parts.append(read(left))
            left -= len(parts[-1])
        return b"".join(parts)

    def small(self, report: Json) -> dict[str, bytes]:
        """Contents of what a report of ``changes`` names, when that is so little that it can be sent along.

        Empty when it is more, or one of the files cannot be read as it was seen: the host fetches them then.
        """
        files = [*report["created"], *report["modified"]]
        if len(files) > FILES_ALONG or sum(file["size"] for file in files) > MAX_ALONG:
            return {}
        found: dict[str, bytes] = {}
        for file in files:
            path, size = file["path"], file["size"]
            try:
                found[path] = self.content(path, size + 1)
            except OSError:
                return {}
            if len(found[path]) != size:
                return {}
        return found

    def _open_forbidden(self, place: str, path: str) -> int:
        """Open a file whose mode forbids its owner to read it, and leave the mode as it was."""
        info = os.lstat(place)
        if not stat.S_ISREG(info.st_mode):
            raise OSError("not a regular file")
        os.chmod(place, 0o400)
        try:
            return _open(place)
        finally:
            os.chmod(place, info.st_mode & 0o777)
            if self.known.get(path) == _stamp(info):
                self.known[path] = _stamp(os.lstat(place))

    def scan(self) -> Scan:
        """Look at everything below the root; links are noted, never followed."""
        found = Scan()
        found.folders[""] = os.stat(self.root).st_ino
        self._walk(self.root, "", 1, found)
        return found

    def changes(self, found: Scan, written: Collection[str] = (), mapped: Collection[int] = ()) -> Json:
        """What a scan shows that differs from the known state, which it then becomes.

        ``created``, ``modified`` and ``deleted`` list files; links and empty folders are given whole.
        ``written`` are files that were open for writing; ``mapped`` are inodes that some process has mapped
        shared: their content is compared.
        """
        created, modified = [], []
        forced = self._changed_mappings(found, mapped) | set(written)
        for path, stamp in found.files.items():
            before = self.known.get(path)
            if before is None:
                created.append(_describe(path, stamp))
            elif before != stamp or path in forced:
                modified.append(_describe(path, stamp))
        deleted = [path for path in self.known if path not in found.files] if not found.truncated else []
        report: Json = {"created": created, "modified": modified, "deleted": deleted}
        empty = set(found.empty)
        if found.links != self.known_links or empty != self.known_empty:
            report["links"], report["folders"] = found.links, sorted(empty)
        if found.skipped:
            report["skipped"] = found.skipped
        if found.truncated:
            report["truncated"] = True
        self.known, self.known_links, self.known_empty = found.files, found.links, empty
        self.folders = found.folders
        return report

    def _changed_mappings(self, found: Scan, mapped: Collection[int]) -> set[str]:
        if not mapped and not self.mapped:
            return set()
        import hashlib  # rarely needed, and OpenSSL takes a megabyte

        forced: set[str] = set()
        digests: dict[str, str] = {}
        for path, stamp in found.files.items():
            if stamp.inode in mapped:
                with contextlib.suppress(OSError), open(os.path.join(self.root, path), "rb") as file:
                    digests[path] = hashlib.file_digest(file, "sha256").hexdigest()
                    if self.mapped.get(path) != digests[path]:
                        forced.add(path)
        self.mapped = digests
        return forced

    def _walk(self, folder: str, prefix: str, level: int, found: Scan) -> None:
        """Note what lies in ``folder``; its entries have ``level`` segments in their paths."""
        listing = self._listed(folder, prefix, found)
        if listing is None:
            return
        if not listing and prefix and prefix[:-1] not in STANDARD:
            found.empty.append(prefix[:-1])
        if level > MAX_LEVELS and listing:
            found.skip(prefix, f"deeper than {MAX_LEVELS} levels")
            return
        files, plain = found.files, prefix.isascii()
        for entry in listing:
            if not found.room:
                found.truncated = True
                return
            name = entry.name
            path = prefix + name
            if not (plain and name.isascii() and len(path) <= MAX_PATH_BYTES) and not _keepable(path, found):
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                found.skip(path, "cannot be read")
                continue
            if stat.S_ISREG(info.st_mode):
                if not self._parts or entry.path not in self._parts:
                    files[path] = _stamp(info)
            elif stat.S_ISDIR(info.st_mode):
                found.folders[path] = info.st_ino
                self._walk(entry.path, path + "/", level + 1, found)
            elif stat.S_ISLNK(info.st_mode):
                _note_link(entry, path, found)
            else:
                found.skip(path, "neither a file, a folder nor a link")

    def _listed(self, folder: str, prefix: str, found: Scan) -> list[os.DirEntry[str]] | None:
        """As many entries of a folder as there is room for; None when it cannot be read. Notes either."""
        try:
            listing = _listing(folder, found.room + 1)
        except OSError:
            found.skip(prefix, "folder cannot be read")
            return None
        if len(listing) > found.room:
            found.truncated = True
        return listing

    def _parents(self, path: str) -> str:
        """Absolute place of ``path`` with its parent folders made; a link or file in the way is removed."""
        place, above = self.root, ""
        *parents, name = path.split("/")
        for segment in parents:
            place, above = os.path.join(place, segment), f"{above}{segment}"
            if not _is_folder(place):
                self.remove(above)
                os.mkdir(place, 0o755)
                self.folders_changed = True
            above += "/"
        return os.path.join(place, name)


def _stamp(info: os.stat_result) -> Stamp:
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_mode & 0o777)


def _describe(path: str, stamp: Stamp) -> Json:
    return {"path": path, "size": stamp.size, "mode": stamp.mode, "modified_ns": stamp.mtime_ns}


def _open(place: str) -> int:
    return os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY)


def _is_folder(place: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(place).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _listing(folder: str, at_most: int) -> list[os.DirEntry[str]]:
    """Entries of a folder: all of a million would not find room in memory.

    A folder that its owner may not read is opened up, so that its files are not taken for gone.
    """
    try:
        with os.scandir(folder) as entries:
            listing = list(itertools.islice(entries, at_most))
        if listing and not os.access(folder, os.X_OK):
            raise PermissionError
        return listing
    except PermissionError:
        os.chmod(folder, 0o700)
        with os.scandir(folder) as entries:
            return list(itertools.islice(entries, at_most))


def _remove_folder(place: str) -> None:
    """Remove a folder with all in it, whatever the modes of its folders are."""
    for folder, _, _ in os.walk(place):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    import shutil  # rarely needed, and it brings every compression library along

    shutil.rmtree(place)


def _keepable(path: str, found: Scan) -> bool:
    """Whether a version can hold this name; notes why not."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        found.skip(path, "name is not UTF-8")
        return False
    if size > MAX_PATH_BYTES:
        found.skip(path, f"path is longer than {MAX_PATH_BYTES} bytes")
        return False
    return True


def _note_link(entry: os.DirEntry[str], path: str, found: Scan) -> None:
    try:
        target = os.readlink(entry.path)
        target.encode()
    except UnicodeEncodeError:
        found.skip(path, "link target is not UTF-8")
    except OSError:
        found.skip(path, "cannot be read")
    else:
        found.links[path] = target
