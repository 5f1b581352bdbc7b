"""A container's life: it starts, is measured, runs out of memory, is ended by others, and by itself."""

from __future__ import annotations

import asyncio
import errno

import pytest

from runner.errors import BackendUnavailable, SandboxLost
from runner.interpreter.client import SandboxClient
from tests.integration.docker.conftest import READY_S, Lab
from tests.support.engines import docker
from tests.unit.agent.lab import run

HUNGRY = "kept = [bytearray(b'x' * (1 << 20)) for _ in range(4096)]"


async def test_what_is_used_is_seen_from_outside(lab: Lab) -> None:
    client = await lab.client()
    try:
        before = await client.usage()
        await client.sandbox.reset_peak()
        await run(client, "r1", "import os; b = os.urandom(200 << 20); del b")
        after = await client.usage()
        assert before.memory_bytes is not None
        assert after.peak_memory_bytes is not None
        assert after.peak_memory_bytes >= before.memory_bytes + (150 << 20)
        await client.sandbox.reset_peak()
        again = await client.usage()
        assert again.peak_memory_bytes is not None
        assert again.peak_memory_bytes < after.peak_memory_bytes
        assert (before.oom_kills, after.oom_kills) == (0, 0)
    finally:
        await client.destroy()


async def test_out_of_memory_is_told(lab: Lab) -> None:
    """On runc the kernel ends the interpreter; on gVisor the whole sandbox, and the daemon tells why."""
    client = await lab.client(memory_bytes=768 << 20, workspace_bytes=64 << 20)
    try:
        if lab.runtime == "runsc":
            with pytest.raises(SandboxLost):
                await run(client, "r1", HUNGRY)
        else:
            _, end = await run(client, "r1", HUNGRY)
            assert end.observed.signal == 9
            await client.ping()
        assert (await client.usage()).oom_kills == 1
    finally:
        await client.destroy()


@pytest.mark.parametrize("how", [("kill",), ("rm", "--force")], ids=lambda how: how[0])
async def test_ended_by_others(lab: Lab, how: tuple[str, ...]) -> None:
    client = await lab.client()
    running = asyncio.create_task(run(client, "r1", "import time; time.sleep(60)"))
    await client.ping()
    await asyncio.to_thread(docker.docker, *how, f"foliobox-{client.sandbox_id}")
    with pytest.raises(SandboxLost):
        await running
    assert not (await client.usage()).oom_kills
    await client.destroy()


async def test_the_agent_cannot_be_ended_or_read_by_what_it_runs(lab: Lab) -> None:
    client = await lab.client()
    code = """
import os, signal
for name in ("mem", "fd/0", "fd/1"):
    for mode in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.close(os.open(f"/proc/1/{name}", mode))
            print("opened", name)
        except OSError:
            pass
for number in (signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV):
    try:
        os.kill(1, number)
    except PermissionError:
        pass
print(os.getresuid(), os.getresgid(), [line.split()[1] for line in open("/proc/self/status") if "CapEff" in line])
"""
    try:
        said, _ = await run(client, "r1", code)
        assert said == "(10001, 10001, 10001) (10001, 10001, 10001) ['0000000000000000']\n"
        await client.ping()
        assert (await run(client, "r2", "print(name)"))[0] == "fd/1\n"
        said, _ = await run(client, "r3", "kill -STOP 1; kill -KILL 1; id -u; id -G", language="bash")
        assert said.split() == ["10001", "10001"]
        await client.ping()
    finally:
        await client.destroy()


FLOOD = """exec /usr/bin/python3 -I -S -c '
import os, time
made = 0
try:
    while made < 1000:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
except OSError as error:
    print(error.errno, 50 < made < 256)
'"""


async def test_a_flood_of_processes_is_refused_and_the_sandbox_goes_on(lab: Lab) -> None:
    """Of small ones: on gVisor each costs the host so much that large ones run out of memory first."""
    client = await lab.client()
    try:
        assert (await run(client, "r1", FLOOD, language="bash"))[0] == f"{errno.EAGAIN} True\n"
        assert (await run(client, "r2", "print(2)"))[0] == "2\n"
    finally:
        await client.destroy()


async def test_without_a_host_it_ends_by_itself(lab: Lab) -> None:
    """The runner is gone and never comes back: no container keeps its memory for ever."""
    lab.backend = lab.another_start(orphan_s=3.0)
    await lab.backend.probe()
    client = SandboxClient(await lab.backend.create(lab.spec()))
    await client.attach(READY_S)
    await client.stream.close()
    name = f"foliobox-{client.sandbox_id}"
    await client.sandbox.detach()
    assert await asyncio.to_thread(docker.docker, "wait", name) == "0"
    with pytest.raises(SandboxLost):
        await lab.backend.attach(client.sandbox_id)
    assert await lab.another_start().sweep() == 1


async def test_a_name_that_is_taken_is_left_alone(lab: Lab) -> None:
    spec = lab.spec()
    first = await lab.backend.create(spec)
    with pytest.raises(BackendUnavailable) as caught:
        await lab.backend.create(spec)
    assert caught.value.fields["retry_after_ms"]
    client = SandboxClient(first)
    await client.attach(READY_S)
    await client.destroy()


async def test_without_its_image_there_is_no_half_session(lab: Lab) -> None:
    lost = lab.another_start(image="foliobox-sandbox:never-built")
    report = await lost.probe()
    assert (report.available, report.image_ready) == (False, False)
    assert "make images" in report.detail
    with pytest.raises(BackendUnavailable):
        await lost.create(lab.spec())
    assert lab.containers() == []
    gone = lab.another_start()
    await gone.probe()
    assert gone._engine is not None
    gone._engine = type(gone._engine)("sha256:" + "0" * 64, lab.runtime, gone._engine.guest_root)
    sandbox = await gone.create(lab.spec())  # its name stands for another image now
    await sandbox.destroy()


async def test_foreign_containers_are_left_alone(lab: Lab) -> None:
    """One without labels, and one of another deployment that has a name like ours."""
    image = docker.inspect(lab.config.image, "image")["Id"]
    names = [f"foliobox-{lab.spec().sandbox_id}" for _ in range(2)]
    marks = [[], ["--label", "foliobox.deployment=another", "--label", "foliobox.boot=x"]]
    for name, marked in zip(names, marks, strict=True):
        docker.docker("run", "--detach", "--name", name, "--network", "none", *marked, image, "sleep", "600")
    try:
        assert await lab.backend.sweep() == 0
        assert await lab.backend.survivors() == []
        for name in names:
            with pytest.raises(SandboxLost):
                await lab.backend.attach(name.removeprefix("foliobox-"))
        assert all(docker.inspect(name)["State"]["Running"] for name in names)
    finally:
        docker.docker("rm", "--force", *names)


async def test_an_unknown_runtime_is_told(lab: Lab) -> None:
    report = await lab.another_start(runtime="kata").probe()
    assert not report.available
    assert "SANDBOX_RUNTIME=kata" in report.detail
    assert lab.runtime in report.detail


async def test_auto_takes_gvisor_where_it_works(lab: Lab) -> None:
    report = await lab.another_start(runtime="auto").probe()
    assert report.runtime == ("runsc" if "runsc" in docker.runtimes() else "runc")
    assert report.isolation == ("separate-kernel" if report.runtime == "runsc" else "shared-kernel")
