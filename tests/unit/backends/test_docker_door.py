"""The door to the docker package is total: whatever is raised behind it comes out as an error of our own tree."""

from __future__ import annotations

import asyncio
import concurrent.futures
import http.client
import inspect
import json
import socket
import ssl
from collections.abc import Iterator
from types import ModuleType

import docker
import docker.errors
import pytest
import requests.exceptions
import urllib3.exceptions

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


@pytest.mark.parametrize("error", [answer(500), answer(404, "No such container"), answer(409), ConnectionError()])
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
