"""What sessions lose: nothing, whatever ends them. Weaknesses 1 to 11 and 55 of the protocol's present runner."""

from __future__ import annotations

import io
import os
import secrets
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.runner import Runner, running
from tests.support.sessions import Session, detail
from tests.support.waiting import until

LOCAL = {"provider": "local", "prefix": "workspaces/"}


def key() -> str:
    return f"c_{secrets.token_hex(6)}"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bucket")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory, bucket: Path) -> Iterator[Runner]:
    """A service with local object storage."""
    with running(
        tmp_path_factory.mktemp("own"),
        SANDBOX_LOCAL_STORAGE_DIR=str(bucket),
        SANDBOX_IDLE_REAPER_SWEEP_INTERVAL="0.3",
        SANDBOX_MAX_ARCHIVE_BYTES="1m",
        SANDBOX_STORAGE_HOSTS="127.0.0.1:9",
        SANDBOX_S3_MAX_ATTEMPTS="1",
    ) as service:
        yield service


@pytest.fixture
def client(own: Runner) -> Iterator[httpx.Client]:
    with own.client() as made:
        yield made


def archives(bucket: Path, name: str) -> list[Path]:
    return [path for path in bucket.rglob(f"{name}*.tgz") if path.is_file()]


def held(path: Path) -> dict[str, bytes]:
    """Regular files of an archive, opened with another library than the one that wrote it."""
    with tarfile.open(path) as tar:
        return {m.name.removeprefix("./"): tar.extractfile(m).read() for m in tar if m.isreg()}  # type: ignore[union-attr]


def test_variables_imports_and_figures_live_on(http: httpx.Client) -> None:
    """Weakness 1: the interpreter is kept, and a new one is a choice."""
    session = Session.new(http)
    session.exec("import math\nx = 41\ndef f(): return x + 1")
    kept = session.exec("print(f(), math.pi > 3)")
    assert (kept["stdout"], kept["interpreter"]) == ("42 True\n", "kept")
    assert session.exec("print('x' in globals())", fresh=True)["stdout"] == "False\n"
    assert session.out("print(x)") == "41\n"
    assert http.post(f"{session.conversation}/reset").status_code in (200, 204)
    assert session.out("print('x' in globals())") == "False\n"
    session.delete(discard=True)


def test_a_reaped_session_answers_as_a_live_one(http: httpx.Client) -> None:
    """Weakness 2: idle time ends a sandbox and neither the session nor its files."""
    session = Session.new(http, idle_ttl_sec=1)
    session.exec("x = 1; open('outputs/kept', 'w').write('kept')")
    until(lambda: not http.get(session.conversation).json()["live"], "the idle sandbox has ended")
    again = session.exec("print(open('outputs/kept').read(), 'x' in globals())")
    assert (again["stdout"], again["interpreter"], again["interpreter_reason"]) == ("kept False\n", "new", "idle")
    session.delete(discard=True)


def test_create_during_teardown_finds_everything(client: httpx.Client) -> None:
    """Weakness 2: a return while the archive is being made waits for it, and never begins with less."""
    name = key()
    session = Session.new(client, archive_key=name, storage=LOCAL)
    for turn in range(4):
        session.exec(f"open('outputs/n{turn}', 'w').write('{turn}')")
        ending = threading.Thread(target=session.delete)
        ending.start()
        following = Session.new(client, archive_key=name, storage=LOCAL)
        ending.join()
        found = following.out("import os; print(len(os.listdir('outputs')))")
        assert found == f"{turn + 1}\n"
        session = following
    session.delete(discard=True, archive_key=name)


def test_two_sessions_of_one_key_are_one_conversation(client: httpx.Client, bucket: Path) -> None:
    """Weakness 3: an abandoned session that ends later never puts older files over newer ones."""
    name = key()
    old = Session.new(client, archive_key=name, storage=LOCAL)
    old.exec("open('outputs/a', 'w').write('old')")
    new = Session.new(client, archive_key=name, storage=LOCAL)
    assert new.created["resumed"] is True
    new.exec("open('outputs/a', 'w').write('new')")
    assert old.delete()["archived"] is True
    assert new.out("print(open('outputs/a').read())") == "new\n"
    assert new.delete()["archived"] is True
    (archive,) = [path for path in archives(bucket, name) if "previous" not in path.name]
    assert held(archive) == {"outputs/a": b"new"}


def test_a_restore_that_fails_is_an_error(client: httpx.Client) -> None:
    """Weaknesses 4 and 17: with the bucket down there is no empty workspace in its place, and nothing is left over."""
    name = key()
    down = {"provider": "s3", "s3_bucket": "b", "s3_region": "r", "s3_endpoint": "http://127.0.0.1:9",
            "s3_access_key": "AKIAFOLIOBOX", "s3_secret_key": "do-not-keep-me"}  # fmt: skip
    status, text = detail(client.post("/sessions", json={"archive_key": name, "storage": down}))
    assert (status, text.split(":")[0]) == (500, "workspace init failed")
    assert "do-not-keep-me" not in text
    assert client.get(f"/v1/conversations/{name}").status_code == 404


def test_an_archive_that_is_damaged_is_never_replaced(client: httpx.Client, bucket: Path) -> None:
    """Weakness 4: it is told, left as it is, and what the session makes is kept here."""
    name = key()
    first = Session.new(client, archive_key=name, storage=LOCAL)
    first.exec("open('outputs/a', 'w').write('a')")
    first.delete()
    (archive,) = archives(bucket, name)
    assert client.delete(f"/v1/conversations/{name}").status_code == 204
    archive.write_bytes(archive.read_bytes()[:-30] + bytes(30))
    damaged = archive.read_bytes()
    second = Session.new(client, archive_key=name, storage=LOCAL)
    assert second.created["warnings"]
    second.exec("open('outputs/b', 'w').write('b')")
    ended = second.delete()
    assert (ended["ok"], ended["archived"]) == (True, False)
    assert archive.read_bytes() == damaged
    third = Session.new(client, archive_key=name, storage=LOCAL)
    assert third.paths() == ["outputs/b"]


def test_what_cannot_be_archived_is_kept_and_told(client: httpx.Client, bucket: Path) -> None:
    """Weakness 5: over the cap of an archive, nothing is lost and nobody is told that all went well."""
    name = key()
    session = Session.new(client, archive_key=name, storage=LOCAL)
    session.exec("import os; open('outputs/big', 'wb').write(os.urandom(2 << 20))")
    ended = session.delete()
    assert (ended["ok"], ended["archived"]) == (True, False)
    assert ended["archive_error"]
    assert archives(bucket, name) == []
    again = Session.new(client, archive_key=name, storage=LOCAL)
    assert again.out("import os; print(os.path.getsize('outputs/big'))") == f"{2 << 20}\n"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_forgets_nothing(tmp_path: Path, how: str) -> None:
    """Weaknesses 6, 7 and 8: after SIGKILL and after SIGTERM ids, idle time, storage and archive key are known."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    with running(tmp_path / "data", SANDBOX_LOCAL_STORAGE_DIR=str(bucket)) as service:
        with service.client() as http:
            session = Session.new(http, archive_key="chat-7", storage=LOCAL, idle_ttl_sec=77)
            other = Session.new(http)
            session.exec("open('outputs/made', 'w').write('made')")
            assert session.put("uploads/sent", b"sent").status_code == 200
            other.exec("open('mine', 'w').write('1')")
        service.kill() if how == "kill" else service.stop()
        service.start()
        with service.client() as http:
            session.http = other.http = http
            assert session.paths() == ["outputs/made", "uploads/sent"]
            assert session.out("print(open('outputs/made').read(), open('uploads/sent').read())") == "made sent\n"
            assert other.paths() == ["mine"]
            assert http.get(session.conversation).json()["idle_ttl_ms"] == 77_000
            assert session.delete()["archived"] is True
            (archive,) = archives(bucket, "chat-7")
            assert held(archive) == {"outputs/made": b"made"}
            assert session.post("/exec", code="1").status_code == 404
            assert Session.new(http, archive_key="chat-7").paths() == ["outputs/made"]


def test_discard_leaves_nothing(client: httpx.Client, bucket: Path) -> None:
    """Weakness 9: what a gateway deletes is gone, in the bucket and here, and under its old id too."""
    name = key()
    session = Session.new(client, archive_key=name, storage=LOCAL)
    session.exec("open('outputs/a', 'w').write('a')")
    session.delete()
    again = Session.new(client, archive_key=name, storage=LOCAL)
    assert archives(bucket, name)
    assert again.delete(discard=True, archive_key=name)["ok"] is True
    assert archives(bucket, name) == []
    assert client.get(f"/v1/conversations/{name}").status_code == 404
    assert Session.new(client, archive_key=name, storage=LOCAL).paths() == []


def test_discard_by_key_of_a_session_that_is_forgotten(client: httpx.Client, bucket: Path) -> None:
    """Weakness 9: the id may be long gone; its archive key still names what is to be deleted."""
    name = key()
    session = Session.new(client, archive_key=name, storage=LOCAL)
    session.exec("open('outputs/a', 'w').write('a')")
    session.delete()
    assert session.delete(discard=True, archive_key=name, storage=LOCAL)["known"] is False
    assert archives(bucket, name) == []
    assert client.get(f"/v1/conversations/{name}").status_code == 404


def test_a_branch_is_a_fork(http: httpx.Client) -> None:
    """Weakness 10: an edited message gets files of its own, from the version that it had."""
    name = key()
    session = Session.new(http, archive_key=name)
    version = session.exec("open('outputs/a', 'w').write('first')")["version"]
    session.exec("open('outputs/a', 'w').write('second')")
    forked = http.post(f"/v1/conversations/{name}/fork", json={"id": f"{name}-b", "version": version})
    assert forked.status_code == 201, forked.text
    branch = Session.new(http, archive_key=f"{name}-b")
    assert branch.out("print(open('outputs/a').read())") == "first\n"
    assert session.out("print(open('outputs/a').read())") == "second\n"
    session.delete(discard=True)
    branch.delete(discard=True)


def test_collection_by_age_spares_open_sessions(client: httpx.Client, bucket: Path) -> None:
    """Weakness 11: an old archive of a session that is open is in use; one of a closed session is not."""
    kept, left = key(), key()
    for name in (kept, left):
        session = Session.new(client, archive_key=name, storage=LOCAL)
        session.exec("open('outputs/a', 'w').write('a')")
        session.delete()
    Session.new(client, archive_key=kept, storage=LOCAL)
    for name in (kept, left):
        for path in archives(bucket, name):
            os.utime(path, (1, 1))
    swept = client.post("/storage/gc", json={"storage": LOCAL, "max_age_seconds": 3600}).json()
    assert swept["deleted"] >= 1
    assert archives(bucket, kept)
    assert archives(bucket, left) == []


def test_an_idle_session_is_archived(client: httpx.Client, bucket: Path) -> None:
    """Weakness 7: the copy in the bucket is made when a session is idle, not only when it ends."""
    name = key()
    session = Session.new(client, archive_key=name, storage=LOCAL, idle_ttl_sec=1)
    session.exec("open('outputs/a', 'w').write('a')")
    until(lambda: archives(bucket, name), "the idle session is archived")
    assert session.paths() == ["outputs/a"]


def test_an_archive_of_the_present_runner_is_restored(client: httpx.Client, bucket: Path) -> None:
    name = key()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:  # as `tar czf - -C /workspace .` lays it out
        folder = tarfile.TarInfo("./outputs")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        member = tarfile.TarInfo("./outputs/report.csv")
        member.size, member.mtime = 3, int(time.time()) - 1000
        tar.addfile(member, io.BytesIO(b"1,2"))
    first = Session.new(client, archive_key=f"{name}x", storage=LOCAL)  # shows where archives lie
    first.exec("open('outputs/a', 'w').write('a')")
    first.delete()
    (example,) = archives(bucket, f"{name}x")
    (example.parent / f"{name}.tgz").write_bytes(packed.getvalue())
    session = Session.new(client, archive_key=name, storage=LOCAL)
    assert session.created["restored_files"] == 1
    assert session.out("print(open('outputs/report.csv').read())") == "1,2\n"


def test_a_key_that_cannot_be_kept_is_told(http: httpx.Client) -> None:
    """Weakness 55: dropped as the protocol says, but not silently; the session keeps its files."""
    for bad in ("a b", "../x", "x" * 129, "ä", "a.b"):
        session = Session.new(http, archive_key=bad)
        assert (session.created["archive_key"], len(session.created["warnings"])) == (None, 1)
        session.delete()
    dashed = Session.new(http, archive_key="-x" + secrets.token_hex(4))
    assert dashed.created["warnings"] == []
    dashed.exec("open('outputs/a', 'w').write('a')")
    dashed.delete()
    assert Session.new(http, archive_key=dashed.created["archive_key"]).paths() == ["outputs/a"]
