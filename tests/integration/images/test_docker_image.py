"""The sandbox image is the root file system, file by file, and makes documents; the runner's is small and healthy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images.containers import docker, sandbox, service
from images.rootfs import builder, content
from images.rootfs.progress import StepError
from runner import __version__
from tests.support.waiting import until

IMAGES = Path(docker.__file__).resolve().parents[1]
LOOK = Path(__file__).with_name("look.py")
LABEL = "dev=tests-images"
IMAGE = os.environ.get("SANDBOX_IMAGE", f"foliobox-sandbox:{__version__}")
RUNTIMES = ("runc", "runsc")


@pytest.fixture(scope="module")
def engine() -> str:
    """The version of the engine that DOCKER_HOST names, with the image of this checkout in it."""
    try:
        version = docker.engine()
        sandbox.ensure(plan())
    except StepError as error:
        pytest.skip(f"no engine with the sandbox image: {error}")
    return version


def plan() -> builder.Plan:
    """The build of this checkout."""
    return builder.make_plan(IMAGES, list(content.DEFAULT_GROUPS), os.environ)


def run(*args: str, stdin: str = "", image: str = IMAGE, deadline: float = 110) -> str:
    """What a command prints in a container that has no network and can write to /tmp only."""
    tmpfs = "uid=10001,gid=10001"
    options = ["--rm", "--interactive", "--network", "none", "--read-only", "--label", LABEL, "--cap-drop", "ALL"]
    options += ["--security-opt", "no-new-privileges", "--security-opt", f"seccomp={IMAGES}/seccomp/sandbox.json"]
    options += ["--tmpfs", f"/tmp:{tmpfs}", "--tmpfs", f"/home/sandbox:{tmpfs}"]
    at = next((place for place, word in enumerate(args) if not word.startswith("--")), len(args))
    command = ["docker", "run", *options, *args[:at], image, *args[at:]]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=deadline, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def in_image(engine: str) -> dict[str, Any]:
    """What is in the image."""
    # Root, to read what root alone may; with nothing but that.
    told = run("--user=0", "--cap-add=DAC_READ_SEARCH", "python", "-", stdin=LOOK.read_text())
    return dict(json.loads(told))


@pytest.fixture(scope="module")
def in_tree(engine: str) -> dict[str, Any]:
    """What is in the root file system."""
    if os.geteuid() != 0:
        pytest.skip("needs root to look into the tree as its own root")
    tree = str(builder.ensure_tree(plan()))
    # Read-only: sandboxes run on this tree, and even a look at fonts would write to it.
    inside = (
        'mount --bind "$0" "$0"; mount -o remount,ro,bind "$0"; mount -t proc proc "$0/proc";'
        ' exec chroot "$0" /opt/venv/bin/python -'
    )
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", inside, tree],
        input=LOOK.read_text(), capture_output=True, text=True, timeout=110, check=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("what", ["record", "debian", "python", "fonts", "accounts", "version"])
def test_image_and_tree_have_the_same(what: str, in_image: dict[str, Any], in_tree: dict[str, Any]) -> None:
    assert in_image[what]
    assert in_image[what] == in_tree[what]


def test_every_file_is_the_same(in_image: dict[str, Any], in_tree: dict[str, Any]) -> None:
    image, tree = in_image["files"], in_tree["files"]
    assert len(image) > 20_000
    assert sorted(set(image) ^ set(tree)) == []
    assert {path: (image[path], tree[path]) for path in image if image[path] != tree[path]} == {}


def test_no_file_raises_privileges_and_fonts_are_ready(in_image: dict[str, Any]) -> None:
    assert in_image["raising"] == []
    assert in_image["capabilities"] == []
    assert in_image["stale fonts"] == ""
    assert "sandbox:x:10001:10001::/home/sandbox:/bin/bash" in in_image["accounts"]


def test_the_image_says_what_it_is_and_nothing_of_its_making(engine: str, in_image: dict[str, Any]) -> None:
    found = docker.image(IMAGE)
    assert found is not None
    assert docker.labels(found)[sandbox.CONTENT] == plan().content_hash == in_image["record"]["hash"]
    assert f"foliobox-sandbox:{plan().content_hash[:16]}" in found["RepoTags"]
    assert found["Config"]["User"] == sandbox.USER
    assert found["Config"]["Env"] == list(sandbox.ENVIRONMENT)
    history = docker.output("history", "--no-trunc", "--format", "{{.CreatedBy}}", IMAGE)
    assert not [word for word in ("proxy", "PIP_", "index-url") if word in history]


def test_a_second_build_does_nothing(engine: str) -> None:
    before = docker.image(IMAGE)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(IMAGES / "build.py"), "sandbox"], capture_output=True, text=True, check=True
    )
    assert time.monotonic() - began < 10
    assert "layer" not in done.stdout
    after = docker.image(IMAGE)
    assert before is not None
    assert after is not None
    assert after["Id"] == before["Id"]


WORK = """
import pandas, subprocess, weasyprint, zipfile
weasyprint.HTML(string='<p>x').write_pdf('/tmp/a.pdf')
pandas.DataFrame({'a': [1]}).to_excel('/tmp/a.xlsx')
subprocess.run(['soffice', '-env:UserInstallation=file:///tmp/p', '--headless', '--convert-to', 'pdf', '--outdir',
                '/tmp/out', '/tmp/a.xlsx'], check=True, capture_output=True)
print(open('/tmp/a.pdf', 'rb').read(5), open('/tmp/out/a.pdf', 'rb').read(5))
"""


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_documents_are_made(runtime: str, engine: str) -> None:
    if runtime not in json.loads(docker.output("info", "--format", "{{json .Runtimes}}")):
        pytest.skip(f"the engine has no runtime {runtime}")
    assert run(f"--runtime={runtime}", "python", "-", stdin=WORK).strip() == "b'%PDF-' b'%PDF-'"


CALLS = """
import ctypes, errno
call = ctypes.CDLL(None, use_errno=True).syscall
def said(*numbers):
    ctypes.set_errno(0)
    return errno.errorcode[ctypes.get_errno()] if call(*map(ctypes.c_long, numbers)) < 0 else 'ok'
print(said(39), said(165), said(435, 0, 0), said(1023), said(41, 38, 5, 0), said(41, 1 << 32 | 38, 5, 0),
      said(16, 0, 0x5412), said(141, 0, 1, 5), said(141, 0, 0, 0))
"""


def test_the_profile_holds_in_a_container(engine: str) -> None:
    """getpid, mount, clone3, a call of the future, AF_ALG twice, TIOCSTI, the agent's priority and one's own."""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    expected = "ok EPERM ENOSYS ENOSYS EAFNOSUPPORT EAFNOSUPPORT EPERM EPERM ok"
    # A shell is process 1, as the agent is in sandboxes.
    assert run("--runtime=runc", "sh", "-c", "python -; exit", stdin=CALLS).strip() == expected


def test_another_calling_convention_ends_the_process(engine: str) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("x32 is of x86-64")
    told = run(
        "--runtime=runc", "sh", "-c", "python -; echo $?", stdin="import ctypes; ctypes.CDLL(None).syscall(0x40000027)"
    )
    assert told.strip() == str(128 + 31), "SIGSYS"


@pytest.fixture(scope="module")
def service_container(engine: str) -> Iterator[str]:
    """A container of the runner's image, as compose.yaml runs it but for its network."""
    service.ensure(plan())
    options = ["--detach", "--label", LABEL, "--network", "none", "--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    options += ["--security-opt", "no-new-privileges", "--env", "SANDBOX_API_KEY=0123456789abcdef0123456789abcdef"]
    container = docker.output("run", *options, "--health-interval", "1s", f"{service.NAME}:{__version__}")
    try:
        yield container
    finally:
        docker.output("rm", "--force", "--volumes", container)


def test_the_runner_is_healthy_and_runs_as_nobody_special(service_container: str) -> None:
    def state() -> str:
        return docker.output("inspect", "--format", "{{.State.Health.Status}}", service_container)

    until(lambda: state() != "starting", "an answer of the health check", 60)
    assert state() == "healthy", docker.call("logs", service_container).stderr
    status = docker.output("exec", service_container, "cat", "/proc/1/status")
    assert "Uid:\t10000\t10000\t10000\t10000" in status
    assert "CapEff:\t0000000000000000" in status


def test_the_runner_has_the_profile_and_nothing_of_the_tests(service_container: str) -> None:
    there = docker.output(
        "exec", service_container, "find", "/opt/foliobox", "-maxdepth", "2", "-not", "-path", "*/.venv/*"
    )
    assert "/opt/foliobox/images/seccomp" in there.split()
    assert not [path for path in there.split() if path.endswith(("/tests", "/bench", "/docs"))]
    same = docker.output("exec", service_container, "cat", "/opt/foliobox/images/seccomp/sandbox.json")
    assert same == (IMAGES / "seccomp/sandbox.json").read_text().strip()
    raising = docker.call("exec", service_container, "find", "/", "-xdev", "-type", "f", "-perm", "/6000").stdout
    assert raising == ""
