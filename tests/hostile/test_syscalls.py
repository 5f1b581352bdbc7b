"""Cases 3, 4 and 11: refused system calls, nested user namespaces, foreign ABIs.

Controls: without the filter, calls that need no privilege succeed (the others need one that user code has not,
so no launch can show them); without it and bwrap's own ban, a nested user namespace works; int 0x80 returns.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
from pathlib import Path

import pytest

from tests.hostile.conftest import Weaken
from tests.hostile.support import attacks, outside
from tests.hostile.support.place import Place

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the scripts carry numbers of x86-64")
ENGINES = re.compile(r" /\S+/(overlay2|containers|netns|containerd)/\S+ |nsfs")
REFUSED = (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT)
UNPRIVILEGED = (
    "ptrace_traceme", "process_vm_readv", "keyctl", "add_key", "kcmp", "name_to_handle_at", "vmsplice", "mbind",
    "mknod", "prlimit_agent", "socket_vsock", "personality_fixed", "socket_vsock_wide", "setpriority_agent_wide",
    "sched_setaffinity_agent_wide",
)  # fmt: skip


def host_state() -> tuple[object, ...]:
    """What these calls would change on the host, were they let through. An engine mounts for other containers, too."""
    names = (os.uname().nodename, Path("/proc/swaps").read_text(), Path("/proc/modules").exists())
    mounts = [line for line in Path("/proc/1/mountinfo").read_text().splitlines() if not ENGINES.search(line)]
    return (*names, sorted(re.sub(r"(shared|master):\d+", "", line.split(" - ")[0]) for line in mounts))


def report(place: Place) -> dict[str, int]:
    """Each call's error number, 0 when it succeeded."""
    answers: dict[str, int] = json.loads("{" + place.say(attacks.CALLS).rpartition("{")[2])
    return answers


def test_every_call_is_refused_and_nothing_changes(strong: Place) -> None:
    agent = strong.agent
    before = {kind: outside.namespace(agent, kind) for kind in ("user", "mnt", "net", "pid")}
    mounts, host = Path(f"/proc/{agent}/mountinfo").read_text(), host_state()
    answers = report(strong)
    assert len(answers) >= 45
    assert {call: number for call, number in answers.items() if number not in REFUSED} == {}
    assert outside.alive(agent)
    assert before == {kind: outside.namespace(agent, kind) for kind in before}
    assert mounts == Path(f"/proc/{agent}/mountinfo").read_text()
    assert host == host_state()


def test_control_calls_without_privilege_succeed_without_the_filter(weaken: Weaken) -> None:
    answers = report(weaken("no_seccomp"))
    assert {call: answers[call] for call in UNPRIVILEGED} == dict.fromkeys(UNPRIVILEGED, 0)


NESTED = """
import subprocess
held = subprocess.Popen(["unshare", "-Ur", "sleep", "60"], stdout=-1, stderr=-1)
try:
    held.wait({wait})
except subprocess.TimeoutExpired:
    pass
print(held.pid)
"""


def nested(place: Place, wait: float) -> set[str]:
    """User namespaces of the sandbox's processes while the attack runs: one unless it succeeded."""
    code = NESTED.format(wait=wait) + "import os; open('/workspace/ready', 'w').close(); os.read(0, 1)"
    result = place.run(
        code.replace(
            "os.read(0, 1)",
            "print([os.readlink(f'/proc/{p}/ns/user') "
            "for p in os.listdir('/proc') if p.isdigit() and os.access(f'/proc/{p}/ns', 5)])",
        )
    )
    return set(result["stdout"].split("'")[1::2])


def test_nested_user_namespace_is_refused(strong: Place) -> None:
    assert len(nested(strong, 10)) == 1


def test_control_nested_user_namespace_without_filter_and_ban(weaken: Weaken) -> None:
    assert len(nested(weaken("no_seccomp", "nested_user_namespaces"), 1)) == 2


@pytest.mark.parametrize("code", [attacks.X32_GETPID, attacks.INT80_GETPID], ids=["x32", "int80"])
def test_foreign_abi_ends_the_interpreter(strong: Place, code: str) -> None:
    result = strong.run(attacks.FOREIGN_CODE.format(code=code))
    assert (result["outcome"], result["signal"]) == ("crashed", 31)
    assert strong.say("print(1)") == "1\n"


@pytest.mark.parametrize("code", [attacks.X32_GETPID, attacks.INT80_GETPID], ids=["x32", "int80"])
def test_control_foreign_abi_reaches_the_kernel_without_the_filter(weaken: Weaken, code: str) -> None:
    """A kernel built without an ABI refuses it itself (ENOSYS, or SIGSEGV for int 0x80): no SIGSYS either way."""
    assert weaken("no_seccomp").run(attacks.FOREIGN_CODE.format(code=code))["signal"] != 31
