"""Faults 8 and 9: a disk that is full or broken. What was acknowledged stays, the error is told, the next try works."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.durability.conftest import Tell
from tests.durability.support import service
from tests.durability.support.client import Client, files, outcome
from tests.durability.support.ledger import Ledger, summary
from tests.hostile.support import outside

DISK_BYTES = 24 << 20
REFUSED = (503, 507)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A data folder on a disk of 24 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a small disk is mounted")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(disk)], check=True)
    try:
        yield disk / "data"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def refused(response: httpx.Response) -> str:
    """The code of a refusal that tells what to do and names no path of the machine."""
    assert response.status_code in REFUSED, response.text
    body = response.json()
    assert body["code"] in ("store_full", "store_failed", "host_pressure"), body
    assert "/data" not in response.text
    return str(body["code"])


def broken(http: httpx.Client, ledger: Ledger) -> list[str]:
    """Promises that do not hold now."""
    lived = {name: files(http, name) for name in ledger.allowed()}
    return ledger.problems({name: held for name, held in lived.items() if held is not None})


def test_the_disk_becomes_full(small_disk: Path, tell: Tell) -> None:
    """Fault 8 during an upload, fault 9 during a run: told, nothing half, and when there is room all goes on."""
    ledger = Ledger()
    env = {"SANDBOX_POOL_SIZE": "1", "SANDBOX_MIN_FREE_DISK": "1"}
    with service.running(small_disk, **env) as runner, runner.client() as http:
        chat = Client(http, ledger, "full")
        assert chat.put("kept", os.urandom(2 << 20)).status_code == 201
        assert chat.run("open('made', 'w').write('made')", {"made": b"made"})["outcome"] == "ok"
        codes = [refused(chat.put("too-large", os.urandom(DISK_BYTES)))]
        outside.wait_for(lambda: not os.listdir(small_disk / "store" / "staging"), "the part is removed", 2)
        assert not broken(http, ledger)
        filler = small_disk.parent / "filler"
        fill(filler)
        codes.append(refused(chat.put("small", b"small" * 2000)))
        stream = {"Accept": "text/event-stream"}  # it tells that the run began, which cannot be made durable
        body = {"code": "print('never')"}
        codes.append(refused(http.post("/v1/conversations/full/execute", json=body, headers=stream)))
        unrecorded = http.post("/v1/conversations/full/execute", json={"code": "print('told')"}).json()
        assert (unrecorded["stdout"], unrecorded["record_error"]["code"]) == ("told\n", "store_full")
        assert not broken(http, ledger)
        filler.unlink()
        assert chat.put("small", b"small" * 2000).status_code == 201
        told = _full_in_the_middle_of_a_run(chat, filler)
        assert not broken(http, ledger)
        filler.unlink()
        code = "import os; print(os.path.exists('on-full')); open('after', 'w').write('after')"
        seen = chat.run(code, {"after": b"after"})
        assert seen["stdout"].strip() == str("on-full" in (chat.files() or {})), "sandbox and store disagree"
        again = {"on-full": b"f" * 20_000}
        assert chat.run("open('on-full', 'w').write('f' * 20_000)", again)["outcome"] == "ok"
        problems = broken(http, ledger)
        assert not problems, summary(problems)
    tell(f"refused with {', '.join(codes)}; the run was told: {told}; {ledger.promised()} files promised, 0 lost")


def fill(filler: Path) -> None:
    """Leave no room on a disk."""
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def _full_in_the_middle_of_a_run(chat: Client, filler: Path) -> str:
    """A run whose file cannot be stored: the caller is told so, and the run has one outcome all the same."""
    chat.ledger.begin(chat.id, {"on-full": b"f" * 20_000})
    code = "print('ready', flush=True); import time; time.sleep(1.5); open('on-full', 'w').write('f' * 20_000)"
    url, events = f"/v1/conversations/{chat.id}/execute", {"Accept": "text/event-stream"}
    told: dict[str, str] = {}
    kind = ""
    with chat.http.stream("POST", url, json={"code": code}, headers=events) as response:
        for line in response.iter_lines():
            if line.startswith("event:"):
                kind = line[6:].strip()
            elif line.startswith("data:"):
                told[kind] = line[5:]
                if kind == "stdout" and not filler.exists():
                    fill(filler)
    last = json.loads(told.get("done") or told["error"])
    error = last["result"]["files_error"] if "done" in told else last["code"]
    assert error, last
    assert outcome(chat.http, chat.id, last["execution_id"]) in ("ok", "lost")
    return str(error)


@pytest.mark.parametrize("error", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("calls", ["fsync", "link,linkat"])
def test_the_disk_fails(tmp_path: Path, calls: str, error: str, tell: Tell) -> None:
    """Fault 9 from outside: every such call of the running service fails for a while."""
    ledger = Ledger()
    with service.running(tmp_path / "data", SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
        chat = Client(http, ledger, "failing")
        chat.put("kept", b"kept")
        assert chat.put("gone", b"gone").status_code == 201
        with service.failing(runner, f"{calls}:error={error}"):
            codes = {refused(chat.put("kept", os.urandom(size))) for size in (10, 1 << 20)}
            refused(chat.delete("gone"))
            refused(chat.purge())
            refused(Client(http, ledger, "never").put("a", b"a"))
            assert not broken(http, ledger)
        assert chat.put("kept", b"again").status_code == 200
        assert chat.delete("gone").status_code in (204, 404)
        assert not broken(http, ledger)
    assert not os.listdir(tmp_path / "data" / "store" / "staging")
    tell(f"{calls} with {error}: 5 requests refused with {', '.join(sorted(codes))}, nothing lost, mended at once")
