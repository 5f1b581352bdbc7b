"""A host that runs short: nothing new is started and uploads are refused, while what runs goes on and is stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import disks
from tests.support.runner import Chat, running

MIB = 1 << 20


@pytest.mark.parametrize(
    ("setting", "value", "resource"),
    [("SANDBOX_MIN_FREE_MEMORY", "900t", "memory"), ("SANDBOX_MIN_FREE_PIDS", str(1 << 22), "pids")],
)
def test_without_room_no_sandbox_is_started(tmp_path: Path, setting: str, value: str, resource: str) -> None:
    with running(tmp_path, **{setting: value}) as service, service.client() as http:
        chat = Chat(http)
        assert chat.put("a.txt", b"files need no sandbox").status_code == 201
        answer = http.post(f"/v1/conversations/{chat.id}/execute", json={"code": "1"})
        body = answer.json()
        assert (answer.status_code, body["code"], body["short"]) == (503, "host_pressure", [resource])
        assert setting in body["detail"]
        assert int(answer.headers["retry-after"]) >= 1
        health = http.get("/healthz")
        assert (health.status_code, health.json()["pressure"][resource]) == (200, "short")
        assert health.json()["pool"]["ready"] == 0
        assert http.get("/readyz").status_code == 200


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 96 MiB."""
    with disks.small_disk(tmp_path / "data", "size=96m,nr_inodes=20k") as place:
        yield place


def test_a_disk_that_fills_stops_uploads_and_not_runs(small_disk: Path) -> None:
    env = {"SANDBOX_MIN_FREE_DISK": "32m", "SANDBOX_POOL_SIZE": "0"}
    with running(small_disk, **env) as service, service.client() as http:
        chat = Chat(http)
        chat.ok("1")
        too_much = chat.put("big", bytes(70 * MIB))
        assert (too_much.status_code, too_much.json()["code"]) == (507, "store_full")
        assert "SANDBOX_MIN_FREE_DISK" in too_much.json()["detail"]
        chunked = http.put(f"/v1/conversations/{chat.id}/files/big", content=(bytes(MIB) for _ in range(90)))
        assert (chunked.status_code, chunked.json()["code"]) == (507, "store_full")
        assert chat.files() == []
        assert _free(small_disk) >= 60 * MIB  # nothing of either stayed
        (small_disk / "of-somebody-else").write_bytes(bytes(_free(small_disk) - 24 * MIB))
        assert chat.put("small", b"x").json()["code"] == "store_full"
        result = chat.ok("open('outputs/made', 'wb').write(bytes(1 << 20))")
        assert [file["path"] for file in result["files"]] == ["outputs/made"]
        other = http.post(f"/v1/conversations/{Chat(http).id}/execute", json={"code": "1"})
        assert (other.status_code, other.json()["short"]) == (503, ["disk"])
        assert http.get("/healthz").json()["pressure"]["disk"] == "short"
        (small_disk / "of-somebody-else").unlink()
        assert chat.put("small", b"x").status_code == 201


def _free(folder: Path) -> int:
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize
