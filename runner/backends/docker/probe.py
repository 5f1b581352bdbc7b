"""Tries what a container needs of this daemon, and says which walls stand, from what a real one shows."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from runner.backends.base import BackendReport
from runner.backends.docker import groups
from runner.backends.docker.args import Engine
from runner.backends.docker.config import DockerConfig
from runner.backends.docker.door import Door, ImageMissing, explained
from runner.backends.docker.groups import Groups
from runner.backends.docker.look import ALIVE, SCRIPT
from runner.backends.docker.removal import Removal
from runner.backends.docker.starting import Started, Starter
from runner.backends.docker.walls import Seen, content_of, isolation_of, walls_of
from runner.errors import FolioboxError

GVISOR: Final = "runsc"
_LIMIT_S = 30.0
_NEEDED: Final = ("namespaces", "seccomp", "no-new-privileges", "own-uid")


@dataclass(frozen=True, slots=True)
class Found:
    """What a probe gives: the report, and what later starts need when it is good."""

    report: BackendReport
    engine: Engine | None = None
    groups: Groups | None = None


class Probe:
    """One look at a daemon: its version, its image, and its runtimes by trying them."""

    def __init__(self, config: DockerConfig, door: Door, starter: Starter, removal: Removal) -> None:
        self._config, self._door = config, door
        self._starter, self._removal = starter, removal

    async def run(self) -> Found:
        """Raises nothing."""
        self._door.reopen()
        try:
            info: Mapping[str, Any] = await self._door.call("info")
            image: Mapping[str, Any] = await self._door.call("inspect_image", self._config.image)
        except ImageMissing:
            advice = "build it with `make images`, or name another with SANDBOX_IMAGE"
            missing = f"no image {self._config.image}: {advice}"
            return Found(BackendReport("docker", False, image=self._config.image, detail=missing))
        except FolioboxError as error:
            return Found(BackendReport("docker", False, image=self._config.image, detail=explained(error)))
        return await self._choose(info, str(image["Id"]))

    async def with_image(self, image: str, runtime: str) -> Found:
        """The same runtime with another image, by its id. Raises nothing."""
        try:
            info: Mapping[str, Any] = await self._door.call("info")
        except FolioboxError as error:
            return Found(BackendReport("docker", False, image=self._config.image, detail=explained(error)))
        return await self._try(info, image, runtime)

    async def _choose(self, info: Mapping[str, Any], image: str) -> Found:
        """The named runtime; ``auto`` is gVisor's where that works, else the daemon's own."""
        runtimes: Mapping[str, Any] = info.get("Runtimes") or {}
        named, passed_over = self._config.runtime, ""
        if named != "auto":
            if named not in runtimes:
                there = ", ".join(sorted(runtimes))
                return self._unavailable(info, f"SANDBOX_RUNTIME={named}: the Docker daemon has only {there}")
            return await self._try(info, image, named)
        if GVISOR in runtimes:
            found = await self._try(info, image, GVISOR)
            if found.report.available:
                return found
            passed_over = f"{GVISOR} is not used: {found.report.detail}"
        found = await self._try(info, image, _plain(info, runtimes))
        detail = "; ".join(filter(None, (found.report.detail, passed_over)))
        return replace(found, report=replace(found.report, detail=detail))

    async def _try(self, info: Mapping[str, Any], image: str, runtime: str) -> Found:
        engine = Engine(
            image=image,
            runtime=runtime,
            guest_root=_is_gvisor(runtime, info),
            tcp_memory=str(info.get("CgroupVersion")) == "1" and bool(info.get("KernelMemoryTCP")),
        )
        seen = await self._look(engine)
        if seen.error:
            return self._unavailable(info, f"a container of {runtime} could not be started: {seen.error}", runtime)
        isolation = isolation_of(seen.facts, info)
        try:
            walls = walls_of(seen, info, isolation, self._config.limits.memory_bytes)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            return self._unavailable(info, f"a container of {runtime} gave no answer: {error!r}", runtime)
        missing = [wall.name for wall in walls if wall.name in _NEEDED and not wall.stands]
        if missing:
            return self._unavailable(info, f"a container of {runtime} has no {', '.join(missing)}", runtime)
        version, image_shown = str(info.get("ServerVersion", "")), shown(self._config.image, image)
        report = BackendReport("docker", True, isolation, image_shown, True, "", walls, runtime, version)
        return Found(report, replace(engine, content=content_of(seen.facts) or image), seen.groups)

    def _unavailable(self, info: Mapping[str, Any], detail: str, runtime: str = "") -> Found:
        version = str(info.get("ServerVersion", ""))
        report = BackendReport(
            "docker", False, image=self._config.image, image_ready=True, detail=detail, runtime=runtime, engine=version
        )
        return Found(report)

    async def _look(self, engine: Engine) -> Seen:
        command = [self._config.agent_python, "-I", "-S", "-c", SCRIPT]
        sandbox_id = f"probe-{secrets.token_hex(6)}"
        try:
            started = await self._starter.start(engine, sandbox_id, self._config.limits, command)
        except FolioboxError as error:
            return Seen({}, error=error.cause or error.detail)
        try:
            return await self._read(started)
        except (OSError, ValueError, TimeoutError, FolioboxError) as error:
            words = started.attached.outputs.last_words.decode("utf-8", "replace").strip()
            return Seen({}, error=f"{type(error).__name__}: {error} {words}".strip()[-600:])
        finally:
            started.attached.close()
            await self._removal.remove(started.container)

    async def _read(self, started: Started) -> Seen:
        reader = started.attached.reader
        async with asyncio.timeout(_LIMIT_S):
            facts = json.loads(await reader.readline())
        last = b""
        try:
            async with asyncio.timeout(_LIMIT_S / 10):
                last = await reader.readline()
        except TimeoutError:
            pass  # it was stopped
        alive = last.decode("ascii", "replace").strip() == ALIVE
        places, limit = None, None
        if alive:
            state = (await self._door.call("inspect_container", started.container))["State"]
            places = groups.find(started.container, int(state["Pid"]))
            limit = places.memory_limit(started.container) if places is not None else None
        return Seen(facts, alive, places, limit, started.warnings)


def shown(name: str, image: str) -> str:
    """A name with the image that it stands for, as Docker's command line shows it."""
    return name if "@" in name else f"{name}@{image.removeprefix('sha256:')[:12]}"


def _plain(info: Mapping[str, Any], runtimes: Mapping[str, Any]) -> str:
    default = str(info.get("DefaultRuntime") or "runc")
    return "runc" if default == GVISOR and "runc" in runtimes else default


def _is_gvisor(runtime: str, info: Mapping[str, Any]) -> bool:
    path = str(((info.get("Runtimes") or {}).get(runtime) or {}).get("path", ""))
    return any(word in text.lower() for text in (runtime, os.path.basename(path)) for word in ("runsc", "gvisor"))
