"""Puts the files that a call names beside its program: attachments, then documents, then inline text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import AliasChoices, Field

from runner.conversations.result import Artifact
from runner.errors import FolioboxError
from runner.tools import references
from runner.tools.base import Call, Shape
from runner.workspace import paths

_ENDINGS: Final = {
    "markdown": ".md", "text": ".txt", "html": ".html", "json": ".json", "toml": ".toml", "yaml": ".yaml",
    "typst": ".typ",
}  # fmt: skip
_MOST_DOCUMENT: Final = 512 << 10


class TextFile(Shape):
    """A text that the call brings."""

    name: str = Field(min_length=1, max_length=1024)
    content: str


class Reference(Shape):
    """A file that the conversation holds; ``name`` is where it is put."""

    either = ("path", "id")
    path: str = Field(min_length=1, max_length=4096, validation_alias=AliasChoices("path", "id"))
    name: str | None = Field(None, max_length=1024)


class Document(Shape):
    """A canvas document. Its content comes with the call: gateways keep it."""

    document_id: str = Field(min_length=1, max_length=256)
    version: int | None = None
    title: str = Field("", max_length=1024)
    format: str = "text"
    content: str | None = Field(None, max_length=_MOST_DOCUMENT)
    name: str | None = Field(None, max_length=1024)


@dataclass
class Staged:
    """What was put there, and what could not be."""

    files: list[Artifact] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    documents: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """As keys of a result; those with nothing in them are left out."""
        named = {
            "staged_files": self.attachments,
            "staged_documents": self.documents,
            "attachment_notes": self.notes,
        }
        return {name: value for name, value in named.items() if value}


async def stage(
    call: Call, attachments: Sequence[Reference], documents: Sequence[Document], files: Sequence[TextFile]
) -> Staged:
    """Put them into the workspace; a later one of the same name wins. Raises InvalidPath for a name that is none.

    What cannot be found becomes a note, not an error.
    """
    staged, texts = Staged(), dict[str, str]()
    for name in [*(item.name for item in attachments), *(item.name for item in documents)]:
        paths.normalise(name or "x")  # before anything is done
    if attachments:
        await _copy(call, attachments, staged)
    for document in documents:
        if document.content is None:
            staged.notes.append(f"{document.document_id}: send its `content` with the call; it is kept by the gateway")
            continue
        ending = _ENDINGS.get(document.format, ".txt")
        name = paths.normalise(document.name or (references.slug(document.title) or "document") + ending)
        texts[name] = document.content
        staged.documents.append({"document_id": document.document_id, "version": document.version, "name": name})
    for item in files:
        texts[paths.normalise(item.name)] = item.content
    if texts:
        await _write(call, texts, staged)
    return staged


async def _copy(call: Call, attachments: Sequence[Reference], staged: Staged) -> None:
    """By hash: no byte is moved."""
    home = await call.service.known(call.tenant, call.conversation)
    index = await references.index({} if home is None else home.workspace.files)
    for item in attachments:
        found = index.find(item.path)
        if home is None or found is None:
            staged.notes.append(
                f"{paths.shown(item.path)}: there is no such file; list_attachments names those there are"
            )
            continue
        name = paths.normalise(item.name or found.path.rpartition("/")[2])
        if name != found.path:
            try:
                existed = name in home.workspace.files
                entry = await home.workspace.put_known(name, found.sha256)
            except FolioboxError as error:
                staged.notes.append(f"{paths.shown(item.path)}: {error.detail}")
                continue
            staged.files.append(Artifact(name, "modified" if existed else "created", entry))
            call.stored.append(staged.files[-1])
        staged.attachments.append({"name": name, "id": found.path, "size": found.size})


async def _write(call: Call, texts: dict[str, str], staged: Staged) -> None:
    """All of them, or none."""
    contents = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
    call.service.check_upload(sum(map(len, contents.values())))
    async with AsyncExitStack() as stack:
        items = []
        for name, content in contents.items():
            upload = await stack.enter_async_context(call.service.stage(call.upload_bytes))
            await upload.write(content)
            await upload.finish()
            items.append((name, upload))
        home = await call.service.receiving(call.tenant, call.conversation, {n: len(c) for n, c in contents.items()})
        before = set(home.workspace.files)
        entries = await home.workspace.put_many(items)
    written = [Artifact(e.path, "modified" if e.path in before else "created", e) for e in entries]
    staged.files += written
    call.stored.extend(written)
