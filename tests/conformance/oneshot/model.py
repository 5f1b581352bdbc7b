"""A tiny one-shot surface, written from the contract for the kit's own test: what it does not need is not there."""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from tests.conformance.tiny import Answer, run

SKIPPED = ("node_modules", "__pycache__", "site-packages", "venv")
OFFICE = "application/vnd.openxmlformats-officedocument."
MIMES = {
    ".txt": "text/plain", ".csv": "text/csv", ".pdf": "application/pdf", ".png": "image/png", ".gif": "image/gif",
    ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml", ".webp": "image/webp", ".md": "text/markdown",
    ".json": "application/json", ".html": "text/html", ".zip": "application/zip", ".mp4": "video/mp4",
    ".mp3": "audio/mpeg", ".docx": f"{OFFICE}wordprocessingml.document", ".xlsx": f"{OFFICE}spreadsheetml.sheet",
    ".pptx": f"{OFFICE}presentationml.presentation",
}  # fmt: skip
STREAM = 65536
CAP = 64
TYPES: dict[str, tuple[type, ...]] = {
    "language": (str,), "code": (str,), "files": (list,), "timeout_secs": (int, type(None)), "network": (bool,),
    "container_id": (str, type(None)), "keep_alive": (bool,),
}  # fmt: skip


class OneshotModel:
    """Leases are folders below ``root``."""

    def __init__(self, root: Path, egress: bool | None = False) -> None:
        self.root, self.egress = root, egress

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Answer:
        """Status and JSON."""
        if path == "/healthz":
            return 200, {"status": "ok", **({} if self.egress is None else {"egress": self.egress})}
        if method == "DELETE":
            name = path.rpartition("/")[2]
            if name.startswith("sbx-"):
                shutil.rmtree(self.root / name, ignore_errors=True)
            return 204, None
        try:
            asked = json.loads(body)
            known = type(asked) is dict and asked.get("language") in ("python", "bash") and "code" in asked
            typed = known and all(type(asked[name]) in kinds for name, kinds in TYPES.items() if name in asked)
            if not typed or any(set(f) < {"name", "content_b64"} for f in asked.get("files", [])):
                raise ValueError("not a request for a run")
        except (ValueError, TypeError) as error:
            return 400, {"error": str(error) or "unreadable"}
        return self._run(asked)

    def _run(self, asked: dict[str, Any]) -> Answer:
        lease = self.root / (asked.get("container_id") or "-")
        kept = lease.is_dir()
        if not kept:
            if asked.get("network") and not self.egress:
                return 400, {"error": "no network here: try again with network off, and do not install packages"}
            lease = self.root / f"sbx-{secrets.token_hex(8)}"
            lease.mkdir()
        try:
            staged = self._stage(lease, asked.get("files", []))
        except ValueError as error:
            refusal = {"exit_code": 2, "stderr": f"sandbox-agent: {error}", "duration_ms": 0}
            return 200, self._end(lease, refusal, [], kept or bool(asked.get("keep_alive")))
        before = {each: (each.stat().st_mtime_ns, each.stat().st_size) for each in lease.rglob("*") if each.is_file()}
        limit = min(300, max(1, asked.get("timeout_secs") or 60))
        code, out, err, late = run(lease, asked["language"], asked["code"], limit, "/work")
        done: dict[str, Any] = {"exit_code": code, "duration_ms": 1000 * limit if late else 1, "timed_out": late}
        done |= {"stdout": out, "stderr": err + (f"\nended after {limit} s" if late else "")}
        for stream in ("stdout", "stderr"):
            if len(done[stream]) > STREAM:
                text = done[stream]
                done[stream] = text[:39321] + f"\n[{len(text) - STREAM} bytes left out]\n" + text[-26215:]
                done["output_truncated"] = True
            if len(done[stream]) > STREAM // 2:
                (lease / f"{stream}.txt").write_text(out if stream == "stdout" else err)
        found = self._found(lease, staged, before)
        return 200, self._end(lease, done, found, not late and (kept or bool(asked.get("keep_alive"))))

    @staticmethod
    def _stage(lease: Path, files: list[dict[str, str]]) -> set[str]:
        for each in files:
            if each["name"] in ("", ".", "..") or "/" in each["name"] or "\\" in each["name"]:
                raise ValueError(f"unsafe name {each['name']!r}")
            try:
                (lease / each["name"]).write_bytes(base64.b64decode(each["content_b64"]))
            except binascii.Error as error:
                raise ValueError(f"{each['name']}: {error}") from error
        return {each["name"] for each in files}

    @staticmethod
    def _found(lease: Path, staged: set[str], before: dict[Path, tuple[int, int]]) -> list[Path]:
        found = []
        for at, folders, names in os.walk(lease):
            depth = len(Path(at).relative_to(lease).parts)
            folders[:] = sorted(f for f in folders if f[0] != "." and f not in SKIPPED and depth < 8)
            for file in (Path(at, name) for name in sorted(names)):
                if file.is_symlink() or not file.is_file() or not file.stat().st_size or file.name in staged:
                    continue
                if before.get(file) != (file.stat().st_mtime_ns, file.stat().st_size):
                    found.append(file)
        return found

    def _end(self, lease: Path, done: dict[str, Any], found: list[Path], keep: bool) -> dict[str, Any]:
        artifacts, taken = [], {str(each.relative_to(lease)) for each in found if each.parent == lease}
        for file in found[:CAP]:
            path = str(file.relative_to(lease))
            name, number = path.replace("/", "-"), 2
            while name in taken and path != name:
                base = Path(path.replace("/", "-"))
                name, number = f"{base.stem}-{number}{base.suffix}", number + 1
            taken.add(name)
            data = file.read_bytes()
            artifacts.append(
                {"name": name, "size": len(data), "mime": MIMES.get(file.suffix, "application/octet-stream"),
                 "content_b64": base64.b64encode(data).decode(), **({} if name == path else {"path": path})}
            )  # fmt: skip
        if not keep:
            shutil.rmtree(lease)
        empty = {"stdout": "", "stderr": "", "timed_out": False, "output_truncated": False}
        return {**empty, **done, "artifacts": artifacts, "artifacts_truncated": len(found) > CAP,
                "container_id": lease.name if keep else None}  # fmt: skip
