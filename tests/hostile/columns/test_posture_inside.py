"""Case 1 from inside: what a cell finds of its own and the agent's powers equals the column's golden file.

Capabilities, filters, ids, mounts, descriptors, namespaces, limits, environment and interfaces. Control:
``test_controls.py``, for bubblewrap ``tests/hostile/test_posture.py``.

After a wanted change: ``GOLDEN=write`` in the environment writes the column's file anew.
"""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

from runner.backends.proc import HOST_FACTS
from tests.support.columns import Column
from tests.support.runner import Chat

FOLDER = Path(__file__).parent / "golden"
LOOK = r"""
import json, os, resource
def status(pid):
    rows = dict(row.rstrip("\n").split(":", 1) for row in open(f"/proc/{pid}/status"))
    names = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    return {name: rows[name].split() for name in names if name in rows}
def mounts():
    flags, found = {"ro", "rw", "nosuid", "nodev", "noexec"}, []
    for row in open("/proc/self/mountinfo"):
        left, _, right = row.partition(" - ")
        kind, _, options = right.split(None, 2)
        sizes = [part for part in options.strip().split(",") if part.startswith(("size=", "nr_inodes="))]
        own = " ".join(["tmpfs", *sizes]) if kind == "tmpfs" and left.split()[4].count("/") < 3 else ""
        held = ",".join(sorted(flags & set(left.split()[5].split(","))))
        found.append(f"{left.split()[4]} {held} {own}".strip())
    return sorted(set(found))
def descriptors():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}").split(":")[0].removesuffix(" (deleted)")
        except OSError:
            continue
        image = target.startswith(("/usr/", "/opt/", "/proc/"))
        found.add("file of the image" if image else target)
    return sorted(found - {"file of the image"})
kinds = ("core", "cpu", "data", "fsize", "memlock", "msgqueue", "nice", "nofile", "nproc", "rtprio", "stack", "as")
limits = {kind: list(resource.getrlimit(getattr(resource, "RLIMIT_" + kind.upper()))) for kind in kinds}
print(json.dumps({
    "agent": status(1), "cell": status("self"), "mounts": mounts(), "descriptors": descriptors(),
    "namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in sorted(os.listdir("/proc/self/ns"))},
    "limits": limits, "environment": dict(sorted(os.environ.items())), "host name": os.uname().nodename,
    "interfaces": sorted(row.split(":")[0].strip() for row in open("/proc/net/dev") if ":" in row),
    "devices": sorted(os.listdir("/dev")), "root can be written": os.access("/", os.W_OK) or os.access("/usr", os.W_OK),
}))
"""


def posture(printed: str) -> dict[str, Any]:
    """What was found, without what depends on the host: its kernel's and its groups' files, its own limits."""
    found: dict[str, Any] = json.loads(printed)
    own = [kind for kind, name in found["namespaces"].items() if name != os.readlink(f"/proc/self/ns/{kind}")]
    threads = [name for name in found["environment"] if name.endswith("_THREADS")]
    mounts = [row for row in found["mounts"] if row.split()[0] not in HOST_FACTS and "/sys/fs/cgroup" not in row]
    no_limit = found["limits"]["nproc"] == list(resource.getrlimit(resource.RLIMIT_NPROC))
    return {
        **found,
        "namespaces": own,
        "environment": {**found["environment"], **dict.fromkeys(threads, "by cores")},
        "mounts": mounts,
        "limits": {**found["limits"], **({"nproc": "the host's"} if no_limit else {})},
    }


def test_posture_from_inside_equals_golden(column: Column, chat: Chat) -> None:
    seen = posture(chat.ok(LOOK)["stdout"])
    golden = FOLDER / f"{column.name}.json"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    assert seen == json.loads(golden.read_text())
    assert seen["cell"]["CapEff"] == seen["cell"]["CapPrm"] == ["0" * 16]
    assert seen["root can be written"] is False
    assert seen["interfaces"] in (["lo"], [])
