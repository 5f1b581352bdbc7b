"""``fetch_file`` and ``fetch_image``: a file of the public web, put into ``downloads/`` as an upload would be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import Field

from runner.conversations.result import Artifact
from runner.egress import content
from runner.egress.content import Kind
from runner.errors import TooLarge, UnsupportedFormat
from runner.model import FileEntry
from runner.tools import naming, twins
from runner.tools.base import Absence, Arguments, Call, Deployment, Tool, ToolResult
from runner.workspace.base import Staging

_SETTING: Final = "SANDBOX_FETCH"
_ZIPPED: Final = frozenset((".docx", ".xlsx", ".pptx", ".odt", ".ods", ".odp", ".epub", ".jar", ".whl", ".zip"))
_OLE: Final = frozenset((".doc", ".xls", ".ppt", ".msg"))
_TEXTS: Final = frozenset((
    ".txt", ".md", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".geojson", ".xml", ".html", ".htm", ".yaml", ".yml",
    ".toml", ".ini", ".py", ".js", ".ts", ".css", ".sql", ".tex", ".bib", ".typ", ".rst", ".log", ".ics", ".vcf",
    ".srt", ".vtt", ".rtf", ".eml", ".svg",
))  # fmt: skip


class FetchArguments(Arguments):
    """Arguments of both."""

    url: str = Field(min_length=1, description="A public http or https address.")
    filename: str | None = Field(None, description="What to call the file; its ending is set by what it is.")


class _Sink:
    """Hands on to a staging, and looks at the first bytes before much has come."""

    def __init__(self, call: Call, staging: Staging, judge: Callable[[Kind], int]) -> None:
        self._call, self._staging, self._judge = call, staging, judge
        self._head = b""
        self._kind: Kind | None = None
        self._size, self._limit = 0, 0

    async def write(self, chunk: bytes) -> None:
        """Raises UnsupportedFormat, TooLarge, StoreFull."""
        self._size += len(chunk)
        if self._kind is None:
            self._head += chunk[: content.HEAD - len(self._head)]
            if len(self._head) == content.HEAD:
                self._decide()
        if self._kind is not None and self._size > self._limit:
            raise _too_large(self._kind, self._limit)
        self._call.service.check_upload()
        await self._staging.write(chunk)

    def _decide(self) -> Kind:
        if self._kind is None:
            self._kind = content.kind_of(self._head)
            self._limit = self._judge(self._kind)
        return self._kind

    def kind(self) -> Kind:
        """What came, once all of it has come. Raises UnsupportedFormat, TooLarge."""
        found = self._decide()
        if self._size > self._limit:
            raise _too_large(found, self._limit)
        return found


def _too_large(kind: Kind, limit: int) -> TooLarge:
    return TooLarge(f"a file of the type {kind.media_type} may have {limit} bytes when it is fetched", limit=limit)


class _Fetch(Tool):
    """What both share."""

    default: str
    arguments = FetchArguments

    def absent(self, deployment: Deployment) -> Absence | None:
        """Only where the operator lets the service itself reach the web."""
        if deployment.fetch.enabled:
            return None
        return Absence("this service does not fetch from the web", f"{_SETTING}=1")

    def limit_of(self, kind: Kind, call: Call) -> int:
        """Bytes that a file of this kind may have. Raises UnsupportedFormat."""
        raise NotImplementedError

    def ending_of(self, kind: Kind, url: str, filename: str | None) -> str:
        """The ending of the file's name."""
        return kind.ending

    async def _store(self, call: Call, arguments: FetchArguments) -> tuple[FileEntry, bool, Kind, str]:
        """Fetch and keep it, durably: the file, whether there was one before, its kind, and where it came from."""
        url, fetching = arguments.url.strip(), call.deployment.fetch
        most = min(max(fetching.image_bytes, fetching.file_bytes), call.upload_bytes)
        call.service.check_upload()
        async with call.service.stage(most) as staging:
            sink = _Sink(call, staging, lambda kind: min(self.limit_of(kind, call), call.upload_bytes))
            fetched = await call.client.fetch(url, sink, most, call.tenant)
            kind = sink.kind()
            ending = self.ending_of(kind, url, arguments.filename)
            path = naming.download(url, arguments.filename, self.default) + ending
            size = (await staging.finish()).size
            home = await call.service.receiving(call.tenant, call.conversation, {path: size})
            existed = path in home.workspace.files
            entry = await home.workspace.put(path, staging)
        return entry, existed, kind, fetched.url

    def _told(self, entry: FileEntry, existed: bool, kind: Kind, url: str) -> tuple[dict[str, Any], Artifact]:
        body = {
            "path": f"/workspace/{entry.path}",
            "media_type": kind.media_type,
            "size": entry.size,
            "url": url,
        }
        return body, Artifact(entry.path, "modified" if existed else "created", entry)


class FetchImage(_Fetch):
    """A picture that Pillow opens, itself or by its twin."""

    name = "fetch_image"
    aliases = ("load_image_url",)
    default = "image"

    def description(self, deployment: Deployment) -> str:
        """For the model."""
        return (
            "Download a picture from a public http(s) address into this conversation. Gives a stable path below "
            "/workspace/downloads/ that code can open with Pillow or put into a document. HEIF, JPEG XL and SVG files "
            "get a PNG beside them, named in `png_path`: open that one. At most "
            f"{deployment.fetch.image_bytes >> 20} MiB; only ports 80 and 443."
        )

    def limit_of(self, kind: Kind, call: Call) -> int:
        """Pictures only."""
        if not kind.is_image:
            raise UnsupportedFormat(f"what is at this address is no picture but {kind.media_type}: see fetch_file")
        return call.deployment.fetch.image_bytes

    async def run(self, call: Call, arguments: FetchArguments) -> ToolResult:
        """Fetch it, and make its twin inside the conversation's sandbox where it needs one."""
        entry, existed, kind, url = await self._store(call, arguments)
        body, artifact = self._told(entry, existed, kind, url)
        call.stored.append(artifact)
        files = [artifact]
        if kind.twin:
            twin = await twins.make(call, entry.path)
            body |= {"png_path": f"/workspace/{twin.path}"}
            files.append(twin)
        opened = body.get("png_path", body["path"])
        text = f"Stored {entry.size} bytes of {kind.media_type} as {body['path']}. Open {opened} with Pillow."
        return ToolResult({**body, "text": text}, files)


class FetchFile(_Fetch):
    """Any file."""

    name = "fetch_file"
    aliases = ("fetch_url", "web_fetch")
    default = "file"

    def description(self, deployment: Deployment) -> str:
        """For the model."""
        fetch = deployment.fetch
        return (
            "Download a file from a public http(s) address into this conversation, under a stable path below "
            f"/workspace/downloads/. At most {fetch.file_bytes >> 20} MiB, text {fetch.text_bytes >> 20} MiB; only "
            "ports 80 and 443. Pages come as they are sent: nothing in them is run."
        )

    def limit_of(self, kind: Kind, call: Call) -> int:
        """Text may have less than anything else."""
        fetch = call.deployment.fetch
        return fetch.text_bytes if kind.is_text else fetch.image_bytes if kind.is_image else fetch.file_bytes

    def ending_of(self, kind: Kind, url: str, filename: str | None) -> str:
        """By content; a name may only say which of the kinds it is that look alike."""
        wanted = naming.ending(filename or "") or naming.ending(naming.last_segment(url))
        families = {content.ZIP.ending: _ZIPPED, ".ole": _OLE, content.PLAIN.ending: _TEXTS}
        return wanted if wanted in families.get(kind.ending, ()) else kind.ending

    async def run(self, call: Call, arguments: FetchArguments) -> ToolResult:
        """Fetch and store it."""
        entry, existed, kind, url = await self._store(call, arguments)
        body, artifact = self._told(entry, existed, kind, url)
        text = f"Stored {entry.size} bytes of {kind.media_type} as {body['path']}."
        return ToolResult({**body, "text": text}, [artifact])
