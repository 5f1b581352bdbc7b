"""What a new conversation would refuse is refused before there is one, by the rules that hold for it later."""

from __future__ import annotations

import pytest

from runner.errors import Conflict, FolioboxError, PreconditionFailed, QuotaExceeded
from tests.unit.workspace.workspace_lab import Lab, memory_lab, run

SETTINGS = {"workspace_bytes": 10, "max_files": 3}
REFUSED: dict[str, tuple[dict[str, int], str | None, type[FolioboxError]]] = {
    "too large": ({"a": 11}, None, QuotaExceeded),
    "too large together": ({"a": 6, "b": 5}, None, QuotaExceeded),
    "too many": (dict.fromkeys("abcd", 0), None, QuotaExceeded),
    "a file where a folder is needed": ({"a": 1, "a/b": 1}, None, Conflict),
    "a folder where a file is meant": ({"a/b": 1, "a": 1}, None, Conflict),
    "a content to be matched": ({"a": 1}, "0" * 64, PreconditionFailed),
    "any content to be matched": ({"a": 1}, "*", PreconditionFailed),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    sizes, if_match, kind = REFUSED[case]
    at, _ = memory_lab(**SETTINGS)
    with pytest.raises(kind):
        at.spaces.check_first(sizes, if_match)


def test_what_passes_is_taken() -> None:
    at, _ = memory_lab(**SETTINGS)
    at.spaces.check_first({"a": 5, "b/c": 5, "b/d": 0})
    assert at.spaces.max_bytes == 10
    run(_store(at))


async def _store(at: Lab) -> None:
    async with at.spaces.stage(10) as staging:
        await staging.write(b"0123456789")
        assert await at.spaces.list("t") == []  # staging needs no conversation
        space = await at.space()
        assert (await space.put("a", staging)).size == 10
