"""The kit can fail: every answer with one thing wrong is caught, and the answers without it are not."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.kit import Place
from tests.conformance.sessions import test_conversation as conversation
from tests.conformance.sessions import test_recovery as recovery
from tests.conformance.sessions import test_rows as rows
from tests.conformance.sessions.client import SandboxError, SessionGone, SessionsClient
from tests.conformance.sessions.conftest import client_of
from tests.conformance.sessions.gateway import Conversation
from tests.conformance.sessions.model import SessionsModel
from tests.conformance.tiny import Mutation, Wrong, as_is, serving


def without(field: str) -> Callable[[int, Any], tuple[int, Any]]:
    """An answer that lacks a field."""
    return lambda status, body: (status, {name: value for name, value in body.items() if name != field})


def with_(**fields: Any) -> Callable[[int, Any], tuple[int, Any]]:
    """An answer with other values."""
    return lambda status, body: (status, {**body, **fields})


def status(other: int) -> Callable[[int, Any], tuple[int, Any]]:
    """An answer under another status."""
    return lambda _, body: (other, body)


def in_file(**fields: Any) -> Callable[[int, Any], tuple[int, Any]]:
    """An answer whose artifacts have other values."""
    return lambda status, body: (status, {**body, "files": [{**each, **fields} for each in body["files"]]})


EXEC, FILES, GET, LIST, RESET = (
    f"POST /{name}" for name in ("exec", "files", "files/get", "files/list", "files/reset-inputs")
)
WRONG = {
    "health: ok a string": Wrong("GET /healthz", with_(ok="true")),
    "health: no docker": Wrong("GET /healthz", without("docker")),
    "health: 503 that is ok": Wrong("GET /healthz", status(503)),
    "create: 201": Wrong("POST /sessions", status(201)),
    "create: id with dashes": Wrong("POST /sessions", with_(session_id="0" * 8 + "-" + "0" * 24)),
    "create: no id": Wrong("POST /sessions", without("session_id")),
    "exec: exit code a string": Wrong(EXEC, with_(exit_code="0")),
    "exec: exit code a boolean": Wrong(EXEC, with_(exit_code=False)),
    "exec: stderr null": Wrong(EXEC, with_(stderr=None)),
    "exec: no files": Wrong(EXEC, without("files")),
    "exec: files null": Wrong(EXEC, with_(files=None)),
    "exec: stdout of another": Wrong(EXEC, with_(stdout="")),
    "exec: data not Base64": Wrong(EXEC, in_file(data_base64="%%")),
    "exec: data of another": Wrong(EXEC, in_file(data_base64="")),
    "exec: name a path": Wrong(EXEC, in_file(name="outputs/r.txt")),
    "exec: no mime": Wrong(EXEC, in_file(mime_type="")),
    "exec: failure is 500": Wrong(EXEC, status(500), lambda _, body: body.get("exit_code") == 1),
    "exec: late is 137": Wrong(EXEC, with_(exit_code=137), lambda _, body: body.get("exit_code") == 124),
    "exec: late without note": Wrong(EXEC, with_(stderr=""), lambda _, body: body.get("exit_code") == 124),
    "exec: gone is 410": Wrong(EXEC, status(410), lambda status, _: status == 404),
    "exec: gone in other words": Wrong(EXEC, with_(detail="no sandbox"), lambda status, _: status == 404),
    "exec: problem document": Wrong(EXEC, lambda s, body: (s, {"title": body["detail"]}), lambda s, _: s == 404),
    "files: not ok": Wrong(FILES, with_(ok=False)),
    "files: ok is 1": Wrong(FILES, with_(ok=1)),
    "files: 204": Wrong(FILES, lambda *_: (204, None)),
    "files: path 422": Wrong(FILES, status(422), lambda status, body: "path" in str(body.get("detail"))),
    "files: base64 in other words": Wrong(FILES, with_(detail="bad base64"), lambda s, body: "base64" in str(body)),
    "get: data null": Wrong(GET, with_(data_base64=None)),
    "get: data empty": Wrong(GET, with_(data_base64="")),
    "get: missing is 200": Wrong(GET, lambda *_: (200, {"data_base64": ""}), lambda status, _: status == 404),
    "list: size a string": Wrong(LIST, in_file(size="4")),
    "list: absolute": Wrong(LIST, in_file(path="/workspace/a/b.txt")),
    "reset: ok while gone": Wrong(RESET, with_(ok=True), lambda _, body: body.get("session_gone") is True),
    "reset: gone a string": Wrong(RESET, with_(session_gone="no")),
    "reset: does nothing but say so": Wrong(RESET, with_(ok=False)),
    "ids: 404 for a bad one": Wrong(EXEC, status(404), lambda status, _: status == 400),
    "schema: 400": Wrong(EXEC, status(400), lambda status, _: status == 422),
    "schema: detail a string": Wrong(EXEC, with_(detail="invalid"), lambda status, _: status == 422),
    "key: 403": Wrong("POST /sessions", status(403), lambda status, _: status == 401),
    "key: detail": Wrong("POST /sessions", lambda s, _: (s, {"detail": "unauthorized"}), lambda s, _: s == 401),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SessionsModel:
    """The tiny surface that all of these runs are served by."""
    return SessionsModel(tmp_path_factory.mktemp("tiny"), secrets.token_hex(8))


def whole_kit(place: Place, later: bool) -> None:
    """What the kit asks of a surface, as far as the tiny one has it."""
    with contextlib.closing(client_of(place, later)) as client:
        ask(place, client)


def ask(place: Place, client: SessionsClient) -> None:
    """The questions themselves."""
    rows.test_health_is_open_and_says_what_it_says(client)
    rows.test_every_route_wants_the_key(place, "Bearer wrong")
    session = client.create()
    for row in rows.ROWS:
        errors = row.path in ("/exec", "/files", "/files/get", "/files/list") and row.status != 422
        if errors or row.name.endswith("no id"):
            rows.test_each_error_of_the_section_has_its_status_and_text(client, row)
    for on_session in rows.ON_SESSION:
        rows.test_errors_of_a_session_that_is_there(client, session, on_session)
    rows.test_reset_of_an_unknown_session_is_one_of_two_answers(client)
    rows.test_delete_of_an_unknown_session_is_well(client)
    client.put(session, "a/b.txt", b"four")
    assert client.get(session, "a/b.txt") == b"four"
    assert client.list(session) == {"a/b.txt": 4}
    made = iter(range(100))

    def talk(**fields: Any) -> Conversation:
        return Conversation(client, f"conv-{next(made)}-{client.later}", **fields)

    conversation.test_inputs_are_there_on_every_call_as_they_were_sent(talk)
    conversation.test_artifacts_are_the_new_and_changed_files_of_outputs(talk)
    conversation.test_exit_codes_and_streams_of_a_failing_run(client, session)
    recovery.test_a_session_lost_between_turns_is_replaced_once_and_staged_again(talk)
    recovery.test_a_session_lost_between_staging_and_run(talk)
    recovery.test_a_late_run_is_124_with_its_note_and_keeps_what_it_wrote(client, session)


def judge(model: SessionsModel, mutation: Mutation, later: bool = True) -> None:
    """The kit's verdict on a surface: nothing, or what is wrong."""
    with serving(model, mutation) as url:
        whole_kit(Place(url, model.key), later)


@pytest.mark.parametrize("later_client", [False, True], ids=["base client", "later client"])
@pytest.mark.parametrize("later_server", [False, True], ids=["base answer", "later answer"])
def test_a_surface_as_the_contract_has_it_passes(tmp_path: Path, later_client: bool, later_server: bool) -> None:
    judge(SessionsModel(tmp_path, "key", later_server), as_is, later_client)


@pytest.mark.parametrize("name", list(WRONG))
def test_each_wrong_answer_is_caught(model: SessionsModel, name: str) -> None:
    with pytest.raises((AssertionError, SandboxError, SessionGone, KeyError, ValueError)):
        judge(model, WRONG[name])
