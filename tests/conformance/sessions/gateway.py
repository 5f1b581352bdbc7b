"""A model of the sessions gateway: one conversation's calls, with what it does about lost and busy sessions.

Two generations are in the field. The base one finds a lost session by words of the error's text; the later one reads
the status, takes ``session is busy`` as lost too, and lets one call of a conversation run at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeVar

from tests.conformance.sessions.client import Ran, SandboxError, SessionGone, SessionsClient

STREAM_CAP = 32768
CUT = "\n…[output truncated at 32KB]"
UPLOAD_CAP = 40 << 20
GONE = ("session not found", "no such session", "session_gone")
T = TypeVar("T")


class Busy(Exception):
    """What the later gateway tells its user for a 429 that it does not recover from."""


@dataclass
class Turn:
    """The text for the model and the artifacts for the user."""

    text: str
    ran: Ran

    @property
    def artifacts(self) -> dict[str, bytes]:
        """Bytes by name; two of one name are two in ``ran.files``."""
        return {name: data for name, _, data in self.ran.files}


@dataclass
class Conversation:
    """What the gateway keeps of one conversation, and the calls of its tools."""

    client: SessionsClient
    id: str
    storage: dict[str, str] | None = None
    idle_ttl_sec: int = 0
    uploads: list[tuple[str, bytes]] = field(default_factory=list)
    generated: list[tuple[str, bytes]] = field(default_factory=list)
    skills: list[tuple[str, str, bytes]] = field(default_factory=list)
    sandbox_id: str = ""
    created: list[str] = field(default_factory=list)
    mutex: Any = field(default_factory=threading.Lock)
    gate: Any = field(default_factory=threading.Lock)

    def python(self, code: str) -> Turn:
        """``python_execute``: session, inputs staged anew, run; a lost session is replaced once a step."""
        with self.gate if self.client.later else contextlib.nullcontext():
            session = self._session()
            session, _ = self._recovering(session, self._stage)
            _, ran = self._recovering(session, lambda found: self.client.exec(found, code), again=self._stage)
        return Turn(self._text(ran), ran)

    def fetch_image(self, url: str, data: bytes, name: str = "photo") -> str:
        """``fetch_image``: the gateway's own download, written beside the other files."""
        path = f"/workspace/downloads/{name}-{hashlib.sha256(url.encode()).hexdigest()[:8]}.png"
        self._recovering(self._session(), lambda session: self.client.put(session, path, data))
        return path

    def clear(self) -> None:
        """An administrator's "clear": the workspace and its archive go, the id is forgotten."""
        self.client.delete(self.sandbox_id, storage=self.storage, discard=True, archive_key=self.id)
        self.sandbox_id = ""

    def release(self) -> None:
        """The plain release: archived, and no archive key in the body."""
        self.client.delete(self.sandbox_id, storage=self.storage)
        self.sandbox_id = ""

    def _session(self) -> str:
        with self.mutex:
            if not self.sandbox_id:
                self.sandbox_id = self.client.create(
                    archive_key=self.id, storage=self.storage, idle_ttl_sec=self.idle_ttl_sec
                )
                self.created.append(self.sandbox_id)
            return self.sandbox_id

    def _replace(self, lost: str) -> str:
        """A new session in the place of a lost one, or the one that a neighbour call has put there since."""
        with self.mutex:
            if self.sandbox_id == lost:
                self.sandbox_id = ""
        return self._session()

    def _recovering(
        self, session: str, step: Callable[[str], T], again: Callable[[str], object] | None = None
    ) -> tuple[str, T]:
        try:
            return session, step(session)
        except (SandboxError, SessionGone) as error:
            if not self._lost(error):
                if self.client.later and isinstance(error, SandboxError) and error.status == 429:
                    raise Busy(error.body) from error
                raise
        session = self._replace(session)
        if again:
            again(session)
        return session, step(session)

    def _lost(self, error: Exception) -> bool:
        if isinstance(error, SessionGone):
            return True
        assert isinstance(error, SandboxError)
        said = str(error).lower()
        if not self.client.later:
            return "sandbox 404" in said or any(word in said for word in GONE)
        body = error.body.lower()
        if error.status == 429:
            return "session is busy" in body
        named = any(word in body for word in GONE) or ("session" in body and "not running" in body)
        return error.status == 404 and named

    def _stage(self, session: str) -> None:
        """Inputs again, on every call: reset, uploads oldest first, generated images, assets of skills."""
        self.client.reset_inputs(session)
        taken: set[str] = set()
        for name, data in self.uploads:
            if len(data) <= UPLOAD_CAP:
                self.client.put(session, f"/workspace/uploads/{_free(PurePosixPath(name).name, taken)}", data)
        for name, data in self.generated:
            with contextlib.suppress(SandboxError):
                self.client.put(session, f"/workspace/uploads/generated-{name}", data)
        for skill, name, data in self.skills:
            with contextlib.suppress(SandboxError):
                self.client.put(session, f"/workspace/skills/{skill}/{name}", data)

    @staticmethod
    def _text(ran: Ran) -> str:
        parts = [
            f"{name}:\n{_cut(stream)}\n" for name, stream in (("stdout", ran.stdout), ("stderr", ran.stderr)) if stream
        ]
        if ran.files:
            parts.append("\nProduced files:\n" + "".join(f"- {name} ({mime})\n" for name, mime, _ in ran.files))
        return "".join(parts) or "(no output)"


def _free(name: str, taken: set[str]) -> str:
    stem, suffix = PurePosixPath(name).stem, PurePosixPath(name).suffix
    number = 2
    found = name
    while found in taken:
        found, number = f"{stem}-{number}{suffix}", number + 1
    taken.add(found)
    return found


def _cut(stream: str) -> str:
    data = stream.encode()
    return stream if len(data) <= STREAM_CAP else data[:STREAM_CAP].decode(errors="replace") + CUT
