"""A host that runs short: nothing new is started and uploads are refused, while what runs goes on and is stored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.limits.fit import Capacity
from runner.limits.pressure import AT_REST_BYTES, AT_REST_PIDS
from tests.support import disks
from tests.support.runner import Chat, running

MIB = 1 << 20


def all_but_a_sandbox() -> list[tuple[str, str, str]]:
    """Reserves that this host could leave if nothing else ran on it."""
    host = Capacity.read()
    memory, pids = (host.memory_bytes or 0) - AT_REST_BYTES, (host.pids or 0) - AT_REST_PIDS
    return [("SANDBOX_MIN_FREE_MEMORY", str(memory), "memory"), ("SANDBOX_MIN_FREE_PIDS", str(pids), "pids")]


@pytest.mark.parametrize(("setting", "value", "resource"), all_but_a_sandbox())
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


@pytest.mark.parametrize(
    ("setting", "value"), [("SANDBOX_MIN_FREE_MEMORY", "900t"), ("SANDBOX_MIN_FREE_PIDS", str(1 << 22))]
)
def test_a_reserve_that_can_never_be_left_is_no_health(tmp_path: Path, setting: str, value: str) -> None:
    """The start logs it as an error; whoever watches the service is told the same."""
    with running(tmp_path, **{setting: value}) as service, service.client() as http:
        health, ready = http.get("/healthz"), http.get("/readyz")
        assert (health.status_code, health.json()["ok"], health.json()["status"]) == (503, False, "unavailable")
        assert f"{setting}=" in health.json()["detail"]
        assert "can never be left" in health.json()["detail"]
        assert (ready.status_code, ready.json()) == (503, {"status": "unavailable"})
        assert "no sandbox can be started" in service.log.read_text(encoding="utf-8")


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
