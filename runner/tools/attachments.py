"""``list_attachments`` and ``zip_attachments``: the files that a conversation holds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from pydantic import AliasChoices, Field

from runner.conversations.result import media_type
from runner.errors import Conflict, InvalidRequest, ToolFailed
from runner.model import FileEntry
from runner.tools import naming, references
from runner.tools.base import Arguments, Call, Deployment, NoArguments, Tool, ToolResult

_MOST: Final = 64
_MOST_LISTED: Final = 500
_MOST_BYTES: Final = 256 << 20
_HEADERS: Final = 1 << 20  # more than an archive has beside names and contents
_FOLDER: Final = 3  # exit status: something else lies where the archive is to be
# What is not yet whole lies where a workspace keeps nothing, unless it would not fit there.
_CODE: Final = """
import os, shutil, sys, tempfile, zipfile
target, members, room = {target!r}, {members!r}, {room}
if os.path.isdir(target):
    sys.exit({folder})
try:
    os.makedirs(os.path.dirname(target), exist_ok=True)
except (FileExistsError, NotADirectoryError):
    sys.exit({folder})
if os.path.islink(target):
    os.unlink(target)
beside = None if shutil.disk_usage(tempfile.gettempdir()).free > room else os.path.dirname(target)
with tempfile.TemporaryDirectory(dir=beside) as folder:
    part = os.path.join(folder, "part.zip")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        for source, name in members:
            archive.write(source, name)
    try:
        shutil.copyfile(part, target) if beside is None else os.replace(part, target)
    except BaseException:
        os.unlink(target)
        raise
"""


class ListAttachments(Tool):
    """An inventory, so that files are used again and not made again."""

    name = "list_attachments"
    arguments = NoArguments

    def description(self, deployment: Deployment) -> str:
        """For the model."""
        return (
            "List this conversation's files, newest first: what was uploaded, fetched and produced, each with the "
            "`path` that other tools take. Look here before you make or fetch something again."
        )

    async def run(self, call: Call, arguments: NoArguments) -> ToolResult:
        """Nothing is opened, only listed."""
        home = await call.service.known(call.tenant, call.conversation)
        found = [] if home is None else references.attachments(home.workspace.files)
        body: dict[str, Any] = {"count": len(found), "attachments": [_item(entry) for entry in found[:_MOST_LISTED]]}
        if len(found) > _MOST_LISTED:
            body["note"] = f"only the newest {_MOST_LISTED} are listed"
        return ToolResult(body)


def _item(entry: FileEntry) -> dict[str, Any]:
    modified = datetime.fromtimestamp(max(0, entry.modified_ns) // 1_000_000_000, UTC)
    return {
        "path": entry.path,
        "id": entry.path,
        "filename": entry.path.rpartition("/")[2],
        "mime": media_type(entry.path),
        "size": entry.size,
        "modified_at": modified.isoformat().replace("+00:00", "Z"),
    }


class ZipArguments(Arguments):
    """Its arguments."""

    either = ("paths", "ids")
    paths: list[str] = Field(
        min_length=1,
        max_length=_MOST,
        validation_alias=AliasChoices("paths", "ids"),
        description="Files of the conversation, as list_attachments or any result names them.",
    )
    filename: str | None = Field(None, max_length=200, description="Of the archive; default attachments.zip.")


class ZipAttachments(Tool):
    """Several files as one."""

    name = "zip_attachments"
    arguments = ZipArguments

    def description(self, deployment: Deployment) -> str:
        """For the model."""
        return (
            f"Put up to {_MOST} files of this conversation, {_MOST_BYTES >> 20} MiB in all, into one .zip below "
            "/workspace/outputs, for the user to download."
        )

    async def run(self, call: Call, arguments: ZipArguments) -> ToolResult:
        """The first reference that leads nowhere is reported. Written inside the sandbox."""
        filename = arguments.filename or "attachments.zip"
        if "/" in filename or "\\" in filename:
            raise InvalidRequest("filename: a name without slashes; the archive is put into outputs/")
        target = f"outputs/{naming.stem(filename, 'attachments')}.zip"
        entries = await _found(call, arguments.paths, target)
        total = sum(entry.size for _, entry in entries)
        if total > _MOST_BYTES:
            raise InvalidRequest(
                f"paths: these files have {total} bytes, the limit is {_MOST_BYTES}", limit=_MOST_BYTES
            )
        members = [(f"/workspace/{entry.path}", name) for name, entry in entries]
        room = total + _HEADERS + 2 * sum(len(name.encode()) for _, name in members)
        result = await call.run_own(
            _CODE.format(target=f"/workspace/{target}", members=members, room=room, folder=_FOLDER)
        )
        if result.exit_code == _FOLDER:
            raise _in_the_way(target)
        made = await call.made(result, target)
        if made is None or made.entry is None:
            raise ToolFailed("the archive could not be written: try again with fewer files", cause=repr(result.error))
        body = {
            "filename": target.rpartition("/")[2],
            "id": target,
            "path": f"/workspace/{target}",
            "mime": "application/zip",
            "size": made.entry.size,
            "entry_count": len(entries),
            "uncompressed_size": total,
            "entries": [{"name": name, "source_id": entry.path, "size": entry.size} for name, entry in entries],
        }
        return ToolResult(body, [made])


async def _found(call: Call, wanted: list[str], target: str) -> list[tuple[str, FileEntry]]:
    """Name in the archive and file, in the order asked for; names that collide get a number. Raises InvalidRequest."""
    home = await call.service.known(call.tenant, call.conversation)
    files = {} if home is None else home.workspace.files
    if "outputs" in files or any(path.startswith(f"{target}/") for path in files):
        raise _in_the_way(target)
    index = await references.index(files)
    found: dict[str, FileEntry] = {}
    for reference in wanted:
        entry = index.find(reference)
        if entry is not None and entry.path == target:
            raise InvalidRequest(f"filename: {reference!a} is the archive itself: choose another `filename`")
        if entry is None:
            raise InvalidRequest(
                f"paths: there is no file {reference!a} to pack: list_attachments names those there are"
            )
        name = entry.path.rpartition("/")[2]
        stem, dot, ending = name.rpartition(".") if "." in name.lstrip(".") else (name, "", "")
        number = 1
        while name in found:
            number += 1
            name = f"{stem}-{number}{dot}{ending}"
        found[name] = entry
    return list(found.items())


def _in_the_way(target: str) -> Conflict:
    return Conflict(
        f"{target} cannot be written, a file or folder is in its way: choose another `filename`, or move it"
    )
