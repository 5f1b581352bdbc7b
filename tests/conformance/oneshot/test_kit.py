"""The kit can fail: every answer with one thing wrong is caught, and the answers without it are not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.oneshot import test_artifacts as artifacts
from tests.conformance.oneshot import test_leases as leases
from tests.conformance.oneshot import test_requests as requests
from tests.conformance.oneshot import test_runs as runs
from tests.conformance.oneshot.client import Failed, OneshotClient
from tests.conformance.oneshot.gateway import Turn
from tests.conformance.oneshot.model import OneshotModel
from tests.conformance.tiny import Mutation, Wrong, as_is, serving

RUN = "POST /run"
Made = Callable[[int, Any], tuple[int, Any]]


def without(field: str) -> Made:
    """An answer that lacks a field."""
    return lambda status, body: (status, {name: value for name, value in body.items() if name != field})


def with_(**fields: Any) -> Made:
    """An answer with other values."""
    return lambda status, body: (status, {**body, **fields})


def status(other: int) -> Made:
    """An answer under another status."""
    return lambda _, body: (other, body)


def in_artifact(**fields: Any) -> Made:
    """An answer whose artifacts have other values."""
    return lambda status, body: (status, {**body, "artifacts": [{**each, **fields} for each in body["artifacts"]]})


def late(_: int, body: Any) -> bool:
    """An answer of a late run."""
    return body.get("timed_out") is True


def refused(status: int, _: Any) -> bool:
    """An answer of 400."""
    return status == 400


WRONG = {
    "health: up": Wrong("GET /healthz", with_(status="up")),
    "health: egress null": Wrong("GET /healthz", with_(egress=None)),
    "health: egress a string": Wrong("GET /healthz", with_(egress="false")),
    "health: egress where there is none": Wrong("GET /healthz", with_(egress=True)),
    "run: 201": Wrong(RUN, status(201)),
    "run: failure is 500": Wrong(RUN, status(500), lambda _, body: body.get("exit_code") == 1),
    "run: exit code a string": Wrong(RUN, with_(exit_code="0")),
    "run: exit code null": Wrong(RUN, with_(exit_code=None)),
    "run: no stderr": Wrong(RUN, without("stderr")),
    "run: no artifacts": Wrong(RUN, without("artifacts")),
    "run: duration a fraction": Wrong(RUN, with_(duration_ms=1.5)),
    "run: duration below zero": Wrong(RUN, with_(duration_ms=-1)),
    "run: timed_out 0": Wrong(RUN, with_(timed_out=0)),
    "run: no output_truncated": Wrong(RUN, without("output_truncated")),
    "run: container_id a number": Wrong(RUN, with_(container_id=5)),
    "run: a lease nobody asked for": Wrong(RUN, with_(container_id="sbx-9")),
    "run: no lease": Wrong(RUN, with_(container_id=None)),
    "run: signals as a shell has them": Wrong(RUN, with_(exit_code=137), lambda _, body: body.get("exit_code") == -9),
    "run: refusals are 400": Wrong(RUN, status(400), lambda _, body: body.get("exit_code") == 2),
    "run: refusals have another code": Wrong(RUN, with_(exit_code=1), lambda _, body: body.get("exit_code") == 2),
    "run: late is 124": Wrong(RUN, with_(exit_code=124), late),
    "run: late says no": Wrong(RUN, with_(timed_out=False), late),
    "run: late keeps a lease": Wrong(RUN, with_(container_id="sbx-9"), late),
    "run: late loses its part": Wrong(RUN, with_(stdout=""), late),
    "run: late in no time": Wrong(RUN, with_(duration_ms=0), late),
    "run: nothing is too long": Wrong(RUN, with_(output_truncated=False)),
    "run: nothing is too many": Wrong(RUN, with_(artifacts_truncated=False)),
    "artifact: no mime": Wrong(RUN, in_artifact(mime=None)),
    "artifact: another mime": Wrong(RUN, in_artifact(mime="text/plain")),
    "artifact: size a string": Wrong(RUN, in_artifact(size="1")),
    "artifact: another size": Wrong(RUN, in_artifact(size=10**6)),
    "artifact: not Base64": Wrong(RUN, in_artifact(content_b64="*")),
    "artifact: a name with folders": Wrong(RUN, in_artifact(name="a/b")),
    "artifact: path null": Wrong(RUN, in_artifact(path=None)),
    "artifact: path absolute": Wrong(RUN, in_artifact(path="/work/a")),
    "artifact: needless path": Wrong(RUN, lambda s, body: in_artifact()(s, {**body, "artifacts": [
        {"path": each["name"], **each} for each in body["artifacts"]]})),
    "error: detail": Wrong(RUN, lambda s, body: (s, {"detail": body["error"]}), refused),
    "error: an object": Wrong(RUN, lambda s, body: (s, {"error": {"message": body["error"]}}), refused),
    "error: 422": Wrong(RUN, status(422), refused),
    "error: no advice": Wrong(RUN, with_(error="no"), lambda s, body: s == 400 and "network" in body["error"]),
}  # fmt: skip


def ask(client: OneshotClient) -> None:
    """What the kit asks of a surface, as far as the tiny one has it."""
    for name in requests.NO_REQUEST:
        if name not in ("limit below zero", "a file's name a number"):
            requests.test_a_body_that_is_no_request_is_400(client, name)
    requests.test_defaults_and_unknown_fields(client)
    requests.test_the_agent_refuses_unsafe_names(client, "a/b")
    requests.test_no_egress_is_400_with_what_to_do(client)
    requests.test_delete_is_204_for_anything_and_takes_only_what_was_issued(client)
    runs.test_exit_codes(Turn(client), "bash", "kill -9 $$", -9)
    runs.test_exit_codes(Turn(client), "python", "1 / 0", 1)
    runs.test_a_large_stream_is_cut_in_the_middle_and_saved_whole(client)
    artifacts.test_nested_files_come_flat_with_their_path(client)
    artifacts.test_collisions_are_numbered_and_top_level_names_win(client)
    artifacts.test_the_65th_file_is_told_of(client)
    artifacts.test_types_by_extension(client)
    leases.test_a_turn_keeps_its_files_and_its_container(Turn(client))
    leases.test_a_lost_container_is_replaced_in_silence_and_noted(Turn(client))
    runs.test_a_late_run_is_minus_one_and_keeps_its_part(client)


def judge(model: OneshotModel, mutation: Mutation) -> None:
    """The kit's verdict on a surface: nothing, or what is wrong."""
    with serving(model, mutation) as url, contextlib.closing(OneshotClient(url)) as client:
        ask(client)


def test_a_surface_as_the_contract_has_it_passes(tmp_path: Path) -> None:
    judge(OneshotModel(tmp_path), as_is)


@pytest.mark.parametrize("name", list(WRONG))
def test_each_wrong_answer_is_caught(tmp_path: Path, name: str) -> None:
    with pytest.raises((AssertionError, Failed, KeyError, ValueError)):
        judge(OneshotModel(tmp_path), WRONG[name])
