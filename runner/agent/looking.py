"""The look at the files after a run: what is there, what was written, and what may be mapped in an interpreter."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable

from .protocol import Json
from .tree import STANDARD, Scan, Tree
from .writes import WriteWatch, closed

_ASKED = 64  # files at once


class Look:
    """Knows what earlier runs left open. ``begin`` before a run, ``changes`` after it."""

    def __init__(self, tree: Tree) -> None:
        self.writes = WriteWatch(tree.root)
        self._tree = tree
        self._open: dict[int, str] = {}  # files that may be open for writing, by inode

    def begin(self, remaining: bool = False, bare: bool = False) -> None:
        """From here on, whatever opens a file below the root is the run's doing.

        ``remaining``: something of an earlier run goes on, whose doing since then counts as well.
        ``bare``: standard folders are not there unless something is in them.
        """
        if bare:
            self._strip()
        if self.writes.works:
            if self._tree.folders_changed:
                self._tree.note_folders()
                self.writes.follow(self._tree.folders)
            if not remaining:
                self.writes.forget()

    def _strip(self) -> None:
        for name in STANDARD:
            with contextlib.suppress(OSError):  # not empty, or not there
                os.rmdir(os.path.join(self._tree.root, name))
                self._tree.folders_changed = True

    def changes(self, mapped: Callable[[], set[int]] | None) -> Json:
        """What the run did to the files. ``mapped`` gives inodes that the kept interpreter has mapped shared, None
        when there is none that stands still; it is asked only where there may be some.
        """
        tree = self._tree
        found = tree.scan()
        new_folders = found.folders != tree.folders
        if new_folders:
            self.writes.follow(found.folders)
        seen = self.writes.look()
        self._note_open(found, seen.touched if seen.complete and not new_folders else found.files)
        inodes = mapped() if mapped is not None and self._open else set()
        unseen = self.writes.works and not seen.complete
        return tree.changes(found, found.files if unseen else seen.written, inodes)

    def _note_open(self, found: Scan, touched: Iterable[str]) -> None:
        """Keep in mind which files may be open for writing: they may be mapped, now or in a later run.

        Whatever is open was touched under a name that it has, or had before the run, as which it may have other
        names. Each costs some microseconds, so that of many only some are asked about, and the others count as open
        until later.
        """
        before, now = self._tree.known, found.files
        places = self._open | {before[path].inode: path for path in touched if path in before}
        places |= {now[path].inode: path for path in touched if path in now}
        moved = {inode for inode, path in places.items() if path not in now or now[path].inode != inode}
        if moved:
            names = {stamp.inode: path for path, stamp in now.items() if stamp.inode in moved}
            gone = moved - names.keys()
            places = {inode: names.get(inode, path) for inode, path in places.items() if inode not in gone}
        asked = itertools.islice(places.items(), _ASKED)
        shut = {inode for inode, path in asked if closed(os.path.join(self._tree.root, path))}
        self._open = {inode: path for inode, path in places.items() if inode not in shut}
