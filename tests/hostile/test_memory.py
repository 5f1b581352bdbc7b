"""Cases 22 and 23 and finding 9: in-memory folders and their inodes are bounded for each sandbox, by two walls.

Control: a sandbox without a group and without bounds of its mounts makes more files than either let it. That
/dev takes no files has no control of its own here; ``test_bubblewrap_args`` holds the flag that remounts it.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.hostile.conftest import Make
from tests.hostile.support import outside
from tests.hostile.support.place import Place
from tests.support.differences import differs

INODES = """
import os
for folder in ("/home/sandbox", "/dev/shm"):
    for number in range(4):
        with open(f"{{folder}}/fill{{number}}", "wb", buffering=0) as file:
            for _ in range(15):
                file.write(bytes(1 << 20))
made = 0
for folder in range({folders}):
    os.mkdir(f"/tmp/d{{folder}}")
    for name in range(1000):
        os.close(os.open(f"/tmp/d{{folder}}/{{name}}", os.O_CREAT | os.O_WRONLY))
        made += 1
print(made)
"""
# A page more for each of 1,000 files, and room for the one that is being replaced.
WORKSPACE = (16 << 20) + 1000 * 4096 + (1 << 20)
FOLDERS = {"/workspace": WORKSPACE, "/tmp": 16 << 20, "/home/sandbox": 64 << 20, "/dev/shm": 64 << 20}
FILL = """
import errno, os
for folder in {folders!r}:
    size, ends = 0, []
    for part in range(8):
        with open(f"{{folder}}/fill{{part}}", "wb", buffering=0) as file:
            try:
                for _ in range(64):
                    size += file.write(bytes(1 << 20))
            except OSError as error:
                ends.append(error.errno)
    for part in range(8):
        os.unlink(f"{{folder}}/fill{{part}}")
    print(folder, size, errno.ENOSPC in ends)
"""


def test_inodes_are_bounded_by_the_group_alone_and_nobody_else_notices(small: Make) -> None:
    before = os.statvfs("/").f_ffree
    peer = small()
    peer.say("kept = 1")
    bomber = small("unbounded_mounts")
    result = bomber.run(INODES.format(folders=300), timeout_ms=60_000)
    assert result["outcome"] in ("oom", "crashed", "error"), result
    assert result["outcome"] != "error" or "No space" in result["error"]["message"]
    assert peer.say("print(kept)") == "1\n"
    assert before - os.statvfs("/").f_ffree < 10_000
    bomber.chat.purge()
    peer.chat.purge()


def test_control_without_a_group_inodes_are_not_bounded(small: Make) -> None:
    place = small("no_cgroup", "unbounded_mounts")
    assert place.say(INODES.format(folders=200), timeout_ms=60_000) == "200000\n"
    place.chat.purge()


def test_folders_fill_up_alone_and_together_stay_below_three_quarters_of_the_memory(small: Make) -> None:
    place = small()
    told = place.say(FILL.format(folders=list(FOLDERS)), timeout_ms=60_000).split()
    assert told[2::3] == ["True"] * 4
    agent, sizes = place.agent, {}
    for folder in FOLDERS:
        facts = os.statvfs(f"/proc/{agent}/root{folder}")
        sizes[folder] = facts.f_blocks * facts.f_frsize
    assert sizes == FOLDERS
    assert sum(sizes.values()) <= (320 << 20) * 3 // 4
    place.chat.purge()


def test_device_folder_takes_no_files(strong: Place) -> None:
    told = strong.run("open('/dev/fill', 'wb')")["error"]
    if differs("device-folder"):
        assert told["message"].startswith("[Errno 13]")
        return
    assert told["message"].startswith("[Errno 30]")
    held = Path(f"/proc/{strong.agent}/mountinfo").read_text().splitlines()
    (device,) = [line for line in held if line.split()[4] == "/dev"]
    assert "ro" in device.split()[5].split(",")
    assert outside.alive(strong.agent)
