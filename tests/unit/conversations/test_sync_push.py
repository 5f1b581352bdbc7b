"""What a sandbox is sent makes its files those of the workspace, folders included, and nothing is sent twice."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, cast

from runner.conversations.sync import Mirror
from runner.interpreter.client import ChangedFile, Outgoing, RunEnd, SandboxClient
from runner.model import FileChange
from runner.workspace.history import Workspace
from runner.workspace.paths import STANDING_FOLDERS, parents
from tests.unit.workspace.workspace_lab import RUN, fake_entry, memory_lab

NAMES = ("a", "b", "b/c", "b/d/e", "b/d/f", "g/h/i", "outputs/j", "k", "k/l")


class FakeDisk:
    """The files of a sandbox. Folders stay until they are removed."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.folders: set[str] = set(STANDING_FOLDERS)
        self.sent = 0

    async def remove(self, removed: Sequence[str]) -> None:
        for path in removed:
            self.sent += 1
            below = {name for place in (self.files, self.links) for name in place if name.startswith(path + "/")}
            assert not below, (path, below)
            self.files.pop(path, None)
            self.links.pop(path, None)
            self.folders -= {path} | {folder for folder in self.folders if folder.startswith(path + "/")}

    async def put(self, files: Sequence[Outgoing], links: Mapping[str, str], folders: Sequence[str]) -> None:
        self.sent += len(files) + len(links) + len(folders)
        for path in [*(file.entry.path for file in files), *links, *folders]:
            above = set(parents(path))
            assert not above & (self.files.keys() | self.links.keys())
            self.folders |= above
        for file in files:
            assert file.entry.path not in self.folders
            self.links.pop(file.entry.path, None)
            self.files[file.entry.path] = file.entry.sha256
        self.links |= links
        self.folders |= set(folders)


class NoBytes(Mirror):
    """Files of the model are in no store."""

    async def _outgoing(self, entry: Any) -> Outgoing:
        return Outgoing(entry, content=b"")


async def change(space: Workspace, dice: random.Random) -> None:
    """A run in some other sandbox, or none."""
    changes: dict[str, FileChange] = {}
    for path in dice.sample(NAMES, dice.randrange(4)):
        entry = fake_entry(path, b"%d" % dice.randrange(3))
        taken = path in space.files
        blocked = any(parent in space.files or parent in space.links for parent in parents(path))
        if taken and dice.random() < 0.6:
            changes[path] = FileChange(path, "deleted", None)
        elif not blocked and not any(name.startswith(path + "/") for name in (*space.files, *space.links)):
            changes[path] = FileChange(path, "modified", entry)
    links = dict.fromkeys(dice.sample(NAMES, 2), "to") if dice.random() < 0.3 else None
    folders = set(dice.sample(NAMES, 2)) if dice.random() < 0.3 else None
    await space.commit(list(changes.values()), synced_seq=space.draft_seq, cause=RUN, links=links, folders=folders)


async def test_the_sandbox_has_what_the_workspace_has() -> None:
    dice = random.Random(5)
    for _ in range(150):
        at, _store = memory_lab()
        space = await at.space()
        disk = FakeDisk()
        mirror = NoBytes(space, cast(SandboxClient, disk))
        for _ in range(8):
            await change(space, dice)
            if dice.random() < 0.2:  # what the sandbox made was refused
                observed: Any = None
                stray = ChangedFile("stray", "created", 1, 0o644, 1)
                disk.files["stray"] = "x"
                mirror.reject(RunEnd(observed, 1, "kept", None, None, 0, {}, [stray]))
            await mirror.push()
            assert disk.files == {path: entry.sha256 for path, entry in space.files.items()}
            assert disk.links == space.links
            places = (space.files, space.links, space.folders)
            expected = {parent for place in places for path in place for parent in parents(path)}
            assert disk.folders == expected | space.folders | STANDING_FOLDERS
            sent = disk.sent
            await mirror.push()
            assert disk.sent == sent
