"""Answers of the one-shot surface, field by field (section 1 of its contract)."""

from __future__ import annotations

from tests.conformance.shapes import base64_text, count, either, like, many, null, record, text, truth, whole

NAME = like(r"[^/\\\0]+")
ARTIFACT = record(
    {"name": NAME, "size": count, "mime": like(r"[\w.+-]+/[\w.+-]+"), "content_b64": base64_text},
    {"path": like("[^/].*")},
)
RAN = record(
    {
        "exit_code": whole,
        "stdout": text,
        "stderr": text,
        "duration_ms": count,
        "timed_out": truth,
        "artifacts": many(ARTIFACT),
        "output_truncated": truth,
        "artifacts_truncated": truth,
    },
    {"container_id": either(null, like(".+"))},
)
HEALTH = record({"status": like("ok")}, {"egress": truth})
ERROR = record({"error": like(".+")})
