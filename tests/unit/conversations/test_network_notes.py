"""Whether a sandbox has network is noted with whose it is, so that the next start knows it too."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.conversations.assignments import Assignment, Assignments
from runner.conversations.records import fingerprint
from runner.model import RunRequest, SandboxLimits


class Owner:
    """A conversation's names."""

    tenant, id, incarnation = "t", "c", "i"


@pytest.mark.parametrize("network", [True, False])
async def test_a_note_says_whether_there_is_network(tmp_path: Path, network: bool) -> None:
    notes = Assignments(tmp_path)
    await notes.note("s", Owner(), SandboxLimits(), network=network)
    assert [one.network for one in await notes.all()] == [network]


def test_a_note_of_an_earlier_release_is_of_one_without() -> None:
    told = {"tenant": "t", "conversation": "c", "incarnation": "i", "agent": "a", "created": "x", "limits": {}}
    read = [Assignment.read("s", {**told, **more}) for more in ({}, {"network": "yes"}, {"network": True})]
    assert [one and one.network for one in read] == [False, False, True]


def test_a_key_is_claimed_for_a_request_with_its_network() -> None:
    prints = {fingerprint(RunRequest("1", network=network)) for network in (None, True, False)}
    assert len(prints) == 3
