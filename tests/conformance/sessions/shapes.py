"""Answers of the sessions surface, field by field (section 3 of its contract)."""

from __future__ import annotations

from tests.conformance.shapes import (
    base64_text,
    count,
    either,
    like,
    many,
    null,
    record,
    text,
    true,
    truth,
    whole,
)

SESSION = like("[0-9a-f]{32}")
HEALTH = record({"ok": truth, "docker": text, "image": text}, {"image_ready": truth})
CREATED = record({"session_id": SESSION})
FILE = record({"name": like("[^/\0]+"), "mime_type": like(r"[\w.+-]+/[\w.+-]+(;.*)?"), "data_base64": base64_text})
EXEC = record({"stdout": text, "stderr": text, "exit_code": whole, "files": many(FILE)})
DONE = record({"ok": true})
READ = record({"data_base64": base64_text})
LISTED = record({"files": many(record({"path": like("[^/].*"), "size": count}))})
RESET = record({"ok": truth}, {"session_gone": truth})
DELETED = record({"ok": true})
PUT = record({"provider": text, "key": text, "url": like("https?://.+"), "expires_in": count})
REMOVED = record({"ok": true, "key": text})
SWEPT = record({"deleted": count, "scanned": count, "freed_bytes": count})
DETAIL = record({"detail": text})
INVALID = record({"detail": many(record({"loc": many(either(text, whole)), "msg": text, "type": text}))})
ERROR = record({"error": text})
NOTHING = null
