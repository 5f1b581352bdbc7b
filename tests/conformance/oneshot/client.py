"""What the one-shot gateway's client does: the body of a run, its patience, and the four ways a call can fail."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.conformance.oneshot import shapes
from tests.conformance.shapes import Unlike, hold

PATIENCE_S = 120  # the gateway's `timeout_secs`
ANSWER_CAP = 768 << 20
STAGED_CAP = 50 << 20


class Failed(Exception):
    """A call that failed, as the model is told. ``kind``: unreachable, unreadable, refused, or unlike."""

    def __init__(self, kind: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.kind, self.status = kind, status


@dataclass
class Artifact:
    """One file that came back; ``path`` is its own when that is not the flat name."""

    name: str
    path: str
    mime: str
    data: bytes


@dataclass
class Ran:
    """An answer of 200 whose types have been held to the contract."""

    raw: dict[str, Any]

    @property
    def artifacts(self) -> dict[str, Artifact]:
        """By flat name. Raises Unlike when two have one name, a size is wrong, or ``path`` is told for nothing."""
        found: dict[str, Artifact] = {}
        for each in self.raw["artifacts"]:
            data = base64.b64decode(each["content_b64"])
            problems = [each["name"] in found, len(data) != each["size"], each.get("path") == each["name"]]
            if any(problems):
                raise Unlike(f"name twice, size wrong, path needless: {problems} of {each['name']}")
            found[each["name"]] = Artifact(each["name"], each.get("path", each["name"]), each["mime"], data)
        return found

    @property
    def container(self) -> str | None:
        """The lease, when there is one."""
        found: str | None = self.raw.get("container_id")
        return found

    @property
    def paths(self) -> dict[str, str]:
        """Flat name by the file's own path."""
        return {each.path: name for name, each in self.artifacts.items()}


def staged(files: dict[str, bytes]) -> list[dict[str, str]]:
    """Files as they travel."""
    return [{"name": name, "content_b64": base64.b64encode(data).decode()} for name, data in files.items()]


@dataclass
class OneshotClient:
    """No key is sent: that gateway has none."""

    url: str
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_S)

    def close(self) -> None:
        """Let the connections go."""
        self.http.close()

    def post(self, body: Any, raw: bytes | None = None) -> httpx.Response:
        """``POST /run`` as it is."""
        content = json.dumps(body).encode() if raw is None else raw
        return self.http.post("/run", content=content, headers={"Content-Type": "application/json"})

    def run(self, language: str, code: str, files: dict[str, bytes] | None = None, **fields: Any) -> Ran:
        """One run. Raises Failed."""
        body = {"language": language, "code": code, "files": staged(files or {}), "timeout_secs": None,
                "network": False, "container_id": None, "keep_alive": False, **fields}  # fmt: skip
        try:
            answer = self.post(body)
        except httpx.TransportError as error:
            raise Failed("unreachable", str(error)) from error
        if not answer.is_success:
            raise Failed("refused", self.reason(answer), answer.status_code)
        if answer.status_code != 200 or len(answer.content) > ANSWER_CAP:
            raise Failed("unreadable", f"{answer.status_code}, {len(answer.content)} bytes")
        try:
            return Ran(hold(shapes.RAN, answer.json(), "POST /run"))
        except (ValueError, Unlike) as error:
            raise Failed("unlike", str(error)) from error

    @staticmethod
    def reason(answer: httpx.Response) -> str:
        """The text of ``RunError``, whatever the status."""
        return str(hold(shapes.ERROR, answer.json(), f"status {answer.status_code}")["error"])

    def release(self, container: str) -> None:
        """``DELETE /container/{id}``: 204 without a body, always."""
        answer = self.http.delete(f"/container/{container}")
        assert (answer.status_code, answer.content) == (204, b""), answer.text

    def probe(self) -> bool | None:
        """Whether the runner has egress: yes, no, or unknown, which counts as yes. A failed probe is unknown."""
        try:
            answer = self.http.get("/healthz")
            body = hold(shapes.HEALTH, answer.json(), "GET /healthz")
        except (httpx.TransportError, ValueError, Unlike):
            return None
        found: bool | None = body.get("egress")
        return found
