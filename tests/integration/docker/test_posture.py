"""What ``docker inspect`` says of a live sandbox is a golden file: a change of it is a decision, never an accident.

After such a decision: ``FOLIOBOX_WRITE_GOLDEN=1`` writes the files anew. Empty values are left out: daemons of other
versions have more and fewer of them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from runner.agent import loader
from runner.backends.docker import labels
from runner.backends.docker.profile import profile
from runner.interpreter.client import SandboxClient
from tests.integration.docker.conftest import READY_S, Lab
from tests.support.engines import docker

GOLDEN = Path(__file__).with_name("golden")
# Of this very container, or of the daemon that has it.
OWN = {
    "Id",
    "Created",
    "Image",
    "Name",
    "ResolvConfPath",
    "HostnamePath",
    "HostsPath",
    "LogPath",
    "GraphDriver",
    "Driver",
}
STATE = {"Pid", "StartedAt", "FinishedAt"}
TOLD = {labels.DEPLOYMENT: "D", labels.BOOT: "B", labels.SANDBOX: "S", labels.IMAGE: "H"}
POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


def filled(value: Any) -> Any:
    """Without what is empty, at any depth."""
    if isinstance(value, dict):
        kept = {name: filled(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (None, "", 0, False, [], {})}
    return value


def posture(seen: dict[str, Any]) -> dict[str, Any]:
    """What counts of it, and is the same for every sandbox."""
    config, host = seen["Config"], seen["HostConfig"]
    seen["State"] = {name: item for name, item in seen["State"].items() if name not in STATE}
    seen["NetworkSettings"] = {"Networks": sorted(seen["NetworkSettings"]["Networks"])}
    foreign = {name: value for name, value in config["Labels"].items() if not name.startswith("foliobox.")}
    assert all(name.startswith("org.opencontainers.") for name in foreign), foreign
    ours = {name: value for name, value in config["Labels"].items() if name not in foreign}
    ours.pop("foliobox.built", None)
    config["Labels"] = {name: TOLD.get(name, value) for name, value in ours.items()}
    config["Image"] = "the image's id"
    config["Env"] = sorted(item for item in config["Env"] if item.split("=")[0] not in POOLS)
    for command in (config["Entrypoint"], seen["Args"]):
        command[command.index(loader.LOADER)] = "the loader"
    host.pop("ConsoleSize", None)
    assert host.pop("KernelMemoryTCP", None) in (None, 0, host["Memory"] // 16)  # where the daemon can
    host["SecurityOpt"] = [
        "the shipped filter" if item == f"seccomp={profile()}" else item for item in host["SecurityOpt"]
    ]
    told = filled({name: item for name, item in seen.items() if name not in OWN})
    assert isinstance(told, dict)
    return told


async def test_it_is_the_golden_one(lab: Lab) -> None:
    client = SandboxClient(await lab.backend.create(lab.spec()))
    try:
        await client.attach(READY_S)
        found = posture(docker.inspect(f"foliobox-{client.sandbox_id}"))
    finally:
        await client.destroy()
    place = GOLDEN / f"posture-{lab.runtime}.json"
    if os.environ.get("FOLIOBOX_WRITE_GOLDEN"):
        place.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    assert found == json.loads(place.read_text())
