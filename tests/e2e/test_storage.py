"""What happens when files cannot be stored: the run keeps its result, and sandbox and store stay one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.runner import Chat, running

FILL = "for i in range(3):\n    with open(f'sparse{i}', 'wb') as f: f.truncate(300 << 20)\n"


def test_a_run_over_the_quota_keeps_its_result_and_changes_no_file(chat: Chat) -> None:
    chat.put("keep.txt", b"kept")
    chat.ok("x = 1\nopen('old.txt', 'w').write('old')")
    result = chat.ok(
        "import os\nos.remove('keep.txt')\nopen('old.txt', 'w').write('new')\nopen('good.txt', 'w').write('g')\n"
        + FILL
        + "print('done')"
    )
    assert (result["stdout"], result["files"]) == ("done\n", [])
    assert result["files_error"]["code"] == "quota_exceeded"
    assert chat.files() == ["keep.txt", "old.txt"]
    seen = chat.ok("print(x, sorted(n for n in os.listdir('.') if os.path.isfile(n)), open('old.txt').read())")
    assert seen["stdout"] == "1 ['keep.txt', 'old.txt'] old\n"
    assert seen["interpreter"] == "kept"
    again = chat.ok("open('good.txt', 'w').write('g')")
    assert (again["files_error"], [f["path"] for f in again["files"]]) == (None, ["good.txt"])


def test_more_files_than_may_be_is_told(chat: Chat) -> None:
    result = chat.ok("import os\nos.mkdir('d')\nfor i in range(20_100): open(f'd/{i}', 'w').close()")
    assert result["files_error"]["code"] == "quota_exceeded"


def test_equal_files_of_one_run_share_an_object(chat: Chat) -> None:
    result = chat.ok("for i in range(50): open(f'{i}.txt', 'w').write('same')")
    assert len(result["files"]) == 50
    assert {chat.get(f"{i}.txt").content for i in range(50)} == {b"same"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(folder)], check=False).returncode
    ):
        pytest.skip("needs root and the right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_costs_no_stored_file_and_no_result(small_disk: Path) -> None:
    with running(small_disk, SANDBOX_POOL_SIZE="0", SANDBOX_MIN_FREE_DISK="1") as service, service.client() as http:
        chat = Chat(http)
        chat.ok("x = 1\nopen('first.txt', 'w').write('1')")
        full = chat.ok("import os\nopen('big.bin', 'wb').write(os.urandom(40 << 20))\nprint('ran')")
        assert (full["stdout"], full["files"]) == ("ran\n", [])
        assert full["files_error"]["code"] == "store_full"
        assert chat.put("up.bin", os.urandom(40 << 20)).status_code in (413, 503, 507)
        assert chat.files() == ["first.txt"]
        assert chat.get("first.txt").content == b"1"
        after = chat.ok("print(x, os.path.exists('big.bin'))\nopen('small.txt', 'w').write('2')")
        assert after["stdout"] == "1 False\n"
        assert [f["path"] for f in after["files"]] == ["small.txt"]
