"""A runner killed in the middle of uploads and runs: all that it acknowledged is there, byte for byte."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.unit.workspace.workspace_lab import get, lab, run, sha

CHILD = """
import asyncio, hashlib
from pathlib import Path
from tests.unit.workspace.workspace_lab import cut, lab, put

async def many(space, files):
    items = [(path, space.stage()) for path in files]
    for path, staging in items:
        await staging.write(files[path])
    await space.put_many(items)

async def main():
    async with lab(Path({folder!r})) as at:
        async def writer(who):
            space = await at.space(f"c{{who}}")
            for turn in range(100_000):
                data = f"{{who}} {{turn}} {start}".encode() * (1 + turn % 3 * 20_000)
                path = f"up/{{turn % 40}}-{start}"
                if turn % 4 == 3:
                    await space.begin_execution(f"x{{turn}}-{start}", {{"turn": turn}})
                    print(f"c{{who}}", f"begin/x{{turn}}-{start}", "-", flush=True)
                    await cut(space, path, data)
                    assert await space.end_execution(f"x{{turn}}-{start}", {{"turn": turn}})
                    print(f"c{{who}}", f"end/x{{turn}}-{start}", "-", flush=True)
                elif turn % 4 == 2:
                    await many(space, {{f"in/{{twin}}-{{turn}}-{start}": data for twin in "ab"}})
                    await space.move("in", f"moved/{{turn}}-{start}")
                    await put(space, path, data)
                else:
                    await put(space, path, data)
                print(f"c{{who}}", path, hashlib.sha256(data).hexdigest(), flush=True)
        await asyncio.gather(*map(writer, range(3)))

asyncio.run(main())
"""


def test_killed_in_the_middle_of_uploads_and_runs(tmp_path: Path) -> None:
    repeat = int(os.environ.get("FOLIOBOX_REPEAT", "1"))
    dice = random.Random(1)
    acknowledged: dict[tuple[str, str], str] = {}
    for start in range(3 * repeat):
        unsure = killed(tmp_path, start, dice.randint(10, 120), acknowledged)
        run(verify(tmp_path, acknowledged, unsure))


def killed(folder: Path, start: int, after: int, acknowledged: dict[tuple[str, str], str]) -> int:
    """Run a writer until it has acknowledged ``after`` writes, kill it, and note all that it said."""
    code = CHILD.format(folder=str(folder), start=start)
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": root},
    ) as child:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout):
            if not line.endswith("\n"):
                break
            name, path, digest = line.split()
            acknowledged[name, path] = digest
            if number == after:
                child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    return start


async def verify(folder: Path, acknowledged: dict[tuple[str, str], str], start: int) -> None:
    """Every acknowledged file has its bytes, or those of a later write that had no time to say so."""
    async with lab(folder) as at:
        assert at.staged() == []
        for name in await at.spaces.list("t"):
            space = await at.spaces.find("t", name)
            assert space is not None
            for path, entry in space.files.items():
                data = await get(space, path)
                assert sha(data) == entry.sha256 == hashlib.sha256(data).hexdigest()
                known = acknowledged.get((name, path))
                if known != entry.sha256 and not path.startswith(("in/", "moved/")):
                    assert path.endswith(f"-{start}") and path.startswith("up/"), path
                    acknowledged[name, path] = entry.sha256
            said = {path for who, path in acknowledged if who == name}
            records = {path for path in said if path.startswith(("begin/", "end/"))}
            assert not said - records - set(space.files)
            for path in records:
                record = await space.read_execution(path.partition("/")[2])
                assert record is not None
                assert record.end == record.begin or path.startswith("begin/")
            twins = {path for path in space.files if path.startswith(("in/", "moved/"))}
            assert {path.replace("/a-", "/b-") for path in twins} == {path for path in twins if "/b-" in path}
