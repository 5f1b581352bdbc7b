"""What a service leaves of its sandboxes when it stops: no container, volume, network or exec; counted on the engine.

On bubblewrap the same cases look at processes and records; controls: what is counted is there before the stop.
"""

from __future__ import annotations

from pathlib import Path

from tests.hostile.support import outside
from tests.support import sandboxes
from tests.support.differences import differs
from tests.support.engines import docker
from tests.support.runner import Chat, Runner, running


def there(runner: Runner, pid: int) -> list[str]:
    """Sandboxes of a service that can be found on this host."""
    if not sandboxes.on_engine():
        return [*outside.records(runner), *(str(child) for child in outside.descendants(pid))]
    found = sandboxes.containers(runner)
    for kind in ("volume", "network"):
        found += docker.lines(kind, "ls", "--quiet", "--filter", sandboxes.mine(runner))
    return found


def extras(runner: Runner) -> list[object]:
    """Volumes, networks and execs of a service's containers."""
    found: list[object] = []
    for name in sandboxes.containers(runner) if sandboxes.on_engine() else []:
        known = docker.inspect(name)
        found += known["Mounts"] + (known["ExecIDs"] or [])
        found += [network for network in known["NetworkSettings"]["Networks"] if network != "none"]
    return found


def test_a_stop_leaves_nothing_but_what_the_next_start_goes_on_with(tmp_path: Path) -> None:
    """Sandboxes with variables in them, where they outlive their runner; spares never."""
    with running(tmp_path / "data", SANDBOX_POOL_SIZE="1") as service:
        with service.client() as http:
            chat = Chat(http)
            chat.ok("import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True); None")
            outside.wait_for(lambda: http.get("/healthz").json()["pool"]["ready"] == 1, "the spare is ready", 60)
            assert len(there(service, service.pid)) >= 2
            assert extras(service) == []
        pid = service.pid
        assert service.stop() == 0
        assert len(there(service, pid)) == (1 if differs("runner-dies") else 0)
        assert extras(service) == []
        service.start()
        with service.client() as http:
            Chat(http, chat.id).purge()
        pid = service.pid
        assert service.stop() == 0
        assert there(service, pid) == []


def test_nothing_is_left_of_a_conversation(tmp_path: Path) -> None:
    with running(tmp_path / "data", SANDBOX_POOL_SIZE="0") as service, service.client() as http:
        chat = Chat(http)
        chat.ok("x = 1")
        assert there(service, service.pid)
        chat.purge()
        outside.wait_for(lambda: not there(service, service.pid), "its sandbox is gone")


def test_what_a_killed_service_left_is_gone_after_the_next_start_and_purge(tmp_path: Path) -> None:
    with running(tmp_path / "data", SANDBOX_POOL_SIZE="1") as service:
        with service.client() as http:
            chat = Chat(http)
            chat.ok("x = 1")
        assert there(service, service.pid)
        service.kill()
        service.start()
        with service.client() as http:
            Chat(http, chat.id).purge()
        pid = service.pid
        assert service.stop() == 0
        assert there(service, pid) == []
