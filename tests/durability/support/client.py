"""A client that notes in a ledger what it asks for and what it was promised."""

from __future__ import annotations

import hashlib
import io
import json
import secrets
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from tests.durability.support.ledger import Effect, Ledger
from tests.support.runner import quote

Changes = Mapping[str, bytes | str | None]


class Client:
    """One conversation. Every request has an id of its own, by which a trace knows its answer again."""

    def __init__(self, http: httpx.Client, ledger: Ledger, conversation: str) -> None:
        self.http, self.ledger, self.id = http, ledger, conversation
        self.started: list[str] = []  # executions of which the service said that they began
        self.finished: dict[str, str] = {}  # executions whose outcome was told
        self.odd: list[str] = []  # results that are not as they should be
        self.keyed: tuple[str, str] | None = None

    def put(self, path: str, data: bytes) -> httpx.Response:
        """Upload."""
        return self._ask({path: data}, lambda headers: self._at("PUT", f"files/{quote(path)}", headers, content=data))

    def delete(self, path: str) -> httpx.Response:
        """Delete a file."""
        return self._ask({path: None}, lambda headers: self._at("DELETE", f"files/{quote(path)}", headers))

    def bulk(self, files: Mapping[str, bytes]) -> httpx.Response:
        """Many files in one request, as a tar stream."""
        body = tar(files)

        def send(headers: dict[str, str]) -> httpx.Response:
            return self._at("POST", "files", {**headers, "Content-Type": "application/x-tar"}, content=body)

        return self._ask(files, send)

    def run(self, code: str, changes: Changes, key: str | None = None) -> dict[str, Any]:
        """A run that must be ``ok`` and leave exactly these changes; with ``key`` it can be sent again."""
        body: dict[str, Any] = {}
        self.keyed = None if key is None else (code, key)

        def send(headers: dict[str, str]) -> httpx.Response:
            if key is not None:
                headers = {**headers, "Idempotency-Key": key}
            response = self._at("POST", "execute", headers, json={"code": code})
            body.update(response.json())
            return response

        self._ask(changes, send)
        if "execution_id" in body:
            self.finished[body["execution_id"]] = body["outcome"]
            self.odd += [json.dumps(body)] if body["outcome"] != "ok" or body["files_error"] else []
        return body

    def stream(self, code: str, changes: Changes) -> None:
        """The same with events: ``done`` acknowledges."""
        effect = self.ledger.begin(self.id, changes)
        url = f"/v1/conversations/{self.id}/execute"
        headers = {"Accept": "text/event-stream"}
        with self.http.stream("POST", url, json={"code": code}, headers=headers) as response:
            kind = ""
            for line in response.iter_lines():
                if line.startswith("event:"):
                    kind = line[6:].strip()
                elif line.startswith("data:"):
                    execution = json.loads(line[5:])["execution_id"]
                    if kind == "started":
                        self.started.append(execution)
                    elif kind == "done":
                        effect.name = f"{execution}:done"
                        self.finished[execution] = json.loads(line[5:])["result"]["outcome"]

    def again(self) -> str | None:
        """Send the last run with a key again, as a client does that had no answer; gives the outcome."""
        if self.keyed is None:
            return None
        code, key = self.keyed
        response = self._at("POST", "execute", {"Idempotency-Key": key}, json={"code": code})
        assert response.status_code == 200, response.text
        body = response.json()
        assert self.finished.get(body["execution_id"]) in (None, body["outcome"])
        return str(body["outcome"])

    def restore(self, version: int, changes: Changes) -> httpx.Response:
        """Back to a version; the caller knows what that changes."""
        return self._ask(changes, lambda headers: self._at("POST", "restore", headers, json={"version": version}))

    def move(self, source: str, target: str, data: bytes) -> httpx.Response:
        """Move a file."""
        body = {"from": source, "to": target}
        return self._ask({source: None, target: data}, lambda headers: self._at("POST", "moves", headers, json=body))

    def purge(self) -> httpx.Response:
        """Delete the conversation."""
        return self._ask({}, lambda headers: self._at("DELETE", "", headers), purges=True)

    def files(self) -> dict[str, str] | None:
        """Every file with the SHA-256 of the bytes that are served; None where there is no conversation."""
        return files(self.http, self.id)

    def _ask(
        self,
        changes: Changes,
        send: Callable[[dict[str, str]], httpx.Response],
        *,
        purges: bool = False,
    ) -> httpx.Response:
        effect: Effect = self.ledger.begin(self.id, changes, purges=purges)
        name = secrets.token_hex(12)
        response = send({"X-Request-Id": name})
        if response.is_success:
            effect.name = name
        elif response.is_client_error:
            self.ledger.refuse(effect)
        return response

    def _at(self, method: str, rest: str, headers: dict[str, str], **body: Any) -> httpx.Response:
        url = f"/v1/conversations/{self.id}" + (f"/{rest}" if rest else "")
        return self.http.request(method, url, headers=headers, **body)


def files(http: httpx.Client, conversation: str) -> dict[str, str] | None:
    """What a conversation serves: path to the SHA-256 of the bytes, None where there is none."""
    found: dict[str, str] = {}
    after: str | None = None
    while True:
        query: dict[str, str | int] = {"limit": 1000, **({"after": after} if after else {})}
        listing = http.get(f"/v1/conversations/{conversation}/files", params=query)
        if listing.status_code == 404:
            return None
        assert listing.status_code == 200, listing.text
        for entry in listing.json()["files"]:
            response = http.get(f"/v1/conversations/{conversation}/files/{quote(entry['path'])}")
            assert response.status_code == 200, response.text
            digest = hashlib.sha256(response.content).hexdigest()
            assert digest == entry["sha256"] == response.headers["etag"].strip('"')
            found[entry["path"]] = digest
        after = listing.json()["next"]
        if after is None:
            return found


def outcome(http: httpx.Client, conversation: str, execution: str) -> str:
    """How a run ended, as the service has it on record. A run that is on record has one."""
    response = http.get(f"/v1/conversations/{conversation}/executions/{execution}")
    assert response.status_code == 200, response.text
    result = response.json()["result"]
    assert result, response.text
    found: str = result["outcome"]
    return found


def tar(files: Mapping[str, bytes]) -> bytes:
    """Files as a tar stream."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, data in files.items():
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()
