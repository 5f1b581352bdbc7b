"""The decoded state of a conversation in memory: newest version, draft on top, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runner.workspace.codec import Encoded, replay
from runner.workspace.drafts import DraftEntry
from runner.workspace.manifest import Delta, Manifest
from runner.workspace.reuse import BlobIndex
from runner.workspace.tree import Tree


class State:
    """``tree`` is always ``head`` with ``unfolded`` on top; ``seq`` is the newest draft entry known.

    Where much changes at once, that happens to a ``copy`` beside the loop, which then takes the place of this one.
    ``blobs`` they share: what it says is true at each step.
    """

    def __init__(self, head: Manifest, unfolded: Sequence[DraftEntry], blobs: BlobIndex) -> None:
        self.head = head
        self.unfolded: list[DraftEntry] = []
        self.seq = head.draft
        self.tree = Tree.of(head)
        self._base = self.tree.copy()  # the files of ``head`` alone
        self.blobs = blobs
        for entry in head.files.values():
            blobs.keep(entry)
        for draft in unfolded:
            self.add_draft(draft)

    @classmethod
    def build(cls, chain: Iterable[tuple[str, Encoded]], drafts: Sequence[DraftEntry]) -> State:
        """From what the store holds: the manifests that lead to the newest version, and all later drafts."""
        blobs = BlobIndex()
        head = replay(chain, blobs.retire)
        return cls(head, [draft for draft in drafts if draft.seq > head.draft], blobs)

    def copy(self) -> State:
        """An independent one, but for ``blobs``."""
        twin = State.__new__(State)
        twin.__dict__.update(self.__dict__)
        twin.unfolded = self.unfolded.copy()
        twin.tree = self.tree.copy()
        return twin

    def with_drafts(self, drafts: Iterable[DraftEntry]) -> State:
        """A copy with more draft entries on top."""
        twin = self.copy()
        for draft in drafts:
            twin.add_draft(draft)
        return twin

    def advanced(self, head: Manifest, delta: Delta, base: Tree, tree: Tree) -> State:
        """A copy that has done ``advance``."""
        twin = self.copy()
        twin.advance(head, delta, base, tree)
        return twin

    def add_draft(self, draft: DraftEntry) -> None:
        """Lay one more draft entry on top."""
        for path, _ in draft.changes:
            old = self.tree.get(path)
            if old is not None and self.head.files.get(path) != old:
                self.blobs.forget(old)
        self.tree.apply((draft,))
        for entry in draft.puts:
            self.blobs.keep(entry)
        self.unfolded.append(draft)
        self.seq = draft.seq

    def newer(self, fold: int) -> list[DraftEntry]:
        """Draft entries that a fold up to ``fold`` leaves on top."""
        return [draft for draft in self.unfolded if draft.seq > fold]

    def folded(self, fold: int) -> Tree:
        """A tree of one's own: the newest version with the draft up to ``fold``."""
        if fold >= self.seq:
            return self.tree.copy()
        tree = self._base.copy()
        tree.apply(draft for draft in self.unfolded if draft.seq <= fold)
        return tree

    def advance(self, head: Manifest, delta: Delta, base: Tree, tree: Tree) -> None:
        """``head`` is the newest version now, ``delta`` from the last; ``base`` has its files, ``tree`` the current.

        Both are kept, so nobody else may change them.
        """
        before = self.head
        for draft in self.unfolded:
            if draft.seq <= head.draft:
                for entry in draft.puts:
                    if head.files.get(entry.path) != entry:
                        self.blobs.forget(entry)
        for path in (*delta.removed, *(entry.path for entry in delta.put)):
            old = before.files.get(path)
            if old is not None:
                self.blobs.retire(old, before.version)
        for entry in delta.put:
            self.blobs.keep(entry)
        self.head = head
        self.unfolded = self.newer(head.draft)
        self.seq = max(self.seq, head.draft)
        for draft in self.unfolded:
            for entry in draft.puts:
                if tree.get(entry.path) == entry:
                    self.blobs.keep(entry)
        self._base, self.tree = base.copy(), tree
