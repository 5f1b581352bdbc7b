"""Cases 5, 7, 8, 9: files of the host, inherited descriptors, runtime binaries, setuid files.

Controls: a launch with the canary's folder bound, or left open in a descriptor, reads and overwrites it; a
setuid file gains root where neither nosuid nor no-new-privileges stands.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.hostile.conftest import Weaken
from tests.hostile.support import outside
from tests.hostile.support.place import Place
from tests.support.differences import differs

TARGETS = (
    "/etc/shadow", "/etc/passwd", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/1/root/etc/passwd",
    "/proc/sys/kernel/modprobe", "/proc/kcore", "/proc/1/mem", "/sys/kernel/uevent_helper", "/dev/mem", "/dev/vda",
    "/sys/fs/cgroup/release_agent", "/usr/bin/python3", "/opt/venv/bin/python", "/proc/1/exe", "/proc/self/exe",
)  # fmt: skip
OVERWRITE = """
import os
opened = []
for path in {targets!r}:
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC):
        try:
            fd = os.open(path, flags)
            os.write(fd, b"owned")
            opened.append(path)
        except OSError:
            pass
print(opened)
"""
SETTINGS = ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe")
CANARIES = ["/etc/shadow", "/etc/passwd", *(path for path in SETTINGS if os.path.exists(path))]


def test_targets_on_the_host_stay_as_they_were(strong: Place, host_folder: Path) -> None:
    rootfs = Path(os.environ.get("SANDBOX_ROOTFS", "/var/cache/foliobox/rootfs/current"))
    programs = [str(rootfs / "usr/bin/python3"), str(shutil.which("bwrap")), "/proc/self/exe"]
    watched = [*CANARIES, *programs, str(host_folder / "canary")]
    before = [outside.digest(path) for path in watched]
    assert strong.say(OVERWRITE.format(targets=(*TARGETS, str(host_folder / "canary")))) == "[]\n"
    assert before == [outside.digest(path) for path in watched]


def test_control_a_bound_folder_is_overwritten_programs_too(weaken: Weaken, host_folder: Path) -> None:
    program = host_folder / "program"
    shutil.copy("/bin/true", program)
    program.chmod(0o777)
    before = [outside.digest(path) for path in (host_folder / "canary", program)]
    weaken("host_folder", folder=host_folder).say(OVERWRITE.format(targets=("/mnt/canary", "/mnt/program")))
    after = [outside.digest(path) for path in (host_folder / "canary", program)]
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_no_descriptor_leads_to_the_host(strong: Place) -> None:
    agent = strong.agent
    for pid in strong.processes():
        assert outside.foreign_descriptors(pid) == []
    stream = {outside.descriptors(agent)[number] for number in (0, 1)}
    for pid in strong.processes():
        held = {number for number, target in outside.descriptors(pid).items() if target in stream}
        assert held == ({0, 1} if pid == agent else set()), f"the host's stream is held by {pid}"


CLIMB = """
import os
found = []
for number in os.listdir("/proc/self/fd"):
    for way in ("canary", "../host/canary", "../../../../../../etc/hostname"):
        try:
            found.append(open(os.open(way, os.O_RDONLY, dir_fd=int(number))).read())
        except OSError:
            pass
print(found)
"""


def test_descriptors_do_not_climb(strong: Place) -> None:
    assert "canary of the host" not in strong.say(CLIMB)


def test_control_an_inherited_folder_is_climbed(weaken: Weaken, host_folder: Path) -> None:
    place = weaken("inherited_descriptor", folder=host_folder)
    assert str(host_folder) in str(outside.foreign_descriptors(place.agent))
    assert "canary of the host" in place.say(CLIMB)


SETUID = """
import os, shutil, subprocess
shutil.copy("/usr/bin/sleep", "rootme")
os.chmod("rootme", 0o6755)
started = subprocess.Popen(["./rootme", "60"])
print(os.stat("rootme").st_mode & 0o7000 == 0o6000)
"""


def test_setuid_file_gains_nothing_and_is_stored_without_its_bits(strong: Place) -> None:
    assert strong.say(SETUID) == "True\n"
    uids = {uid for pid in strong.processes() for uid in outside.status(pid)["Uid"].split()}
    (uid,) = map(int, uids)
    assert uid == 10001 if differs("sandbox-uid") else uid >= 1_900_000_000
    agent = strong.agent
    os.kill(agent, 9)
    outside.wait_for(lambda: strong.run("1")["outcome"] == "ok", "the conversation has a new sandbox")
    assert not outside.alive(agent)
    restored = os.stat(f"/proc/{strong.agent}/root/workspace/rootme")
    assert restored.st_mode & 0o7000 == 0


def test_control_setuid_file_gains_root_without_the_walls(host_folder: Path) -> None:
    program = host_folder / "rootme"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o6755)
    started = subprocess.Popen([program, "60"], user=1_900_000_000, group=1_900_000_000, extra_groups=[])
    try:
        outside.wait_for(lambda: outside.status(started.pid).get("Name") == "rootme", "it runs")
        assert outside.status(started.pid)["Uid"].split()[1] == "0"
    finally:
        started.kill()
        started.wait()


def test_own_uid_reads_no_file_of_root_even_when_bound(weaken: Weaken, host_folder: Path) -> None:
    """Finding 4: with everything else alike, only the uid decides."""
    (host_folder / "canary").chmod(0o600)
    read = "print(open('/mnt/canary').read())"
    assert weaken("host_folder", folder=host_folder).run(read)["error"]["name"] == "PermissionError"
    control = weaken("host_folder", "host_root", folder=host_folder)
    assert control.say(read) == "canary of the host\n\n"
    control.say("open('/mnt/left', 'w').close()")
    assert (host_folder / "left").stat().st_uid == 0
