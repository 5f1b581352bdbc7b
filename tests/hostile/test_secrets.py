"""Case 2, findings 1 and 2: secrets of the runner and of other conversations are not to be found.

The cell takes along everything it can read; the host searches the loot. Control: launches that leave the
runner's environment, the options on the command line or the host's processes in sight lose the secret.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from tests.hostile.conftest import Weaken
from tests.hostile.support import attacks, outside
from tests.hostile.support.place import Place, command_line
from tests.support.runner import Chat

CANARY = "canary-of-another-conversation-5b1f"


def loot(place: Place) -> bytes:
    """Whatever the sandbox could read."""
    place.say(attacks.EVERYTHING_READABLE, timeout_ms=60_000)
    return zlib.decompress(place.chat.get("loot").content)


def secrets(place: Place) -> list[bytes]:
    """The API key, the folder of the store, the service's arguments."""
    return [place.runner.key.encode(), str(place.runner.data).encode(), f"--port\0{place.runner.port}".encode()]


def test_nothing_of_the_runner_is_in_the_loot(strong: Place, neighbour: Chat) -> None:
    neighbour.ok(f"secret = {CANARY!r}; open('secret.txt', 'w').write(secret)")
    found = loot(strong)
    assert b"/proc/1/stat" in found
    for secret in (*secrets(strong), CANARY.encode()):
        assert secret not in found


def test_nothing_of_the_runner_is_in_environment_or_arguments(strong: Place) -> None:
    pids = strong.processes()
    for pid in (*pids, int(outside.status(pids[0])["PPid"])):
        with open(f"/proc/{pid}/environ", "rb") as file:
            held = file.read() + command_line(pid).encode()
        for secret in secrets(strong):
            assert secret not in held, command_line(pid)


@pytest.mark.parametrize(
    ("names", "which"), [(("inherited_environment",), 0), (("options_in_argv",), 1), (("no_pid_namespace",), 2)]
)
def test_control_weaker_launches_lose_secrets(
    weaken: Weaken, names: tuple[str, ...], which: int, weak_service: object
) -> None:
    place = weaken(*names, folder=weak_data(weak_service))
    assert secrets(place)[which] in loot(place)


def weak_data(service: object) -> Path:
    """The weakened service's data folder."""
    return Path(os.fspath(service.runner.data))  # type: ignore[attr-defined]
