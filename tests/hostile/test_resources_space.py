"""Cases 21, 22, 23 and 25: space and inodes of a sandbox's folders, and sizes that are only claimed.

Verdicts: free space and inodes of the host, file systems of the sandbox seen through its root, bytes that the
runner read. Controls: folders without a size, and mounts without bounds.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.hostile.conftest import Make
from tests.hostile.support import measures, outside
from tests.hostile.support.measures import Background, Peak
from tests.hostile.support.place import Place

MIB = 1 << 20
FOLDERS = ("/workspace", "/tmp", "/home/sandbox", "/dev/shm")
DISK = """
import errno
parts = []
for part in range(10):
    with open(f"/workspace/fill{part}", "wb", buffering=0) as file:
        try:
            for _ in range(8):
                file.write(b"x" * (1 << 20))
        except OSError as error:
            parts.append(error.errno)
print(errno.ENOSPC in parts)
"""
GROW = """
with open("/tmp/fill", "wb", buffering=0) as file:
    for _ in range(12):
        file.write(bytes(1 << 20))
with open("/tmp/fill2", "wb", buffering=0) as file:
    for _ in range(12):
        file.write(bytes(1 << 20))
print("24 MiB")
"""
INODES = """
import errno, os
MAKE = {
    "file": lambda path: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)),
    "folder": os.mkdir,
    "symlink": lambda path: os.symlink("x", path),
    "link": lambda path: os.link(BASE, path),
}
for number, (kind, make) in enumerate(MAKE.items()):
    folder = FOLDERS[number]
    BASE, made, ends = f"{folder}/base", 0, None
    open(BASE, "w").close()
    try:
        while made < 200_000:
            make(f"{folder}/{kind}{made}")
            made += 1
    except OSError as error:
        ends = errno.errorcode[error.errno]
    print(folder, kind, made, ends)
    for name in range(made):
        path = f"{folder}/{kind}{name}"
        os.rmdir(path) if kind == "folder" else os.unlink(path)
    os.unlink(BASE)
"""
CLAIMED = """
import os
for part in range(4):
    with open(f"/workspace/claimed{part}", "wb") as file:
        file.truncate(12 << 20)
        file.seek(12 << 20)
print(sum(os.stat(f"/workspace/claimed{part}").st_blocks for part in range(4)))
"""
MANY_CLAIMED = """
for part in range(24):
    with open(f"/workspace/claimed{part}", "wb") as file:
        file.truncate(12 << 20)
"""
HARD_LINKS = """
import os
with open("/workspace/claimed0", "wb") as file:
    file.truncate(12 << 20)
for part in range(1, 24):
    os.link("/workspace/claimed0", f"/workspace/claimed{part}")
"""
ONE_CLAIMED = """
with open("/workspace/fits", "wb") as file:
    file.truncate(12 << 20)
"""
LARGE = """
with open("/workspace/large", "wb") as file:
    file.truncate(480 << 20)
"""
SYMLINKS = """
import os
for number in range(19_000):
    os.symlink("t" * 4000, f"/workspace/{number}")
"""
GAMES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
ends = []
fd = os.open("/workspace/huge", os.O_CREAT | os.O_RDWR)
for attempt in (
    lambda: os.ftruncate(fd, 1 << 40),
    lambda: os.posix_fallocate(fd, 0, 1 << 40),
    lambda: os.pwrite(fd, b"x", 1 << 40),
    lambda: os.truncate("/workspace/huge", 1 << 62),
):
    try:
        attempt()
        ends.append(0)
    except OSError as error:
        ends.append(error.errno)
print(ends, os.stat("/workspace/huge").st_size)
for _ in range(20000):
    os.ftruncate(fd, 16 << 20)
    os.ftruncate(fd, 0)
os.unlink("/workspace/huge")
"""


def test_21_a_full_workspace_costs_the_host_no_more_than_its_quota_and_is_rolled_back(small: Make) -> None:
    place = small()
    data = place.runner.data
    before = measures.free(data)
    place.say("open('kept', 'w').write('before')")
    result = place.run("open('kept', 'w').write('after')\n" + DISK, timeout_ms=60_000)
    assert result["stdout"] == "True\n"
    assert result["files_error"]["code"] == "quota_exceeded"
    assert "SANDBOX_WORKSPACE_SIZE" in result["files_error"]["detail"]
    assert result["files"] == []
    spent, inodes = (then - now for then, now in zip(before, measures.free(data), strict=True))
    kept = sum(path.stat().st_blocks * 512 for path in data.rglob("*") if path.is_file())
    assert kept <= 2 * 16 * MIB
    assert spent < 512 * MIB  # others write to this disk, too
    assert inodes < 10_000
    assert place.say("import os; print(open('kept').read(), os.path.exists('fill0'))") == "before False\n"
    place.chat.purge()


def test_25_sizes_that_are_only_claimed_are_refused_whole_and_nothing_is_read(small: Make) -> None:
    """Four files of 12 MiB without a block: more than the quota by size, nothing by bytes."""
    place = small()
    place.say("open('kept', 'w').write('before')")
    version = place.run("1")["version"]
    with Peak(place.runner.pid) as peak:
        result = place.run("open('kept', 'w').write('after')\n" + CLAIMED)
    assert result["stdout"].splitlines()[-1] == "0"
    assert result["files_error"]["code"] in ("quota_exceeded", "too_large"), result["files_error"]
    assert result["files"] == []
    assert result["version"] == version
    assert peak.grown_mib < 64
    assert max(peak.read_mib, peak.written_mib) < 4
    assert place.say("import os; print(open('kept').read(), sorted(os.listdir('/workspace')).count('claimed0'))") == (
        "before 0\n"
    )
    assert place.chat.files() == ["kept"]
    place.chat.purge()


@pytest.mark.parametrize("attack", [MANY_CLAIMED, HARD_LINKS])
def test_25_names_that_claim_more_than_the_quota_together_write_nothing_to_the_host(small: Make, attack: str) -> None:
    place = small()
    with Peak(place.runner.pid) as control:
        assert [file["path"] for file in place.run(ONE_CLAIMED)["files"]] == ["fits"]
    assert min(control.read_mib, control.written_mib) >= 12  # what is stored is seen
    stored = _stored(place)
    with Peak(place.runner.pid) as peak:
        result = place.run(attack)
    assert result["files_error"]["code"] == "quota_exceeded"
    assert "SANDBOX_WORKSPACE_SIZE" in result["files_error"]["detail"]
    assert max(peak.read_mib, peak.written_mib) < 4
    assert _stored(place) - stored < MIB
    assert place.say("import os; print(os.path.exists('fits'), os.path.exists('claimed0'))") == "True False\n"
    place.chat.purge()


def test_25_storing_ends_at_once_when_it_is_interrupted_and_when_its_conversation_is_deleted(strong: Place) -> None:
    staging = strong.runner.data / "store" / "staging"
    strong.say("x = 1")

    def storing() -> bool:
        return any(staging.iterdir())

    with Background(strong, LARGE, storing) as stopped:
        told = strong.chat.http.post(f"/v1/conversations/{strong.chat.id}/interrupt", json={})
        assert told.json() == {"interrupted": True}
    assert stopped.result["outcome"] == "ok"
    assert stopped.result["files_error"]["code"] == "interrupted"
    assert not storing()
    assert strong.say("import os; print(x, os.path.exists('large'))") == "1 False\n"
    with Background(strong, LARGE, storing):
        began = time.monotonic()
        strong.chat.purge()
        assert time.monotonic() - began < 5
    outside.wait_for(lambda: not storing(), "nothing is left of what was being stored")


def test_25_targets_of_links_count(strong: Place) -> None:
    stored = _stored(strong)
    result = strong.run(SYMLINKS, timeout_ms=60_000)
    assert result["outcome"] == "ok"
    assert result["files_error"]["code"] == "quota_exceeded"
    assert "link targets" in result["files_error"]["detail"]
    assert _stored(strong) - stored < MIB
    assert strong.say("import os; print(sum(map(os.path.islink, os.listdir())))") == "0\n"


def _stored(place: Place) -> int:
    """Bytes that a runner's folder takes on the disk."""
    total = 0
    for folder, _, names in os.walk(place.runner.data):
        for name in names:
            with suppress(FileNotFoundError):  # the runner goes on meanwhile
                total += os.lstat(f"{folder}/{name}").st_blocks * 512
    return total


def test_25_a_tebibyte_is_not_even_claimed(small: Make) -> None:
    place = small()
    with Peak(place.runner.pid) as peak:
        ends = place.say(GAMES, timeout_ms=60_000)
    assert ends == "[27, 27, 27, 27] 0\n"
    assert peak.read_mib < 4
    place.chat.purge()


def test_22_control_folders_without_a_size_take_more(small: Make) -> None:
    place = small("roomy")
    assert place.say(GROW) == "24 MiB\n"
    place.chat.purge()


def test_23_names_of_every_kind_stop_at_one_for_each_page(small: Make) -> None:
    place = small()
    before = measures.free(Path("/"))[1]
    agent, bounds = place.agent, {}
    for folder in FOLDERS:
        facts = os.statvfs(f"/proc/{agent}/root{folder}")
        assert facts.f_files == facts.f_blocks
        bounds[folder] = facts.f_files
    told = place.say(f"FOLDERS = {FOLDERS!r}\n{INODES}", timeout_ms=100_000)
    for folder, _, made, end in (line.split() for line in told.splitlines()):
        assert end == "ENOSPC"
        assert int(made) <= bounds[folder]
    assert before - measures.free(Path("/"))[1] < 10_000
    place.chat.purge()


def test_23_control_without_bounds_there_are_more(small: Make) -> None:
    place = small("unbounded_mounts")
    many = "import os\nfor n in range(6000): os.close(os.open(f'/tmp/{n}', os.O_CREAT))\nprint(len(os.listdir('/tmp')))"
    assert int(place.say(many)) >= 6000 > os.statvfs(f"/proc/{place.agent}/root/tmp").f_blocks
    place.chat.purge()


def test_23_a_folder_of_a_hundred_thousand_names_costs_neither_agent_nor_runner_much(strong: Place) -> None:
    many = "import os\nos.mkdir('many')\nfor n in range(100_000): os.close(os.open(f'many/{n}', os.O_CREAT))"
    with Peak(strong.runner.pid) as peak:
        result = strong.run(many, timeout_ms=100_000)
    assert result["outcome"] == "ok"
    assert result["files_error"]["code"] == "quota_exceeded"
    assert peak.grown_mib < 192
