"""Long random lives of conversations, checked step by step against a model that is too simple to be wrong.

The store is read anew at random points, and two writers take turns: what memory says is what the store says.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from runner.errors import Conflict, FolioboxError, NotFound, PreconditionFailed, UnknownBlob
from runner.model import FileChange
from runner.workspace.history import Workspace
from runner.workspace.workspaces import Workspaces
from tests.unit.workspace.workspace_lab import RUN, Lab, contents, gone, made, memory_lab, put, run, sha

NAMES = ("a", "b", "c")
KINDS = (*("put", "delete", "move", "move", "commit") * 2, "put_many", "put_known", "restore", "fork")


@dataclass
class Model:
    """Files, links and empty folders by path; ``versions`` are pictures of it."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    versions: list[Model] = field(default_factory=list)

    def picture(self) -> Model:
        return Model(dict(self.files), dict(self.links), set(self.folders))

    def same_as(self, other: Model) -> bool:
        return (self.files, self.links, self.folders) == (other.files, other.links, other.folders)

    def become(self, other: Model) -> None:
        self.files, self.links, self.folders = dict(other.files), dict(other.links), set(other.folders)

    def things(self) -> list[str]:
        return [*self.files, *self.links, *self.folders]

    def below(self, path: str) -> list[str]:
        return [name for name in self.things() if name.startswith(path + "/")]

    def clear_way(self, path: str) -> None:
        """Raises when files or links are in the way; empty folders give way."""
        solid = {**self.files, **self.links}
        if any(path.startswith(name + "/") for name in solid) or any(name.startswith(path + "/") for name in solid):
            raise Conflict("")
        self.folders = {
            one for one in self.folders if not (path + "/").startswith(one + "/") and not one.startswith(path + "/")
        }

    def put(self, path: str, data: bytes) -> None:
        self.clear_way(path)
        self.links.pop(path, None)
        self.files[path] = data

    def take(self, path: str) -> None:
        self.files.pop(path, None)
        self.links.pop(path, None)
        self.folders.discard(path)

    def delete(self, path: str, recursive: bool) -> None:
        if path not in self.things():
            below = self.below(path)
            if not below:
                raise NotFound("")
            if not recursive:
                raise Conflict("")
            for name in below:
                self.take(name)
        self.take(path)

    def move(self, source: str, target: str, if_absent: bool) -> None:
        if source == target or target.startswith(source + "/"):
            raise Conflict("")
        if source in self.files or source in self.links:
            if if_absent and (target in self.files or target in self.links):
                raise PreconditionFailed("")
            self.clear_way(target)
            moved = self.files.get(source), self.links.get(source)
            self.take(source)
            self.take(target)
            if moved[0] is not None:
                self.files[target] = moved[0]
            else:
                self.links[target] = moved[1] or ""
            return
        names = [source] if source in self.folders else self.below(source)
        if not names:
            raise NotFound("")
        if target in self.files or target in self.links:
            raise PreconditionFailed("")
        if self.below(target) or any(target.startswith(name + "/") for name in (*self.files, *self.links)):
            raise Conflict("")
        before = self.picture()
        for name in names:
            self.take(name)
        above = {one for one in self.folders if (target + "/").startswith(one + "/")}
        self.folders -= above
        for name in names:
            where = target + name[len(source) :]
            if name in before.files:
                self.files[where] = before.files[name]
            elif name in before.links:
                self.links[where] = before.links[name]
            else:
                self.folders.add(where)


@dataclass
class Life:
    """One conversation, its model, and two writers that know it."""

    name: str
    model: Model
    writers: list[Workspace]


class World:
    """Conversations that are changed at random."""

    def __init__(self, lab: Lab, dice: random.Random) -> None:
        self.lab, self.dice = lab, dice
        self.lives: list[Life] = []

    async def begin(self) -> None:
        space = await self.lab.space("c0")
        self.lives.append(Life("c0", Model(versions=[Model()]), [space, await self.lab.again("c0")]))

    def path(self) -> str:
        return "/".join(self.dice.choice(NAMES) for _ in range(self.dice.choice((1, 1, 2, 2, 3))))

    def data(self) -> bytes:
        return b"%d" % self.dice.randrange(6) * 3

    async def step(self) -> str:
        life = self.dice.choice(self.lives)
        writer = self.dice.randrange(2)
        if self.dice.random() < 0.15:
            found = await Workspaces(self.lab.store, self.lab.config).find("t", life.name)
            assert found is not None
            life.writers[writer] = found
        space = life.writers[writer]
        await space.refresh()
        kind = self.dice.choice(KINDS)
        expected = life.model.picture()
        expected.versions = life.model.versions
        predict, act = await getattr(self, f"do_{kind}")(life, space, expected)
        wanted, refused = None, None
        try:
            predict()
        except FolioboxError as error:
            wanted = type(error)
        try:
            await act()
            life.model = expected
        except FolioboxError as error:
            refused = error
        assert wanted is (refused and type(refused)), (kind, refused)
        await self.check(life, space)
        return kind

    async def check(self, life: Life, space: Workspace) -> None:
        model = life.model
        assert await contents(space) == model.files
        assert space.links == model.links
        assert space.folders == model.folders
        assert space.size_bytes == sum(map(len, model.files.values()))
        assert space.version == len(model.versions) - 1

    async def check_all(self) -> None:
        for life in self.lives:
            space = await self.lab.again(life.name)
            await self.check(life, space)
            for number, picture in enumerate(life.model.versions):
                manifest = await space.manifest(number)
                assert {path: entry.sha256 for path, entry in manifest.files.items()} == {
                    path: sha(data) for path, data in picture.files.items()
                }
                assert (dict(manifest.links), set(manifest.folders)) == (picture.links, picture.folders)
                before = life.model.versions[number - 1].files if number else {}
                changed = {change.path: change.change for change in await space.changes(number)}
                kinds = {path: "created" for path in picture.files if path not in before}
                kinds |= {path: "deleted" for path in before if path not in picture.files}
                both = picture.files.keys() & before.keys()
                kinds |= {path: "modified" for path in both if picture.files[path] != before[path]}
                # a file replaced by the same bytes under another time counts as modified
                assert {path: kind for path, kind in changed.items() if kinds.get(path) != kind} == {
                    path: "modified" for path in changed if path in both and path not in kinds
                }
                assert kinds.keys() <= changed.keys()

    # -- what can be done: how the model changes, and the same to the workspace -----------------------------------

    async def do_put(self, life: Life, space: Workspace, model: Model) -> tuple[Callable[[], None], object]:
        path, data = self.path(), self.data()
        return lambda: model.put(path, data), lambda: put(space, path, data)

    async def do_put_many(self, life: Life, space: Workspace, model: Model) -> tuple[Callable[[], None], object]:
        wanted = {self.path(): self.data() for _ in range(self.dice.randrange(1, 4))}

        def predict() -> None:
            for path, data in wanted.items():
                model.put(path, data)

        async def act() -> None:
            items = []
            for path, data in wanted.items():
                staging = space.stage()
                await staging.write(data)
                items.append((path, staging))
            await space.put_many(items)

        return predict, act

    async def do_put_known(self, life: Life, space: Workspace, model: Model) -> tuple[Callable[[], None], object]:
        path, data = self.path(), self.data()

        def predict() -> None:
            held = [model.files, *(version.files for version in model.versions)]
            if not any(data in files.values() for files in held):
                raise UnknownBlob("")
            model.put(path, data)

        return predict, lambda: space.put_known(path, sha(data))

    async def do_delete(self, life: Life, space: Workspace, model: Model) -> tuple[Callable[[], None], object]:
        path, recursive = self.path(), self.dice.random() < 0.5
        return lambda: model.delete(path, recursive), lambda: space.delete(path, recursive=recursive)

    async def do_move(self, life: Life, space: Workspace, model: Model) -> tuple[Callable[[], None], object]:
        source, target, if_absent = self.path(), self.path(), self.dice.random() < 0.5
        return (
            lambda: model.move(source, target, if_absent),
            lambda: space.move(source, target, if_absent=if_absent),
        )

    async def do_commit(self, life: Life, space: Workspace, model: Model) -> tuple[Callable[[], None], object]:
        """A run that has seen everything, and leaves any tree behind."""
        after = model.picture()
        for _ in range(self.dice.randrange(4)):
            path = self.path()
            try:
                match self.dice.randrange(4):
                    case 0:
                        after.put(path, self.data())
                    case 1:
                        after.delete(path, True)
                    case 2:
                        after.clear_way(path)
                        after.take(path)
                        after.links[path] = "../" + path
                    case _:
                        after.clear_way(path)
                        after.take(path)
                        after.folders.add(path)
            except FolioboxError:
                pass
        changes: list[FileChange] = [gone(path) for path in model.files if path not in after.files]
        for path, data in after.files.items():
            if model.files.get(path) != data:
                changes.append(await made(space, path, data))

        def predict() -> None:
            dirty = not model.same_as(model.versions[-1]) or space.draft_seq > space.head.draft
            changed = not after.same_as(model)
            model.become(after)
            if changed:
                model.versions = [*model.versions, after.picture()]
            assert dirty or changed or after.same_as(model.versions[-1])

        async def act() -> None:
            await space.commit(changes, synced_seq=space.draft_seq, cause=RUN, links=after.links, folders=after.folders)

        return predict, act

    async def do_restore(self, life: Life, space: Workspace, model: Model) -> tuple[Callable[[], None], object]:
        number = self.dice.randrange(len(model.versions) + 1)
        entries = dict((await space.manifest(number)).files) if number < len(model.versions) else {}

        def predict() -> None:
            if number == len(model.versions):
                raise NotFound("")
            wanted = model.versions[number]
            if not wanted.same_as(model) or entries != dict(space.files):
                model.versions = [*model.versions, wanted.picture()]
            model.become(wanted)

        return predict, lambda: space.restore(number)

    async def do_fork(self, life: Life, space: Workspace, model: Model) -> tuple[Callable[[], None], object]:
        name = f"c{self.dice.randrange(4)}"
        version = self.dice.choice((None, self.dice.randrange(len(model.versions))))

        def predict() -> None:
            if any(one.name == name for one in self.lives):
                raise Conflict("")

        async def act() -> None:
            new = await self.lab.spaces.fork(space, version, name)
            picture = (model if version is None else model.versions[version]).picture()
            forked = replace(picture, versions=[picture.picture()])
            self.lives.append(Life(name, forked, [new, await self.lab.again(name)]))
            await self.check(self.lives[-1], new)
            assert new.head.cause.source == life.name

        return predict, act


@pytest.mark.parametrize("seed", range(12 * int(os.environ.get("FOLIOBOX_REPEAT", "1"))))
def test_a_random_life(seed: int) -> None:
    async def scenario() -> None:
        lab, _ = memory_lab()
        world = World(lab, random.Random(seed))
        await world.begin()
        done = [await world.step() for _ in range(120)]
        await world.check_all()
        assert set(done) == set(KINDS)

    run(scenario())
