"""Small files that come with the end of a run: taken only as what the report says they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.agent.protocol import FILES_ALONG, MAX_ALONG
from runner.errors import ProtocolError
from runner.interpreter.client import RunEnd, SandboxClient
from runner.interpreter.events import EventReader
from runner.interpreter.stream import Item
from tests.unit.agent.lab import local_agent, run

STREAM = {"total": 0, "forwarded": 0, "tail": ""}


def reported(**sizes: int) -> dict[str, Any]:
    created = [{"path": name, "size": size, "mode": 0o644, "modified_ns": 1} for name, size in sizes.items()]
    return {
        "seq": 1, "type": "done", "status": "ok", "exit_code": 0, "duration_ms": 1, "interpreter": "kept",
        "survivors": 0, "streams": {"stdout": STREAM, "stderr": STREAM},
        "changes": {"created": created, "modified": [], "deleted": ["gone"]},
    }  # fmt: skip


def test_they_are_taken_by_name() -> None:
    body = {**reported(a=1, b=2, c=3), "contents": ["c", "a", "b"]}
    end = EventReader("python", 0).read(Item(body, (b"ccc", b"a", b"bb")))
    assert isinstance(end, RunEnd)
    assert end.contents == {"c": b"ccc", "a": b"a", "b": b"bb"}
    assert [change.path for change in end.changes] == ["a", "b", "c", "gone"]


@pytest.mark.parametrize(
    ("names", "contents"),
    [
        (["a"], (b"xx",)),
        (["other"], (b"x",)),
        (["gone"], (b"",)),
        (["a", "a"], (b"x", b"x")),
        (["a"], ()),
        ([], (b"x",)),
        ("a", (b"x",)),
        ([["a"]], (b"x",)),
        (None, (b"x",)),
    ],
)
def test_anything_else_ends_the_sandbox(names: object, contents: tuple[bytes, ...]) -> None:
    refused(reported(a=1), names, contents)


def test_they_are_all_or_none_and_few() -> None:
    refused(reported(a=1, b=1), ["a"], (b"x",))
    refused(reported(big=MAX_ALONG + 1), ["big"], (bytes(MAX_ALONG + 1),))
    many = {f"f{n}": 0 for n in range(FILES_ALONG + 1)}
    refused(reported(**many), list(many), (b"",) * len(many))


def refused(report: dict[str, Any], names: object, contents: tuple[bytes, ...]) -> None:
    with pytest.raises(ProtocolError):
        EventReader("python", 0).read(Item({**report, "contents": names}, contents))


async def test_the_agent_sends_what_is_small_and_no_more(tmp_path: Path) -> None:
    async with local_agent(tmp_path / "work") as (ends, _):
        client = SandboxClient(ends)
        await client.attach(30)
        await client.wait_ready(30)
        _, end = await run(client, "r1", "open('a', 'w').write('one'); open('b', 'w').close()")
        assert end.contents == {"a": b"one", "b": b""}
        _, end = await run(client, "r2", "open('a', 'w').write('two'); import os; os.chmod('b', 0)")
        assert end.contents == {"a": b"two", "b": b""}
        assert {change.path: change.mode for change in end.changes} == {"a": 0o644, "b": 0}
        _, end = await run(client, "r3", f"open('large', 'wb').write(bytes({MAX_ALONG + 1}))")
        assert [change.path for change in end.changes] == ["large"]
        assert end.contents == {}
        _, end = await run(client, "r4", f"for i in range({FILES_ALONG + 1}): open(f'f{{i}}', 'w').close()")
        assert len(end.changes) == FILES_ALONG + 1
        assert end.contents == {}
        await client.destroy()
