"""The one door to the docker package: every blocking call, with a deadline, a bound, and errors of our own tree.

What comes out is a result or one of ``FolioboxError``'s classes, never an exception of docker, requests or urllib3.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import docker
from docker import errors
from docker.utils import kwargs_from_env
from requests.exceptions import Timeout

from runner.errors import BackendUnavailable, FolioboxError, SandboxLost

THREADS: Final = 8
_MAX_WAITING: Final = 256
RETRY_MS: Final = 2000
_ASK_S: Final = 3.0
_ASKING: Final = ("ping", "info")  # what finds out whether a daemon answers again
_PATIENT: Final = ("wait",)  # what may rightly take longer than somebody waits
_SILENT: Final = "the Docker daemon does not answer in time; look at its log"
_TELLING: Final = (
    ("Permission denied", "the Docker socket may not be used by this process: add its user to the socket's group"),
    ("No such file", "no Docker daemon is there: start it, or set DOCKER_HOST"),
    ("refused", "no Docker daemon is there: start it, or set DOCKER_HOST"),
)
_OLDEST_API: Final = (1, 41)  # private cgroup namespaces, Docker 20.10


class ContainerGone(SandboxLost):
    """The daemon has no such container, or it does not run any more."""


class ImageMissing(BackendUnavailable):
    """The daemon has no such image."""


class NameTaken(BackendUnavailable):
    """A container has that name already, or what was asked for contradicts its state."""


class Door:
    """Calls of one daemon. ``call`` is the only way to it.

    After a call that was not answered in time, the next ones ask first, together and briefly, whether the daemon
    answers again: on one that hangs nobody waits out a deadline of their own.
    """

    def __init__(self, daemon: Mapping[str, str], timeout_s: float) -> None:
        self._daemon, self._timeout_s = dict(daemon), timeout_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")
        self._opening = threading.Lock()
        self._client: Any = None
        self._waiting = 0
        self._silent = False  # the last that was heard of it was nothing
        self._asking: asyncio.Task[None] | None = None

    async def call(self, method: str, *args: object, limit_s: float | None = None, **options: object) -> Any:
        """What ``docker.APIClient.<method>`` gives.

        Raises BackendUnavailable (also ImageMissing, NameTaken) and ContainerGone. A call whose deadline has passed
        may yet be done by the daemon.
        """
        if self._silent and method not in _ASKING:
            await self._ask()
        if self._waiting >= _MAX_WAITING:
            raise unavailable("too many calls wait for the Docker daemon", method)
        self._waiting += 1
        try:
            async with asyncio.timeout(limit_s or self._timeout_s):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, self._do, method, args, options)
        except Exception as error:
            if isinstance(error, TimeoutError | Timeout) and method not in _PATIENT:
                self._silent = True
            raise translated(error, method) from error
        finally:
            self._waiting -= 1

    async def _ask(self) -> None:
        if self._asking is None:
            self._asking = asyncio.create_task(self._ping())
            self._asking.add_done_callback(self._asked)
        await asyncio.shield(self._asking)

    async def _ping(self) -> None:
        await self.call("ping", limit_s=min(_ASK_S, self._timeout_s))

    def _asked(self, asking: asyncio.Task[None]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # whoever waits raises it; they may all be gone

    def reopen(self) -> None:
        """Ask the daemon anew which version it speaks: it may be another one now."""
        with self._opening:
            self._client = None

    def _do(self, method: str, args: tuple[object, ...], options: dict[str, object]) -> Any:
        try:
            do: Callable[..., Any] = getattr(self._opened(), method)
            given = do(*args, **options)
        except Exception as error:
            if _status(error) is not None:
                self._silent = False
            raise
        self._silent = False  # also when it comes too late for whoever asked
        return given

    def _opened(self) -> Any:
        """The client; made anew until the daemon has once said which version it speaks."""
        with self._opening:
            if self._client is None:
                where = kwargs_from_env(self._daemon or {"DOCKER_HOST": ""})
                client = docker.APIClient(**where, timeout=self._timeout_s, max_pool_size=THREADS)
                if tuple(int(part) for part in client.api_version.split(".")) < _OLDEST_API:
                    raise errors.InvalidVersion(f"API {client.api_version} is too old: Docker 20.10 or newer is needed")
                self._client = client
            return self._client


def translated(error: BaseException, doing: str) -> FolioboxError:
    """An error of our tree for whatever the docker package and what is below it may raise."""
    said = _said(error)
    cause = f"{doing}: {type(error).__name__}: {said}"[:500]
    if isinstance(error, FolioboxError):
        return error
    if isinstance(error, errors.ImageNotFound) or (_status(error) == 404 and "no such image" in said.lower()):
        advice = "the sandbox image is not there: run `make images`, or set SANDBOX_IMAGE"
        return ImageMissing(advice, cause=cause, retry_after_ms=RETRY_MS)
    if _status(error) == 404:
        return gone(cause)
    if _status(error) == 409:
        return NameTaken("a container is in the way; send the request again", cause=cause, retry_after_ms=RETRY_MS)
    if isinstance(error, errors.InvalidVersion):
        return BackendUnavailable(said, cause=cause)
    if isinstance(error, errors.TLSParameterError):
        return BackendUnavailable("DOCKER_TLS_VERIFY and DOCKER_CERT_PATH do not go together", cause=cause)
    if isinstance(error, errors.DockerException) and _status(error) is not None:
        return unavailable("the Docker daemon could not do it; see the log", cause)
    return unavailable(silent(said), cause)


def silent(said: str) -> str:
    """What to do about a daemon that does not answer, from what was said of it."""
    return next((advice for sign, advice in _TELLING if sign in said), _SILENT)


def explained(error: FolioboxError) -> str:
    """What to tell an operator: with the cause, unless the advice says it all."""
    plain = error.cause is None or any(error.detail == advice for _, advice in _TELLING)
    return error.detail if plain else f"{error.detail} ({error.cause})"


def unavailable(detail: str, cause: str) -> BackendUnavailable:
    """The daemon is to blame, and may be well again soon."""
    return BackendUnavailable(detail, cause=cause, retry_after_ms=RETRY_MS)


def gone(cause: str) -> ContainerGone:
    """A sandbox has ended; there may be another."""
    return ContainerGone("the sandbox is gone; send the request again", cause=cause, retry_after_ms=RETRY_MS)


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as unsaid:  # some of the package's fail when they are shown
        return f"(not shown: {unsaid!r})"


def _status(error: BaseException) -> int | None:
    code = getattr(getattr(error, "response", None), "status_code", None)
    return code if isinstance(error, errors.APIError) and isinstance(code, int) else None
