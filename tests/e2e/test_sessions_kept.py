"""What sessions keep and what they let go: archives of places that change, inputs of runs, limits of keys, discards."""

from __future__ import annotations

import io
import secrets
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.runner import Runner, running
from tests.support.sessions import Session, b64, detail

LOCAL = {"provider": "local", "prefix": "one/"}
OTHER = {"provider": "local", "prefix": "two"}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, bucket: Path) -> Iterator[Runner]:
    """A service with local object storage, whose runs wait for a turn for a moment only."""
    with running(
        tmp_path_factory.mktemp("own"),
        SANDBOX_LOCAL_STORAGE_DIR=str(bucket),
        SANDBOX_SESSIONS_QUEUE_TIMEOUT_SECONDS="3",
    ) as service:
        yield service


@pytest.fixture
def client(own: Runner) -> Iterator[httpx.Client]:
    with own.client() as made:
        yield made


def key() -> str:
    return f"c_{secrets.token_hex(6)}"


def place(bucket: Path, prefix: str, name: str) -> Path:
    return bucket / prefix / "workspaces" / f"{name}.tgz"


def inputs(**files: str) -> list[dict[str, str]]:
    return [{"path": f"uploads/{name}", "data_base64": b64(text.encode())} for name, text in files.items()]


def test_a_session_that_ends_elsewhere_is_archived_there(client: httpx.Client, bucket: Path) -> None:
    """``archived`` says that the bytes lie in the storage of this call; the same place in other words is no other."""
    name = key()
    first = Session.new(client, archive_key=name, storage=LOCAL)
    first.exec("open('outputs/a', 'w').write('a')")
    assert first.delete()["archived"] is True
    second = Session.new(client, archive_key=name, storage={**LOCAL, "prefix": "one"})
    assert second.delete(storage=OTHER)["archived"] is True
    assert place(bucket, "two", name).is_file()
    third = Session.new(client, archive_key=name, storage={**LOCAL, "prefix": "one", "s3_bucket": "none"})
    third.exec("open('outputs/b', 'w').write('b')")
    assert third.delete()["archived"] is True  # what it was saved as in the other place is what is here
    place(bucket, "three", name).parent.mkdir(parents=True)
    place(bucket, "three", name).write_bytes(b"of somebody else")
    fourth = Session.new(client, archive_key=name, storage={**LOCAL, "prefix": "three"})
    assert fourth.delete()["archived"] is False  # the control
    assert place(bucket, "three", name).read_bytes() == b"of somebody else"


def test_an_archive_with_a_file_in_the_way_of_a_folder(client: httpx.Client, bucket: Path) -> None:
    """It is told and left as it is; the session begins."""
    name, packed = key(), io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for member in ("./a", "./a/b"):
            info = tarfile.TarInfo(member)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
    place(bucket, "one", name).parent.mkdir(parents=True, exist_ok=True)
    place(bucket, "one", name).write_bytes(packed.getvalue())
    session = Session.new(client, archive_key=name, storage=LOCAL)
    assert len(session.created["warnings"]) == 1 and session.paths() == []
    session.exec("open('outputs/a', 'w').write('a')")
    assert session.delete()["archived"] is False
    assert place(bucket, "one", name).read_bytes() == packed.getvalue()


def test_inputs_belong_to_what_an_idempotency_key_names(client: httpx.Client) -> None:
    """Other inputs are another request; a repeated one touches nothing."""
    session = Session.new(client)

    def call(content: str) -> httpx.Response:
        body = {"session_id": session.id, "code": "print(open('uploads/a').read())", "inputs": inputs(a=content)}
        return client.post("/exec", json=body, headers={"Idempotency-Key": "turn-1"})

    assert call("1").json()["stdout"] == "1\n"
    assert (call("2").status_code, call("2").json()["code"]) == (422, "idempotency_key_reused")
    session.put("uploads/later", b"later")
    assert call("1").json()["stdout"] == "1\n"
    assert session.paths() == ["uploads/a", "uploads/later"]
    assert session.get("uploads/a") == b"1"
    session.delete(discard=True)


def test_inputs_that_cannot_be_change_nothing(client: httpx.Client) -> None:
    """A path below another one's is found before anything is put."""
    session = Session.new(client)
    session.put("uploads/there", b"1")
    bad = [*inputs(a="1"), {"path": "uploads/a/b", "data_base64": ""}]
    assert detail(session.post("/exec", code="1", inputs=bad)) == (400, "an input cannot lie below another one")
    assert session.paths() == ["uploads/there"]
    session.delete(discard=True)


def test_a_reset_waits_for_the_run(client: httpx.Client) -> None:
    """No run loses its inputs, and no answer says that they are gone while a run has them."""
    session = Session.new(client)
    session.put("uploads/a", b"1")
    going_on = threading.Thread(target=session.exec, args=("import time; time.sleep(60)",))
    going_on.start()
    deadline = time.monotonic() + 20
    busy = session.post("/files/reset-inputs")
    while busy.status_code == 200 and time.monotonic() < deadline:  # it came before the run
        session.put("uploads/a", b"1")
        busy = session.post("/files/reset-inputs")
    assert detail(busy) == (429, "session is busy")
    assert session.paths() == ["uploads/a"]
    assert client.post(f"{session.conversation}/interrupt").status_code < 300
    going_on.join()
    assert session.post("/files/reset-inputs").json() == {"ok": True, "session_gone": False}
    assert session.paths() == []
    session.delete(discard=True)


def test_a_discard_takes_both_archives_and_only_what_had_sessions(client: httpx.Client, bucket: Path) -> None:
    """Of its own key and of the one that is named; a conversation that never had a session is another matter."""
    name, named, plain = key(), key(), key()
    for one in (name, named):
        session = Session.new(client, archive_key=one, storage=LOCAL)
        session.exec("open('outputs/a', 'w').write('a')")
        session.delete()
    session = Session.new(client, archive_key=name, storage=LOCAL)
    assert place(bucket, "one", name).is_file() and place(bucket, "one", named).is_file()
    session.delete(discard=True, archive_key=named)
    assert not place(bucket, "one", name).exists() and not place(bucket, "one", named).exists()
    assert client.get(f"/v1/conversations/{named}").status_code == 404
    assert client.put(f"/v1/conversations/{plain}/files/a", content=b"1").status_code in (200, 201)
    place(bucket, "one", plain).write_bytes(b"x")
    session.delete(discard=True, archive_key=plain, storage=LOCAL)
    assert client.get(f"/v1/conversations/{plain}/files/a").content == b"1"
    assert not place(bucket, "one", plain).exists()


def test_a_type_need_not_be_said_but_must_be_json(client: httpx.Client) -> None:
    """As the present runner has it."""
    session = Session.new(client)
    body = b'{"session_id": "%s"}' % session.id.encode()
    assert client.post("/files/list", content=body).status_code == 200
    assert client.post("/files/list", content=body, headers={"Content-Type": "text/plain"}).status_code == 422
    session.delete(discard=True)


def test_what_a_key_may_upload_holds_here_too(tmp_path: Path) -> None:
    """In ``/files`` and in the inputs of a run; up to it all is taken."""
    keys = tmp_path / "keys.json"
    command = [sys.executable, "-m", "runner", "keys", "new", "--file", str(keys), "--name", "small", "--tenant", "t"]
    done = subprocess.run([*command, "--upload-bytes", "1000"], capture_output=True, text=True, check=True)
    headers = {"Authorization": f"Bearer {max(done.stdout.split(), key=len)}"}
    with (
        running(tmp_path / "data", SANDBOX_API_KEYS_FILE=str(keys)) as service,
        httpx.Client(base_url=service.url, headers=headers, timeout=90) as http,
    ):
        session = Session.new(http)
        assert session.put("uploads/a", bytes(1000)).status_code == 200
        assert detail(session.put("uploads/b", bytes(1001))) == (413, "file too large")
        assert session.exec("1", inputs=inputs(a="x" * 1000))["exit_code"] == 0
        assert detail(session.post("/exec", code="1", inputs=inputs(a="x" * 1001))) == (413, "file too large")
        assert session.paths() == ["uploads/a"]
