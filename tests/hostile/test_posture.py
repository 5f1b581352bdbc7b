"""Case 1: what every process of a sandbox holds, seen from outside, equals a golden file.

Control: a launch without its filter, its network namespace and its group gives another posture.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from runner.backends.proc import HOST_FACTS
from tests.hostile.conftest import Weaken
from tests.hostile.support import outside
from tests.hostile.support.place import Place

GOLDEN = Path(__file__).parent / "golden" / "posture.json"
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
LIMITS = {
    "Max file size": "fsize", "Max core file size": "core", "Max processes": "nproc", "Max open files": "nofile",
    "Max locked memory": "memlock", "Max msgqueue size": "msgqueue", "Max nice priority": "nice",
    "Max realtime priority": "rtprio",
}  # fmt: skip
NAMESPACES = ("user", "pid", "ipc", "uts", "net", "mnt")
FLAGS = frozenset(("ro", "rw", "nosuid", "nodev", "noexec"))


def posture(place: Place) -> dict[str, Any]:
    """The whole posture: the same for each process but for its descriptors."""
    pids = place.processes()
    kinds = {json.dumps(process(pid), sort_keys=True) for pid in pids}
    return {
        "processes": [json.loads(kind) for kind in sorted(kinds)],
        "descriptors": sorted({kind for pid in pids for kind in descriptor_kinds(pid)} - {"file of the image"}),
        "mounts": mounts(pids[0]),
        "groups": group_limits(pids[0]),
    }


def process(pid: int) -> dict[str, Any]:
    """Capabilities, filters, ids, namespaces and limits of a process and all its threads, ids of the host masked."""
    found: dict[str, Any] = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        fields = outside.status(int(task))
        held: dict[str, Any] = {
            name: fields[name] for name in (*CAPABILITIES, "NoNewPrivs", "Seccomp", "Seccomp_filters")
        }
        ids = set(fields["Uid"].split()) | set(fields["Gid"].split())
        held["one unprivileged uid"] = len(ids) == 1 and int(next(iter(ids))) >= 1_900_000_000
        held["groups"] = fields["Groups"]
        assert not found or held == {name: found[name] for name in held}, f"thread {task} differs"
        found |= held
    found["own namespaces"] = [k for k in NAMESPACES if outside.namespace(pid, k) != outside.namespace("self", k)]
    rows = Path(f"/proc/{pid}/limits").read_text().splitlines()
    found["limits"] = {short: row.split()[-3:-1] if short not in ("nice", "rtprio") else row.split()[-2:]
                       for row in rows for name, short in LIMITS.items() if row.startswith(name)}  # fmt: skip
    return found


def descriptor_kinds(pid: int) -> set[str]:
    """Kinds of descriptors, numbers left out; which files of the image are open does not matter."""
    assert outside.foreign_descriptors(pid) == []
    kinds = {target.split(":")[0].removesuffix(" (deleted)") for target in outside.descriptors(pid).values()}
    return {"file of the image" if kind.startswith(("/usr/", "/opt/")) else kind for kind in kinds}


def mounts(pid: int) -> list[str]:
    """Mount points with their flags; the covered files of /proc depend on the kernel and have their own test."""
    found = []
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        point, flags = left.split()[4], FLAGS & set(left.split()[5].split(","))
        size = next((part for part in right.split()[-1].split(",") if part.startswith("size=")), "")
        own = f" {size}" if right.startswith("tmpfs") and size else ""
        if point not in HOST_FACTS:
            found.append(f"{point} {','.join(sorted(flags))}{own}")
    return sorted(found)


def group_limits(pid: int) -> dict[str, Any]:
    """Limits of the groups a process is in, on either version."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        if "foliobox-" not in path:
            continue
        if names == "memory":
            folder = Path("/sys/fs/cgroup/memory") / path.lstrip("/")
            others = {n: next(Path(f"/sys/fs/cgroup/{n}").rglob(folder.name)) for n in ("pids", "cpu")}
            quota = int((others["cpu"] / "cpu.cfs_quota_us").read_text())
            return {
                "memory": int((_seen(folder) / "memory.limit_in_bytes").read_text()),
                "pids": int((others["pids"] / "pids.max").read_text()),
                "cpus": quota / int((others["cpu"] / "cpu.cfs_period_us").read_text()),
            }
        if number == "0" and (folder := Path("/sys/fs/cgroup") / path.lstrip("/")).joinpath("memory.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()  # type: ignore[assignment]
            return {
                "memory": int((folder / "memory.max").read_text()),
                "pids": int((folder / "pids.max").read_text()),
                "cpus": int(quota) / int(period),
            }
    return {}


def _seen(folder: Path) -> Path:
    """The folder, also where this process sees groups from another root."""
    return folder if folder.exists() else next(Path("/sys/fs/cgroup/memory").rglob(folder.name))


def test_posture_equals_golden_also_with_threads_and_children(strong: Place) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert posture(strong) == golden
    strong.say("""
import subprocess, threading
wait = threading.Event()
threads = [threading.Thread(target=wait.wait, daemon=True) for _ in range(4)]
[thread.start() for thread in threads]
""")
    busy = "import subprocess; children = [subprocess.Popen(['sleep', '60']) for _ in range(3)]; print(len(children))"
    assert strong.say(busy) == "3\n"
    assert posture(strong) == golden


def test_control_weaker_launches_have_another_posture(weaken: Weaken) -> None:
    golden = json.loads(GOLDEN.read_text())
    seen = posture(weaken("no_seccomp", "shared_network", "no_cgroup"))
    (only,) = seen["processes"]
    assert only["Seccomp"] == "0"
    assert "net" not in only["own namespaces"]
    assert seen["groups"] == {} != golden["groups"]


def test_facts_of_the_host_are_covered(strong: Place) -> None:
    covered = Path(f"/proc/{strong.agent}/mountinfo").read_text()
    present = [path for path in HOST_FACTS if os.path.exists(path)]
    assert present
    for path in present:
        assert f" {path} " in covered, path
        assert strong.run(f"open({path!r}, 'rb').read(1)")["error"]["name"] == "PermissionError"
