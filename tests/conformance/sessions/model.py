"""A tiny sessions surface, written from the contract for the kit's own test: what it does not need is not there."""

from __future__ import annotations

import base64
import binascii
import json
import os
import posixpath
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

from tests.conformance.tiny import Answer, run

GONE = (404, {"detail": "session not found or not running"})
INVALID = (422, {"detail": [{"loc": ["body", "session_id"], "msg": "Field required", "type": "missing"}]})
FIELDS = {
    "/exec": ("session_id", "code"),
    "/files": ("session_id", "path", "data_base64"),
    "/files/get": ("session_id", "path"),
    "/files/list": ("session_id",),
    "/files/reset-inputs": ("session_id",),
}


class Refused(Exception):
    """An answer of an error, raised."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.answer: Answer = (status, {"detail": detail})


class SessionsModel:
    """Sessions are folders below ``root``; ``kept`` are workspaces by archive key."""

    def __init__(self, root: Path, key: str, later: bool = True) -> None:
        self.root, self.key, self.later = root, key, later
        self.keys: dict[str, str] = {}

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Status and JSON."""
        if path == "/healthz":
            return 200, {"ok": True, "docker": "", "image": "tiny", "image_ready": True}
        if headers.get("authorization") != f"Bearer {self.key}":
            return 401, {"error": "unauthorized"}
        try:
            return self._answer(method, path, json.loads(body or b"null") or {})
        except Refused as refused:
            return refused.answer

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        if (method, path) == ("POST", "/sessions"):
            return self._create(body)
        if method == "DELETE":
            return self._delete(path.rpartition("/")[2], body)
        if any(type(body.get(name)) is not str for name in FIELDS[path]):
            return INVALID
        session = self._session(body["session_id"])
        if path == "/files/reset-inputs":
            return self._reset(session)
        if not session.is_dir():
            return GONE
        if path == "/exec":
            return self._exec(session, body)
        if path == "/files/list":
            found = sorted(each for each in session.rglob("*") if each.is_file() and not each.is_symlink())
            return 200, {"files": [{"path": str(f.relative_to(session)), "size": f.stat().st_size} for f in found]}
        return self._files(session, path, body)

    def _session(self, session: str) -> Path:
        if not re.fullmatch("[0-9a-f]{32}", session):
            raise Refused(400, "invalid session_id")
        return self.root / session

    def _create(self, body: dict[str, Any]) -> Answer:
        session = self.root / secrets.token_hex(16)
        kept = self.root / f"kept-{body.get('archive_key')}"
        if kept.is_dir():
            shutil.copytree(kept, session)
        for name in ("uploads", "outputs", "skills"):
            (session / name).mkdir(parents=True, exist_ok=True)
        self.keys[session.name] = body.get("archive_key") or ""
        return 200, {"session_id": session.name}

    def _delete(self, name: str, body: dict[str, Any]) -> Answer:
        session = self._session(name)
        kept = self.root / f"kept-{self.keys.get(name)}"
        shutil.rmtree(kept, ignore_errors=True)
        if session.is_dir() and not body.get("discard"):
            shutil.copytree(session, kept, ignore=lambda *_: ["uploads", "skills"])
        shutil.rmtree(session, ignore_errors=True)
        return 200, {"ok": True}

    def _reset(self, session: Path) -> Answer:
        if not session.is_dir():
            return (200, {"ok": False, "session_gone": True}) if self.later else GONE
        for name in ("uploads", "skills"):
            shutil.rmtree(session / name, ignore_errors=True)
            (session / name).mkdir()
        return 200, {"ok": True, **({"session_gone": False} if self.later else {})}

    def _exec(self, session: Path, body: dict[str, Any]) -> Answer:
        limit = max(1000, body.get("timeout_ms") or 120000) / 1000
        outputs = session / "outputs"
        before = {f: f.stat().st_mtime_ns for f in outputs.rglob("*") if f.is_file()}
        code, out, err, late = run(session, "python", body["code"], limit, "/workspace")
        if late:
            code, err = 124, f"{err}\n[sandbox] execution exceeded {limit:.3f}s and was killed"
        made = [f for f in sorted(outputs.rglob("*")) if f.is_file() and f.stat().st_mtime_ns != before.get(f)]
        files = [{"name": f.name, "mime_type": "text/plain", "data_base64": _b64(f.read_bytes())} for f in made]
        return 200, {"stdout": out, "stderr": err, "exit_code": code, "files": files}

    def _files(self, session: Path, route: str, body: dict[str, Any]) -> Answer:
        found = posixpath.normpath(posixpath.join("/workspace", body["path"]))
        if not found.startswith("/workspace/") or "\0" in found:
            raise Refused(400, "path must be under /workspace")
        file = session / found.removeprefix("/workspace/")
        if not os.path.realpath(file).startswith(os.path.realpath(session) + "/"):
            raise Refused(400, "path resolves outside /workspace")
        if route == "/files/get":
            if not file.is_file():
                raise Refused(404, "file not found")
            return 200, {"data_base64": _b64(file.read_bytes())}
        try:
            data = base64.b64decode(body["data_base64"].encode("ascii"), validate=True)
        except (UnicodeEncodeError, binascii.Error):
            raise Refused(400, "invalid base64") from None
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return 200, {"ok": True}


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
