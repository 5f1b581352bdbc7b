"""What a run may show is bounded in number and in bytes, and the last update of a display is never lost."""

from __future__ import annotations

from typing import Any

import pytest

from runner.agent.outputs import Displays
from runner.agent.protocol import DISPLAYS_KEEP, Json


def shown(text: str, kind: str = "display", name: str | None = None) -> Json:
    return {"kind": kind, "data": {"text/plain": text}, "display_id": name}


def test_displays_beyond_the_bound_are_counted_only() -> None:
    displays = Displays()
    assert sum(displays.take(shown("x"), ()) for _ in range(DISPLAYS_KEEP + 5)) == DISPLAYS_KEEP
    assert displays.dropped == 5
    assert displays.held() == []


def test_bytes_of_all_kinds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.agent.outputs.DISPLAY_BYTES", 10)
    displays = Displays()
    assert displays.take(shown("123"), (b"45", b"6"))
    assert not displays.take(shown("78901"), ())
    assert displays.take(shown("7890"), ())
    assert displays.dropped == 1


def test_late_updates_replace_each_other_and_the_last_is_sent_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.agent.outputs.UPDATES_KEEP", 2)
    displays = Displays()
    displays.take(shown("0", name="a"), ())
    sent = [displays.take(shown(str(number), "update", "a"), ()) for number in range(1, 100)]
    assert sent == [True, True] + [False] * 97
    assert [body["data"]["text/plain"] for body, _ in displays.held()] == ["99"]
    assert displays.dropped == 0


@pytest.mark.parametrize("name", [None, 7, ["a"], {"a": 1}])
def test_an_update_of_nothing_counts_as_a_display(name: Any) -> None:
    displays = Displays()
    sent = sum(displays.take({**shown("x", "update"), "display_id": name}, ()) for _ in range(DISPLAYS_KEEP + 1))
    assert sent == DISPLAYS_KEEP


def test_held_updates_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.agent.outputs.UPDATES_KEEP", 0)
    monkeypatch.setattr("runner.agent.outputs._HELD_BYTES", 4)
    displays = Displays()
    for name in "ab":
        displays.take(shown("x", name=name), ())
    assert not displays.take(shown("123", "update", "a"), ())
    assert not displays.take(shown("45", "update", "b"), ())
    assert [body["display_id"] for body, _ in displays.held()] == ["a"]
    assert displays.dropped == 1
