"""Workspaces that outlive their session by archive key, in the folder of the ``local`` provider, and sweeps of it."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.kit import Place
from tests.conformance.sessions import shapes
from tests.conformance.sessions.client import SessionsClient
from tests.conformance.sessions.conftest import client_of
from tests.conformance.sessions.gateway import Conversation
from tests.support.runner import running

Talk = Callable[..., Conversation]
LOCAL = {"provider": "local"}


def object_of(place: Place, key: str, prefix: str = "workspaces") -> Path:
    """Where an archive lies below the folder of the ``local`` provider."""
    assert place.local_storage is not None
    return place.local_storage / prefix / "workspaces" / f"{key}.tgz"


def names(archive: Path) -> set[str]:
    """Files in an archive, as its format has them."""
    with tarfile.open(archive, "r:gz") as tar:
        return {os.path.normpath(member.name) for member in tar if member.isfile()}


def test_a_new_session_finds_what_the_released_one_left(talk: Talk, place: Place) -> None:
    chat = talk(storage=LOCAL, uploads=[("a.txt", b"input")], skills=[("s", "x.txt", b"skill")])
    chat.python("import os\nopen('/workspace/outputs/r.txt', 'w').write('result')\nos.makedirs('/workspace/deep')\n"
                "open('/workspace/deep/名.txt', 'w').write('deep')")  # fmt: skip
    chat.release()
    assert names(object_of(place, chat.id)) == {"outputs/r.txt", "deep/名.txt"}
    chat.uploads.clear()
    chat.skills.clear()
    read = "import os\nprint(open('/workspace/outputs/r.txt').read(), open('/workspace/deep/名.txt').read())\n"
    seen = chat.python(read + "print(os.listdir('/workspace/uploads'), os.listdir('/workspace/skills'))")
    assert seen.ran.stdout == "result deep\n[] []\n"
    assert seen.artifacts == {}, "what was restored is not new"
    assert len(chat.created) == 2


def test_what_was_discarded_does_not_come_back(talk: Talk, place: Place) -> None:
    chat = talk(storage=LOCAL)
    chat.python("open('/workspace/kept', 'w').write('1')")
    chat.release()
    assert object_of(place, chat.id).exists()
    chat.python("1")
    chat.clear()
    assert not object_of(place, chat.id).exists()
    assert chat.python("import os; print(os.path.exists('/workspace/kept'))").ran.stdout == "False\n"


def test_discard_of_a_gone_session_deletes_the_archive_of_the_key(talk: Talk, place: Place) -> None:
    chat = talk(storage=LOCAL)
    chat.python("open('/workspace/kept', 'w').write('1')")
    chat.release()
    chat.client.delete("f" * 32, storage=LOCAL, discard=True, archive_key=chat.id)
    assert not object_of(place, chat.id).exists()


def test_the_prefix_of_the_request_is_used(client: SessionsClient, place: Place) -> None:
    storage = {**LOCAL, "prefix": "team/a/"}
    session = client.create(storage=storage, archive_key="prefixed")
    client.put(session, "x", b"1")
    client.delete(session, storage=storage)
    assert names(object_of(place, "prefixed", "team/a")) == {"x"}
    client.delete(session, storage=storage, discard=True, archive_key="prefixed")


def test_an_archive_of_the_present_runner_is_restored(client: SessionsClient, place: Place) -> None:
    """As ``tar czf - -C /workspace .`` writes it: a leading ``./``, folders, an owner of its own."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, data in ((".", None), ("./outputs", None), ("./outputs/old.txt", b"old"), ("./top.txt", b"top")):
            member = tarfile.TarInfo(name)
            member.uid = member.gid = 1000
            member.type, member.mode = (tarfile.DIRTYPE, 0o755) if data is None else (tarfile.REGTYPE, 0o644)
            member.size = len(data or b"")
            tar.addfile(member, io.BytesIO(data or b""))
    archive = object_of(place, "present-runner")
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(made.getvalue())
    session = client.create(storage=LOCAL, archive_key="present-runner")
    assert client.get(session, "outputs/old.txt") == b"old"
    assert client.exec(session, "open('top.txt', 'a').write('!'); print(open('top.txt').read())").stdout == "top!\n"
    client.delete(session, discard=True, archive_key="present-runner", storage=LOCAL)


def test_an_archive_that_cannot_be_read_is_never_written_over_by_an_empty_one(
    client: SessionsClient, place: Place
) -> None:
    archive = object_of(place, "spoilt")
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(b"no archive at all")
    answer = client.send("POST", "/sessions", {"storage": LOCAL, "archive_key": "spoilt"})
    if answer.status_code == 200:
        session = answer.json()["session_id"]
        client.exec(session, "open('/workspace/new', 'w').write('1')")
        client.delete(session, storage=LOCAL)
    kept = [each for each in archive.parent.iterdir() if each.read_bytes() == b"no archive at all"]
    assert kept, "the bytes that could not be read are gone"


def test_an_archive_with_hostile_names_writes_nothing_elsewhere(client: SessionsClient, place: Place) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name in ("../../outside.txt", "/absolute.txt", "./good.txt"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
        link = tarfile.TarInfo("./link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
        through = tarfile.TarInfo("./link/through.txt")
        through.size = 1
        tar.addfile(through, io.BytesIO(b"x"))
    archive = object_of(place, "hostile")
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(made.getvalue())
    answer = client.send("POST", "/sessions", {"storage": LOCAL, "archive_key": "hostile"})
    assert answer.status_code in (200, 500), answer.text
    assert place.local_storage is not None
    assert not list(place.local_storage.parent.rglob("outside.txt"))
    assert not Path("/absolute.txt").exists()
    assert not Path("/etc/through.txt").exists()


def test_a_restart_forgets_neither_key_nor_storage(tmp_path_factory: pytest.TempPathFactory) -> None:
    storage, data = tmp_path_factory.mktemp("again-storage"), tmp_path_factory.mktemp("again")
    with running(data, SANDBOX_LOCAL_STORAGE_DIR=str(storage)) as service:
        client = client_of(Place(service.url, service.key))
        session = client.create(storage=LOCAL, archive_key="again", idle_ttl_sec=3600)
        client.put(session, "x", b"1")
        client.close()
        service.stop()
        service.start()
        client = client_of(Place(service.url, service.key))
        assert client.get(session, "x") == b"1"
        client.delete(session)
        assert names(storage / "workspaces" / "workspaces" / "again.tgz") == {"x"}
        client.close()


def test_put_to_local_storage_leaves_no_orphan(client: SessionsClient, place: Place) -> None:
    assert place.local_storage is not None
    body = {"key": "orphan.bin", "data_base64": "YQ==", "storage": LOCAL}
    assert client.send("POST", "/storage/put", body).status_code == 400
    assert not list(place.local_storage.rglob("*orphan*"))


def test_delete_of_objects_by_bare_and_full_key(client: SessionsClient, place: Place) -> None:
    assert place.local_storage is not None
    for key in ("mineru/one.bin", "p/mineru/one.bin"):
        file = place.local_storage / "p" / "mineru" / "one.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"1")
        answer = client.call(
            "POST", "/storage/delete", {"key": key, "storage": {**LOCAL, "prefix": "p/"}}, shapes.REMOVED
        )
        assert answer["key"] == "p/mineru/one.bin"
        assert not file.exists()
    absent = client.call("POST", "/storage/delete", {"key": "none", "storage": LOCAL}, shapes.REMOVED)
    assert absent["key"] == "workspaces/none"


def test_gc_takes_what_is_old_and_counts_it(client: SessionsClient, place: Place) -> None:
    assert place.local_storage is not None
    root = place.local_storage / "gc"
    old, new = root / "workspaces" / "old.tgz", root / "workspaces" / "new.tgz"
    for file, age in ((old, 7200), (new, 0), (root / "mineru" / "m.bin", 7200), (root / "other" / "x.tgz", 7200)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"12345")
        os.utime(file, (time.time() - age, time.time() - age))
    storage = {**LOCAL, "prefix": "gc"}
    for nothing in ({"max_age_seconds": 3600}, {"storage": storage, "max_age_seconds": 0},
                    {"storage": storage, "max_age_seconds": -1}, {"storage": {}, "max_age_seconds": 3600}):  # fmt: skip
        zeros = client.call("POST", "/storage/gc", nothing, shapes.SWEPT)
        assert [zeros[name] for name in ("deleted", "scanned", "freed_bytes")] == [0, 0, 0]
    swept = client.call("POST", "/storage/gc", {"storage": storage, "max_age_seconds": 3600}, shapes.SWEPT)
    assert [swept[name] for name in ("deleted", "scanned", "freed_bytes")] == [2, 3, 10]
    assert (old.exists(), new.exists(), (root / "other" / "x.tgz").exists()) == (False, True, True)


def test_a_live_sessions_archive_is_not_swept(client: SessionsClient, place: Place) -> None:
    storage = {**LOCAL, "prefix": "live"}
    session = client.create(storage=storage, archive_key="living")
    client.put(session, "x", b"1")
    client.delete(session, storage=storage)
    again = client.create(storage=storage, archive_key="living")
    archive = object_of(place, "living", "live")
    os.utime(archive, (time.time() - 7200, time.time() - 7200))
    client.call("POST", "/storage/gc", {"storage": storage, "max_age_seconds": 3600}, shapes.SWEPT)
    assert archive.exists()
    client.delete(again, storage=storage, discard=True, archive_key="living")
