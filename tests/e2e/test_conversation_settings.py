"""What a conversation may have of its own over HTTP, and what it makes of its sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.support.runner import Chat, running
from tests.support.waiting import until

MIB = 1 << 20


def put(chat: Chat, **body: Any) -> httpx.Response:
    """Set settings."""
    return chat.http.put(f"/v1/conversations/{chat.id}", json=body)


def test_limits_hold_in_the_sandbox(chat: Chat) -> None:
    made = put(
        chat, limits={"memory_bytes": 400 * MIB, "cpus": 0.5, "pids": 60, "output_bytes": 2000, "timeout_ms": 9000}
    )
    assert (made.status_code, made.json()["limits"]["memory_bytes"]) == (201, 400 * MIB)
    assert made.json()["limits_apply"] == "now"
    assert chat.run("x = bytearray(500 << 20)")["outcome"] in ("oom", "error")
    long = chat.ok("print('y' * 100_000)")
    assert long["stdout_truncated"]
    assert len(long["stdout"]) < 3000
    threads = """
import threading
gate, made = threading.Event(), 0
try:
    while made < 100:
        threading.Thread(target=gate.wait, daemon=True).start()
        made += 1
except RuntimeError:
    pass
gate.set()
print(made)
"""
    assert int(chat.ok(threads)["stdout"]) < 60


def test_a_change_while_it_lives_applies_to_the_next_sandbox(chat: Chat) -> None:
    chat.ok("x = 1")
    assert put(chat, limits={"pids": 64}).json()["limits_apply"] == "next_sandbox"
    assert chat.ok("print(x)")["interpreter"] == "kept"
    assert put(chat, limits=None).json()["limits_apply"] == "now"
    shown = chat.http.get(f"/v1/conversations/{chat.id}").json()
    assert shown["limits"]["pids"] == 256


def test_an_idle_time_of_its_own_ends_the_sandbox_and_the_next_run_is_told(chat: Chat) -> None:
    put(chat, idle_ttl_ms=1000)
    chat.ok("x = 1; open('kept.txt', 'w').write('1')")
    until(lambda: not chat.http.get(f"/v1/conversations/{chat.id}").json()["live"], "its sandbox is ended")
    after = chat.ok("print(open('kept.txt').read())")
    assert (after["stdout"], after["interpreter"], after["interpreter_reason"]) == ("1\n", "new", "idle")


def test_a_workspace_is_not_made_smaller_than_its_files(chat: Chat) -> None:
    chat.put("a", bytes(3 * MIB))
    small = put(chat, limits={"workspace_bytes": 2 * MIB})
    assert (small.status_code, small.json()["code"], small.json()["used"]) == (409, "conflict", 3 * MIB)
    assert put(chat, limits={"workspace_bytes": 4 * MIB}).status_code == 200
    over = chat.put("b", bytes(2 * MIB))
    assert (over.status_code, over.json()["code"]) == (413, "quota_exceeded")
    assert put(chat, limits={"memory_bytes": 1}).status_code == 422


def test_files_that_end_within_a_page_fit_when_their_bytes_do(chat: Chat) -> None:
    put(chat, limits={"workspace_bytes": MIB})
    for number in range(MIB // 4097):
        assert chat.put(f"f/{number}", bytes(4097)).status_code == 201
    counted = chat.ok("import os; print(len(os.listdir('f')), sum(os.path.getsize('f/' + n) for n in os.listdir('f')))")
    assert counted["stdout"] == f"{MIB // 4097} {MIB // 4097 * 4097}\n"


def test_a_large_file_is_replaced_where_there_is_no_room_for_both(chat: Chat) -> None:
    put(chat, limits={"workspace_bytes": 20 * MIB})
    chat.put("big", bytes(15 * MIB))
    chat.ok("1")
    assert chat.put("big", b"1" + bytes(19 * MIB)).status_code == 200
    assert chat.ok("print(open('big', 'rb').read(1))")["stdout"] == "b'1'\n"


def test_no_version_that_does_not_fit_is_restored_or_forked(chat: Chat) -> None:
    """It would leave a conversation in which no sandbox can be filled, and so nothing can run."""
    chat.ok("open('big', 'wb').write(bytes(10 << 20))")
    chat.ok("import os; os.remove('big')")
    assert put(chat, limits={"workspace_bytes": MIB}).status_code == 200
    url = f"/v1/conversations/{chat.id}"
    restored = chat.http.post(f"{url}/restore", json={"version": 1})
    assert (restored.status_code, restored.json()["code"], restored.json()["limit"]) == (413, "quota_exceeded", MIB)
    assert "limits.workspace_bytes" in restored.json()["detail"]
    fork = f"{chat.id}-fork"
    forked = chat.http.post(f"{url}/fork", json={"id": fork, "version": 1})
    assert (forked.status_code, forked.json()["code"], forked.json()["limit"]) == (413, "quota_exceeded", MIB)
    assert chat.http.get(f"/v1/conversations/{fork}").status_code == 404
    chat.http.post(f"{url}/reset")
    assert chat.ok("print(1)")["stdout"] == "1\n"
    assert chat.http.post(f"{url}/fork", json={"id": fork}).json()["limits"]["workspace_bytes"] == MIB
    Chat(chat.http, fork).purge()


TOO_MUCH = {"large": [10.0], "together": [0.9] * 5, "many": [0.05] * 90}  # sizes of files in MiB


def test_files_that_a_lowered_deployment_has_no_room_for(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service, service.client() as http:
        for name, sizes in TOO_MUCH.items():
            for number, size in enumerate(sizes):
                assert Chat(http, name).put(f"f/{number}", bytes(int(size * MIB))).status_code == 201
    lowered = {"SANDBOX_WORKSPACE_SIZE": "1m", "SANDBOX_WORKSPACE_FILES": "100"}
    with running(tmp_path, SANDBOX_POOL_SIZE="0", **lowered) as service, service.client() as http:
        for name, sizes in TOO_MUCH.items():
            refused = http.post(f"/v1/conversations/{name}/execute", json={"code": "1"})
            assert (refused.status_code, refused.json()["code"]) == (413, "quota_exceeded"), (name, refused.text)
            for number in range(len(sizes)):
                http.delete(f"/v1/conversations/{name}/files/f/{number}")
            assert Chat(http, name).ok("import os; print(os.path.exists('f'))")["stdout"] == "False\n"


def test_settings_survive_a_restart(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service:
        with service.client() as http:
            chat = Chat(http)
            body = {"labels": {"user": "ada"}, "idle_ttl_ms": 60_000, "limits": {"pids": 64}}
            before = http.put(f"/v1/conversations/{chat.id}", json=body).json()
        service.kill()
        service.start()
        with service.client() as http:
            after = http.get(f"/v1/conversations/{chat.id}").json()
            assert after == before
            assert (after["labels"], after["idle_ttl_ms"], after["limits"]["pids"]) == ({"user": "ada"}, 60_000, 64)
