"""What the gateway does about lost, reclaimed, busy and late sessions, and that a turn comes out all the same."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import pytest

from tests.conformance.kit import Place
from tests.conformance.sessions import shapes
from tests.conformance.sessions.client import Ran, SandboxError, SessionsClient
from tests.conformance.sessions.conftest import client_of
from tests.conformance.sessions.gateway import Busy, Conversation
from tests.conformance.shapes import hold
from tests.support.runner import running
from tests.support.waiting import aside, until

Talk = Callable[..., Conversation]
T = TypeVar("T")
READ = "print(open('/workspace/uploads/a.txt').read())"


def test_a_session_lost_between_turns_is_replaced_once_and_staged_again(talk: Talk) -> None:
    chat = talk(uploads=[("a.txt", b"input")])
    assert chat.python(READ).ran.stdout == "input\n"
    chat.client.delete(chat.sandbox_id, discard=True)
    assert chat.python(READ).ran.stdout == "input\n"
    assert len(chat.created) == 2
    assert len(set(chat.created)) == 2


def test_a_session_lost_between_staging_and_run(talk: Talk) -> None:
    chat = talk(uploads=[("a.txt", b"input")])
    chat.python("1")
    stage, lost = chat._stage, iter([True])

    def stage_and_lose(session: str) -> None:
        stage(session)
        if next(lost, False):
            chat.client.delete(session, discard=True)

    chat._stage = stage_and_lose  # type: ignore[method-assign]
    assert chat.python(READ).ran.stdout == "input\n"
    assert len(chat.created) == 2


def test_each_call_of_a_lost_session_says_so_in_words_both_clients_know(client: SessionsClient) -> None:
    session = client.create()
    client.delete(session)
    for path, more in (("/exec", {"code": "1"}), ("/files", {"path": "a", "data_base64": ""}),
                       ("/files/get", {"path": "a"}), ("/files/list", {})):  # fmt: skip
        answer = client.send("POST", path, {"session_id": session, **more})
        assert answer.status_code == 404, path
        assert hold(shapes.DETAIL, answer.json())["detail"] == "session not found or not running"
    reset = client.send("POST", "/files/reset-inputs", {"session_id": session})
    if reset.status_code == 404:
        assert hold(shapes.DETAIL, reset.json())["detail"] == "session not found or not running"
    else:
        assert (reset.status_code, hold(shapes.RESET, reset.json())["session_gone"]) == (200, True)


def test_an_idle_session_is_reclaimed_and_its_conversation_goes_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    env = {"SANDBOX_IDLE_REAPER_SWEEP_INTERVAL": "1", "SANDBOX_IDLE_TTL_SECONDS": "1"}
    storage = tmp_path_factory.mktemp("reaped-storage")
    data = tmp_path_factory.mktemp("reaped")
    with running(data, SANDBOX_LOCAL_STORAGE_DIR=str(storage), **env) as service:
        place = Place(service.url, service.key, storage)
        for later in (False, True):
            client = client_of(place, later)
            chat = Conversation(client, f"reaped-{later}", {"provider": "local"}, 1, uploads=[("a.txt", b"input")])
            chat.python("open('/workspace/kept.txt', 'w').write('kept')")
            archive = storage / "workspaces" / "workspaces" / f"reaped-{later}.tgz"
            until(archive.exists, "the idle session is archived")
            seen = chat.python("print(open('/workspace/kept.txt').read(), open('/workspace/uploads/a.txt').read())")
            assert seen.ran.stdout == "kept input\n", seen.text
            client.close()


@pytest.fixture
def few(crowded: Place) -> Iterator[SessionsClient]:
    """The later client where places are few; its limit is that of a run there."""
    client = client_of(crowded, later=True, exec_s=6)
    yield client
    client.close()


def patient(step: Callable[[], T]) -> T:
    """What a step gives as soon as it is not told 429: where nobody waits long, a busy machine alone refuses some."""
    found: list[T] = []

    def done() -> bool:
        try:
            found.append(step())
        except (SandboxError, Busy) as error:
            if isinstance(error, SandboxError) and error.status != 429:
                raise
        return bool(found)

    until(done, "it is not told 429", 60)
    return found[0]


def begun(client: SessionsClient, session: str) -> Future[Ran]:
    """A long run, seen to be running by what it makes another process listen to."""
    patient(lambda: client.exec(session, "import os\nif os.path.exists('begun'): os.remove('begun')"))
    code = "import time; print('begun'); time.sleep(60)"
    return aside(lambda: patient(lambda: client.exec(session, code, timeout_ms=6000)))


@contextlib.contextmanager
def occupied(client: SessionsClient, sessions: list[str]) -> Iterator[None]:
    """Long runs in each of these sessions, one after the other, for the length of a block."""
    over = threading.Event()

    def go(session: str) -> None:
        while not over.is_set():
            with contextlib.suppress(SandboxError):
                client.exec(session, "import time; time.sleep(60)", timeout_ms=6000)

    longs = [aside(lambda session=session: go(session)) for session in sessions]  # type: ignore[misc]
    try:
        yield
    finally:
        over.set()
        for long in longs:
            long.result(60)


def refusal(client: SessionsClient, path: str, body: object) -> str:
    """What a call is told as soon as it is told 429."""
    said: list[str] = []

    def refused() -> bool:
        answer = client.send("POST", path, body)
        if answer.status_code == 429:
            said.append(hold(shapes.DETAIL, answer.json())["detail"])
        return bool(said)

    until(refused, f"{path} is told 429")
    return said[0]


def test_a_busy_session_says_so(few: SessionsClient) -> None:
    session = patient(few.create)
    long = begun(few, session)
    assert refusal(few, "/exec", {"session_id": session, "code": "1"}) == "session is busy"
    assert long.result(60).exit_code == 124
    assert patient(lambda: few.exec(session, "print(1)")).stdout == "1\n"
    few.delete(session, discard=True)


def test_the_queue_of_runs_is_full(few: SessionsClient) -> None:
    sessions = [patient(few.create) for _ in range(3)]
    with occupied(few, sessions[:2]):
        assert refusal(few, "/exec", {"session_id": sessions[2], "code": "1"}) == "exec queue is full"
    assert patient(lambda: few.exec(sessions[2], "print(1)")).stdout == "1\n"
    for session in sessions:
        few.delete(session, discard=True)


def test_more_sessions_than_there_may_be_while_all_are_busy(tmp_path_factory: pytest.TempPathFactory) -> None:
    env = {"SANDBOX_MAX_SESSIONS": "1", "SANDBOX_QUEUE_TIMEOUT_SECONDS": "1"}
    with running(tmp_path_factory.mktemp("one"), **env) as service:
        client = client_of(Place(service.url, service.key))
        session = patient(client.create)
        with occupied(client, [session]):
            assert refusal(client, "/sessions", {}) in ("too many active sessions", "session create queue is full")
        patient(lambda: client.delete(session, discard=True))
        again = patient(client.create)
        assert patient(lambda: client.exec(again, "print(1)")).stdout == "1\n"
        client.close()


def test_the_later_gateway_replaces_a_busy_session(few: SessionsClient) -> None:
    chat = Conversation(few, "conv-busy", uploads=[("a.txt", b"input")])
    patient(lambda: chat.python("1"))
    held = chat.sandbox_id
    long = begun(few, held)
    assert refusal(few, "/exec", {"session_id": held, "code": "1"}) == "session is busy"
    assert patient(lambda: chat.python(READ)).ran.stdout == "input\n"
    assert chat.sandbox_id != held
    long.cancel()
    patient(chat.clear)


def test_other_refusals_reach_the_user(few: SessionsClient) -> None:
    sessions = [patient(few.create) for _ in range(2)]
    chat = Conversation(few, "conv-full")
    patient(chat._session)
    told: list[str] = []

    def refused() -> bool:
        try:
            chat.python("1")
        except Busy as error:
            told.append(str(error))
        return bool(told)

    with occupied(few, sessions):
        until(refused, "the user is told", 60)
    assert "exec queue is full" in told[0]
    assert len(chat.created) == 1
    for session in sessions:
        few.delete(session, discard=True)
    patient(chat.clear)


def test_a_late_run_is_124_with_its_note_and_keeps_what_it_wrote(client: SessionsClient, session: str) -> None:
    code = "import time\nopen('/workspace/outputs/part', 'w').write('half')\nprint('begun', flush=True)\ntime.sleep(60)"
    ran = client.exec(session, code, timeout_ms=1500)
    assert (ran.exit_code, ran.stdout) == (124, "begun\n")
    assert ran.stderr.endswith("\n[sandbox] execution exceeded 1.500s and was killed")
    assert [(name, data) for name, _, data in ran.files] == [("part", b"half")]
    assert client.exec(session, "print('well')").stdout == "well\n"


def test_a_cell_that_ignores_signals_is_late_too(client: SessionsClient, session: str) -> None:
    code = "import signal, time\nfor s in (signal.SIGTERM, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
    ran = client.exec(
        session, code + "while True:\n    try: time.sleep(60)\n    except BaseException: pass", timeout_ms=1000
    )
    assert ran.exit_code == 124
    assert "[sandbox] execution exceeded 1.000s and was killed" in ran.stderr
    assert client.exec(session, "print('well')").stdout == "well\n"


def test_exit_124_of_its_own_is_no_late_run(client: SessionsClient, session: str) -> None:
    ran = client.exec(session, "import sys; sys.exit(124)")
    assert ran.exit_code == 124
    assert "[sandbox]" not in ran.stderr


def test_children_that_a_run_leaves_are_gone_and_do_not_hold_it(client: SessionsClient, session: str) -> None:
    code = "import subprocess\np = subprocess.Popen(['sleep', '300'], env={}, start_new_session=True)\nprint(p.pid)"
    pid = client.exec(session, code, timeout_ms=20000).stdout.strip()
    alive = client.exec(session, f"import os\nprint(os.path.exists('/proc/{pid}') and open('/proc/{pid}/comm').read())")
    assert "sleep" not in alive.stdout


@pytest.mark.parametrize("where", ["/tmp", "/workspace"])
def test_a_full_folder_wedges_nothing(client: SessionsClient, where: str) -> None:
    chat = Conversation(client, f"full-{where[1:]}", uploads=[("a.txt", b"input")])
    fill = f"""
f = open('{where}/fill', 'wb')
try:
    while True: f.write(b'x' * (1 << 20))
except OSError as error: print('full', error.errno)
"""
    assert chat.python("print(1)").ran.stdout == "1\n"
    assert chat.python(fill).ran.stdout in ("full 27\n", "full 28\n")
    freed = chat.python(f"import os\nif os.path.exists('{where}/fill'): os.remove('{where}/fill')\nprint('free')")
    assert freed.ran.stdout == "free\n"
    assert chat.python(READ).ran.stdout == "input\n"
    chat.clear()


def test_a_read_only_folder_among_the_inputs_does_not_stop_the_next_reset(talk: Talk) -> None:
    chat = talk(uploads=[("a.txt", b"input")])
    made = "import os\nos.makedirs('/workspace/uploads/ro/x')\nopen('/workspace/uploads/ro/f', 'w')\n"
    chat.python(made + "os.chmod('/workspace/uploads/ro', 0o500)\nos.chmod('/workspace/uploads', 0o500)")
    assert chat.python("import os; print(sorted(os.listdir('/workspace/uploads')))").ran.stdout == "['a.txt']\n"


def test_parallel_calls_on_a_lost_session_agree_on_one_new_one(talk: Talk) -> None:
    chat = talk(uploads=[("a.txt", b"input")])
    chat.python("1")
    chat.client.delete(chat.sandbox_id, discard=True)
    barrier = threading.Barrier(3)

    def go(number: int) -> str:
        barrier.wait(30)
        return chat.python(f"print({number})").ran.stdout

    turns = [aside(lambda number=number: go(number)) for number in range(3)]  # type: ignore[misc]
    assert [turn.result(60) for turn in turns] == ["0\n", "1\n", "2\n"]
    assert len(chat.created) == 2


def test_an_error_that_is_no_lost_session_is_not_recovered_from(talk: Talk) -> None:
    chat = talk(uploads=[("nul\0name", b"x")])
    with pytest.raises(SandboxError) as refused:
        chat.python("1")
    assert 400 <= refused.value.status < 500
    assert len(chat.created) == 1
