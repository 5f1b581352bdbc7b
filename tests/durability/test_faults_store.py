"""Faults of what the store holds: lost and damaged objects, planted orphans, a thousand conversations at a restart."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from runner.api.config import TENANT
from tests.durability.conftest import Tell
from tests.durability.support import service
from tests.durability.support.client import Client, files
from tests.durability.support.ledger import Ledger, sha
from tests.hostile.support import outside
from tests.unit.workspace.workspace_lab import cut, lab, put

IDLE = 1000
RESTART_S = 3.0


def fill(data: Path, *names: str, runs: int = 3) -> None:
    """Conversations with an upload, some versions, and an upload that no version holds."""

    async def work() -> None:
        async with lab(data) as at:
            for name in names:
                space, _ = await at.spaces.create(TENANT, name)
                await put(space, "kept", f"kept of {name}".encode())
                for number in range(runs):
                    await cut(space, f"made-{number}", f"{name} {number}".encode())
                await put(space, "draft", f"draft of {name}".encode())

    asyncio.run(work())


def objects(data: Path, conversation: str, kind: str) -> list[Path]:
    """Objects of a conversation of one kind, in order."""
    return sorted(
        path for path in data.rglob("*.json") if f"/c/{conversation}/" in str(path) and f"/{kind}/" in str(path)
    )


def told(response: httpx.Response) -> None:
    """A clear error of the store, for one conversation."""
    assert response.status_code == 503, f"{response.status_code} {response.text}"
    body = response.json()
    assert body["code"] == "store_failed"
    assert "backup" in body["detail"] or "lost" in body["detail"], body


def test_a_lost_blob_is_a_clear_error(tmp_path: Path, tell: Tell) -> None:
    """Fault 12: that file cannot be had and says so; all others can."""
    data = tmp_path / "data"
    fill(data, "lossy")
    [blob] = [path for path in data.rglob(f"{sha(b'kept of lossy')}*") if path.is_file()]
    blob.unlink()
    with service.running(data, SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
        told(http.get("/v1/conversations/lossy/files/kept"))
        assert http.get("/v1/conversations/lossy/files/draft").content == b"draft of lossy"
        listed = http.get("/v1/conversations/lossy/files").json()["files"]
        assert {entry["path"] for entry in listed} == {"kept", "draft", "made-0", "made-1", "made-2"}
        assert http.put("/v1/conversations/lossy/files/kept", content=b"new").status_code == 200
        assert http.get("/v1/conversations/lossy/files/kept").content == b"new"
    tell("1 blob lost: 503 store_failed for it alone, and a new upload mends it")


def test_a_damaged_blob_is_never_served_as_whole(tmp_path: Path, tell: Tell) -> None:
    """Fault 12: bytes that are not those of the hash end in an error, not in a complete answer."""
    data = tmp_path / "data"
    fill(data, "lossy")
    [blob] = [path for path in data.rglob(f"{sha(b'kept of lossy')}*") if path.is_file()]
    blob.write_bytes(b"KEPT of lossy")
    with service.running(data, SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
        try:
            response = http.get("/v1/conversations/lossy/files/kept")
        except httpx.RemoteProtocolError:
            pass  # cut before its end
        else:
            assert response.status_code == 503, response.content
    tell("1 blob with a changed byte: no complete answer")


LOSSES: dict[str, Callable[[Path], list[Path]]] = {
    "the first version": lambda data: objects(data, "lossy", "v")[:1],
    "a version in the middle": lambda data: objects(data, "lossy", "v")[2:3],
    "all versions": lambda data: objects(data, "lossy", "v"),
}


@pytest.mark.parametrize("what", LOSSES)
def test_lost_versions_are_never_an_empty_workspace(tmp_path: Path, what: str, tell: Tell) -> None:
    """Fault 12."""
    data = tmp_path / "data"
    fill(data, "lossy", "whole")
    lost = LOSSES[what](data)
    assert lost
    for path in lost:
        path.unlink()
    with service.running(data, SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
        told(http.get("/v1/conversations/lossy/files"))
        told(http.put("/v1/conversations/lossy/files/new", content=b"new"))
        told(http.get("/v1/conversations/lossy/files"))
        assert len(files(http, "whole") or {}) == 5
    tell(f"lost: {what}: 503 store_failed, and nothing empty in its place")


DAMAGE: dict[str, tuple[str, int, Callable[[bytes], bytes]]] = {
    "a draft entry cut in half": ("d", -1, lambda content: content[: len(content) // 2]),
    "a draft entry of zeros": ("d", -1, lambda content: bytes(len(content))),
    "the newest version cut": ("v", -1, lambda content: content[:-5]),
    "the newest version empty": ("v", -1, lambda content: b""),
    "a version with a changed byte": ("v", 1, lambda content: content[:20] + bytes([content[20] ^ 1]) + content[21:]),
}


def test_damaged_records_quarantine_one_conversation_each(tmp_path: Path, tell: Tell) -> None:
    """Fault 25: the service starts, the damaged conversations say so, the others are served."""
    data = tmp_path / "data"
    names = [f"damaged-{number}" for number in range(len(DAMAGE))]
    fill(data, *names, "whole")
    for name, (kind, index, change) in zip(names, DAMAGE.values(), strict=True):
        path = objects(data, name, kind)[index]
        path.write_bytes(change(path.read_bytes()))
    with service.running(data, SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
        for name in names:
            told(http.get(f"/v1/conversations/{name}/files"))
            told(http.put(f"/v1/conversations/{name}/files/new", content=b"new"))
        assert http.get("/healthz").json()["ok"]
        assert len(files(http, "whole") or {}) == 5
        assert "whole" in [item["id"] for item in http.get("/v1/conversations").json()["conversations"]]
        assert http.put("/v1/conversations/another/files/a", content=b"a").status_code == 201
    tell(f"{len(DAMAGE)} conversations damaged, each answers 503, the others are served")


def test_planted_orphans_are_swept_and_others_left_alone(tmp_path: Path, tell: Tell) -> None:
    """Fault 24: parts and notes of dead runners go; what is not ours, and living processes, stay."""
    data = tmp_path / "data"
    fill(data, "whole")
    staging, notes = data / "store" / "staging", data / "run"
    for number in range(20):
        (staging / f"{90_000 + number}-{os.urandom(8).hex()}.part").write_bytes(b"half")
    (staging / "notes of an operator.txt").write_text("mine")
    notes.mkdir(exist_ok=True)
    with subprocess.Popen(["sleep", "300"]) as stranger:
        record = {"pid": stranger.pid, "born": f"{os.urandom(16).hex()} 1", "uid": 1, "groups": []}
        (notes / "0123456789abcdef.json").write_text(json.dumps(record))
        (notes / "fedcba9876543210.json").write_text('{"pid": 1, "groups": ["/sys')
        (notes / "00000000ffffffff.part").write_text("{")
        try:
            with service.running(data, SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
                assert len(files(http, "whole") or {}) == 5
                assert os.listdir(staging) == ["notes of an operator.txt"]
                assert not list(notes.iterdir())
                assert stranger.poll() is None
        finally:
            stranger.kill()
    tell("20 parts and 3 notes swept, 1 foreign file and 1 foreign process left alone")


def test_restart_with_a_thousand_idle_conversations(tmp_path: Path, tell: Tell) -> None:
    """Fault 23: serving again at once, all are listed, and their files have their bytes."""
    data, empty = tmp_path / "data", tmp_path / "empty"
    names = [f"idle-{number:04d}" for number in range(IDLE)]

    async def work() -> None:
        async with lab(data) as at:

            async def one(name: str) -> None:
                space, _ = await at.spaces.create(TENANT, name)
                await put(space, "kept", f"kept of {name}".encode())

            for start in range(0, IDLE, 50):
                await asyncio.gather(*(one(name) for name in names[start : start + 50]))

    asyncio.run(work())
    took = {}
    for place in (empty, data):
        began = time.monotonic()
        with service.running(place, SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
            http.get("/livez").raise_for_status()
            took[place] = time.monotonic() - began
            if place is data:
                listed = http.get("/v1/conversations", params={"limit": 1000}).json()["conversations"]
                assert [item["id"] for item in listed] == names
                for name in names[::20]:
                    assert http.get(f"/v1/conversations/{name}/files/kept").text == f"kept of {name}"
    assert took[data] < took[empty] + RESTART_S
    tell(f"{IDLE} conversations: restart in {took[data]:.2f} s, an empty one in {took[empty]:.2f} s; all listed")


def test_a_client_reads_what_the_ledger_says(tmp_path: Path) -> None:
    """Control of the ledger: a file that changes behind the service's back is a broken promise."""
    ledger = Ledger()
    with service.running(tmp_path / "data", SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
        chat = Client(http, ledger, "c")
        chat.put("a", b"a")
        chat.put("b", b"b")
        held = chat.files()
        assert held is not None
        assert not ledger.problems({"c": held})
        assert ledger.problems({"c": {**held, "a": sha(b"other")}})
        assert ledger.problems({"c": {"a": held["a"]}})
        assert ledger.problems({"c": {**held, "x": held["a"]}})
        assert ledger.problems({})
        chat.delete("a")
        assert ledger.problems({"c": held})
        chat.purge()
        assert ledger.problems({"c": {"b": held["b"]}})
    outside.wait_for(lambda: runner.process is not None and runner.process.poll() == 0, "the service has ended")
