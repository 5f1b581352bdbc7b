"""Reading settings: accepted forms, and errors that name variable, value and form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from runner import environment
from runner.errors import ConfigurationError

READERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], list[str]]] = {
    "size": (
        environment.size,
        (1,),
        {"512m": 512 << 20, "2G": 2 << 30, "64": 64, "1048576t": 1 << 60},
        ["0", "-1", "1.5g", "٣", "1gb", "1KiB", "1048577t"],
    ),
    "integer": (environment.integer, (7,), {"0": 0, "12": 12}, ["-1", "1.0", "x", "9" * 30, "1000000001"]),
    "number": (environment.number, (1.0,), {"0.5": 0.5, "2": 2.0}, ["-1", "nan", "inf", "x", "31536001", "1e9"]),
    "switch": (environment.switch, (False,), {"1": True, "On": True, "no": False, "": False}, ["maybe", "2"]),
}


@pytest.mark.parametrize("kind", READERS)
def test_accepted_and_refused(kind: str) -> None:
    read, default, good, bad = READERS[kind]
    assert read({}, "SANDBOX_X", *default) == default[0]
    for raw, value in good.items():
        assert read({"SANDBOX_X": raw}, "SANDBOX_X", *default) == value
    for raw in bad:
        with pytest.raises(ConfigurationError) as caught:
            read({"SANDBOX_X": raw}, "SANDBOX_X", *default)
        assert "SANDBOX_X" in caught.value.detail
        assert raw in caught.value.detail


def test_choice_lists_what_is_allowed() -> None:
    assert environment.choice({"X": " Auto "}, "X", "auto", ("auto", "other")) == "auto"
    with pytest.raises(ConfigurationError, match="auto, other"):
        environment.choice({"X": "none"}, "X", "auto", ("auto", "other"))


def test_folders_must_be_absolute() -> None:
    assert environment.folder({}, "X") is None
    with pytest.raises(ConfigurationError, match="absolute"):
        environment.folder({"X": "here"}, "X")
