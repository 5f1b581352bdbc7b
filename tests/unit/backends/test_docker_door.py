"""The door to the docker package is total: whatever is raised behind it comes out as an error of our own tree."""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
import inspect
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from types import ModuleType

import docker
import docker.errors
import pytest
import requests.exceptions
import urllib3.exceptions

from runner.backends.docker import door as door_module
from runner.backends.docker.door import ContainerGone, Door, ImageMissing, NameTaken, translated
from runner.errors import BackendUnavailable, FolioboxError, SandboxLost


def classes(module: ModuleType) -> Iterator[type[Exception]]:
    for _, item in inspect.getmembers(module, inspect.isclass):
        if issubclass(item, Exception) and not issubclass(item, Warning):
            yield item


FOREIGN: list[type[Exception]] = [
    *classes(docker.errors), *classes(requests.exceptions), *classes(urllib3.exceptions),
    *OSError.__subclasses__(), *classes(http.client), socket.gaierror, ssl.SSLError, json.JSONDecodeError,
    TimeoutError, asyncio.TimeoutError, concurrent.futures.BrokenExecutor,
    RuntimeError, ValueError, KeyError, TypeError,
]  # fmt: skip


def made(kind: type[Exception]) -> Exception:
    """One of a class, whatever its constructor wants."""
    error = kind.__new__(kind)
    error.args = ("told by the test",)
    return error


@pytest.mark.parametrize("kind", sorted(set(FOREIGN), key=str))
async def test_every_exception_comes_out_as_ours(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        api_version = "1.41"

        def ping(self) -> None:
            error = made(kind)
            error.response = None  # type: ignore[attr-defined]  # what requests and docker set
            raise error

    monkeypatch.setattr(docker, "APIClient", lambda **_: Client())
    with pytest.raises(FolioboxError) as caught:
        await Door({}, 5).call("ping")
    assert isinstance(caught.value, BackendUnavailable | SandboxLost)
    assert caught.value.cause


def test_the_list_of_exceptions_is_not_empty() -> None:
    assert len(set(FOREIGN)) > 60


def answer(status: int, text: str = "") -> docker.errors.APIError:
    response = requests.Response()
    response.status_code = status
    return docker.errors.APIError(text or f"status {status}", response=response, explanation=text)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answer(404, "No such container: x"), ContainerGone),
        (answer(404, "No such image: x"), ImageMissing),
        (docker.errors.ImageNotFound("x"), ImageMissing),
        (answer(409, "is already in use"), NameTaken),
        (answer(500), BackendUnavailable),
        (answer(400), BackendUnavailable),
        (requests.exceptions.ReadTimeout(), BackendUnavailable),
        (TimeoutError(), BackendUnavailable),
    ],
)
def test_what_can_be_acted_on_is_told_apart(error: Exception, kind: type[FolioboxError]) -> None:
    assert type(translated(error, "test")) is kind


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (PermissionError(13, "Permission denied"), "group"),
        (FileNotFoundError(2, "No such file or directory"), "start it"),
        (ConnectionRefusedError(111, "Connection refused"), "start it"),
        (requests.exceptions.ReadTimeout("Read timed out."), "look at its log"),
    ],
)
def test_a_daemon_that_does_not_answer_gets_fitting_advice(error: Exception, advice: str) -> None:
    wrapped = docker.errors.DockerException(f"Error while fetching server API version: ('Aborted.', {error!r})")
    assert advice in translated(error, "test").detail
    assert advice in translated(wrapped, "test").detail


@pytest.mark.parametrize(
    "error",
    [
        answer(500), answer(404, "No such container"), answer(404, "No such image: x"), answer(409), ConnectionError(),
    ],
)  # fmt: skip
def test_what_may_pass_says_when_to_come_again(error: Exception) -> None:
    assert translated(error, "test").fields["retry_after_ms"] > 0  # type: ignore[operator]


def test_our_own_errors_pass() -> None:
    ours = SandboxLost("x")
    assert translated(ours, "test") is ours


async def test_a_daemon_that_says_nothing_is_given_up(tmp_path: object) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/silent.sock")
        silent.listen()
        with pytest.raises(BackendUnavailable, match="does not answer"):
            async with asyncio.timeout(5):
                await Door({"DOCKER_HOST": f"unix://{tmp_path}/silent.sock"}, 0.2).call("ping")


async def test_too_many_calls_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.backends.docker.door._MAX_WAITING", 0)
    with pytest.raises(BackendUnavailable, match="too many"):
        await Door({}, 5).call("ping")


async def test_an_old_daemon_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        api_version = "1.40"

    monkeypatch.setattr(docker, "APIClient", lambda **_: Client())
    with pytest.raises(BackendUnavailable, match=r"20\.10"):
        await Door({}, 5).call("ping")


class Hanging:
    """A daemon's client that answers nothing until it is let go."""

    api_version = "1.41"

    def __init__(self) -> None:
        self.go, self.asked = threading.Event(), list[str]()

    def __getattr__(self, method: str) -> Callable[..., str]:
        def answer(*_: object, **__: object) -> str:
            self.asked.append(method)
            self.go.wait(30)
            return method

        return answer


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    made = Hanging()
    monkeypatch.setattr(docker, "APIClient", lambda **_: made)
    monkeypatch.setattr(door_module, "_ASK_S", 0.1)
    yield made
    made.go.set()


async def test_of_a_daemon_that_hangs_only_the_first_waits_and_the_others_ask_it_together(hanging: Hanging) -> None:
    door = Door({}, 30)
    with pytest.raises(BackendUnavailable):
        await door.call("create_container_from_config", limit_s=0.05)
    async with asyncio.timeout(5):  # not the 30 s that each of them may take
        refused = await asyncio.gather(*(door.call("start") for _ in range(20)), return_exceptions=True)
    assert {type(one) for one in refused} == {BackendUnavailable}
    assert all(isinstance(one, BackendUnavailable) and one.fields["retry_after_ms"] for one in refused)
    assert hanging.asked == ["create_container_from_config", "ping"]
    hanging.go.set()
    assert await door.call("start") == "start"
    assert await door.call("inspect_container") == "inspect_container"
    assert hanging.asked.count("ping") <= 2  # it answers: nobody asks first any more


async def test_waiting_for_an_end_in_vain_says_nothing_about_the_daemon(hanging: Hanging) -> None:
    door = Door({}, 30)
    with pytest.raises(BackendUnavailable):
        await door.call("wait", limit_s=0.05)
    hanging.go.set()
    await door.call("start")
    assert hanging.asked == ["wait", "start"]


async def test_of_calls_that_are_given_up_nothing_is_left(hanging: Hanging) -> None:
    door = Door({}, 30)
    with pytest.raises(BackendUnavailable):
        await door.call("start", limit_s=0.05)
    call = asyncio.create_task(door.call("start"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    hanging.go.set()
    assert await door.call("start") == "start"
