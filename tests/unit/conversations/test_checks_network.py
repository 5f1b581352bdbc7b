"""A run that asks for network: 422 where there is none, 503 where there was and may be again, and else nothing."""

from __future__ import annotations

import pytest

from runner.api.errors import status_of
from runner.backends.base import BackendReport
from runner.backends.egress import Egress
from runner.conversations.checks import check_network
from runner.errors import EgressLost, EgressUnavailable

NEVER, LOST = Egress(False, "never"), Egress(False, "silent", lost=True)


def told(network: Egress) -> BackendReport:
    return BackendReport("lab", True, network=network)


def test_what_was_never_there_is_the_callers_to_change() -> None:
    with pytest.raises(EgressUnavailable) as caught:
        check_network(told(NEVER), wanted=True)
    assert status_of(caught.value) == 422


def test_what_was_there_may_come_back() -> None:
    with pytest.raises(EgressLost) as caught:
        check_network(told(LOST), wanted=True)
    assert (status_of(caught.value), caught.value.fields["retry_after_ms"]) == (503, 30_000)
    assert "silent" in caught.value.detail


@pytest.mark.parametrize("network", [Egress(True, "on"), Egress(None, "busy")])
def test_where_it_may_be_there_it_is_tried(network: Egress) -> None:
    check_network(told(network), wanted=True)


@pytest.mark.parametrize("network", [NEVER, LOST])
@pytest.mark.parametrize("wanted", [False, None])
def test_who_does_not_ask_is_not_refused(network: Egress, wanted: bool | None) -> None:
    check_network(told(network), wanted)
