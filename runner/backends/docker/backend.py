"""Starts sandboxes as containers, ends them, and knows those again that an earlier start of the runner left."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.agent import loader
from runner.backends.base import SANDBOX_UID, WORKSPACE, BackendReport, Permission, agent_command, as_it_is
from runner.backends.child import started_or_undone
from runner.backends.docker import labels
from runner.backends.docker.args import Engine
from runner.backends.docker.attach import attach
from runner.backends.docker.attachment import Attachment
from runner.backends.docker.config import DockerConfig
from runner.backends.docker.door import RETRY_MS, Door, ImageMissing, explained, gone, unavailable
from runner.backends.docker.groups import Groups
from runner.backends.docker.probe import Found, Probe
from runner.backends.docker.removal import Removal
from runner.backends.docker.sandbox import DockerSandbox
from runner.backends.docker.starting import Started, Starter
from runner.backends.egress import PACKAGES, Looks
from runner.errors import BackendUnavailable, FolioboxError, SandboxLost
from runner.model import SandboxSpec
from runner.telemetry.logs import logger

_START_S = 30.0
_PING_S = 5.0
log = logger("docker")


class DockerBackend:
    """Containers of one daemon. ``boot`` is the id of this start of the runner."""

    name = "docker"

    def __init__(self, config: DockerConfig, boot: str | None = None) -> None:
        self._config = config
        self._boot = boot or secrets.token_hex(8)
        self._door = Door(config.daemon, config.timeout_s)
        self._removal = Removal(self._door)
        self._starter = Starter(config, self._door, self._removal, self._boot)
        self._probe = Probe(config, self._door, self._starter, self._removal)
        self._attachment = Attachment(config, self._door, self._starter, self._removal)
        self._looks = Looks()
        self._found: Found | None = None  # what was last reported
        self._unusable: str | None = None  # the image that was told of; empty for none of that name
        self._engine: Engine | None = None
        self._groups: Groups | None = None
        self._kept: set[str] = set()  # ids of survivors that were attached to

    async def probe(self, allowed: Permission = as_it_is) -> BackendReport:
        """What is not there or not allowed is not used, and neither is what was used before: it has not been found."""
        found = await self._probe.run()
        network = self._looks.first(await self._attachment.look(found.engine if found.report.available else None))
        found = replace(found, report=replace(found.report, network=network))
        report = allowed(found.report)
        return self._take(found if report.available else Found(report))

    def _take(self, found: Found) -> BackendReport:
        self._found, self._engine, self._groups, self._unusable = found, found.engine, found.groups, None
        return found.report

    async def trouble(self) -> str:
        try:
            await self._door.call("ping", limit_s=_PING_S)
        except FolioboxError as error:
            return explained(error)
        self._removal.try_again()
        return ""

    async def renewed(self, allowed: Permission = as_it_is) -> BackendReport | None:
        """Where the image's name stands for another one. What cannot be used changes nothing, and is told once."""
        if self._found is None or self._found.engine is None:
            return None
        try:
            image = str((await self._door.call("inspect_image", self._config.image, limit_s=_PING_S))["Id"])
        except ImageMissing:
            self._tell_unusable("", "there is none of that name any more")
            return None
        except FolioboxError:  # trouble() tells of it
            return None
        if image == self._found.engine.image:
            self._unusable = None
            return await self._egress_renewed(self._found, allowed)
        found = await self._probe.with_image(image, self._found.engine.runtime)
        report = allowed(found.report)
        if found.engine is None or not report.available:
            self._tell_unusable(image, report.detail)
            return None
        was = self._found.report
        return self._take(replace(found, report=replace(report, detail=was.detail, network=was.network)))

    async def _egress_renewed(self, found: Found, allowed: Permission) -> BackendReport | None:
        """Where the network or its proxy has come or gone, or the network is of another kind."""
        known = found.report.network
        if not self._config.egress.wanted:
            return None
        seen = self._looks.next(known, await self._attachment.again(found.engine, known))
        if seen == known:
            return None
        report = allowed(replace(found.report, network=seen))
        return self._take(replace(found, report=report)) if report.available else None

    def _tell_unusable(self, image: str, why: str) -> None:
        if self._unusable != image:
            self._unusable = image
            log.warning("the sandbox image that was used so far goes on", image=self._config.image, because=why)

    async def create(self, spec: SandboxSpec) -> DockerSandbox:
        return await started_or_undone(self._create(spec))

    async def _create(self, spec: SandboxSpec) -> DockerSandbox:
        engine = self._engine
        if engine is None:
            advice = "no sandbox can be started: run `foliobox doctor` to see what is missing"
            raise BackendUnavailable(advice, retry_after_ms=RETRY_MS)
        command = agent_command(self._config.agent_python, self._agent(engine, spec))

        async def start(engine: Engine) -> Started:
            return await self._starter.start(engine, spec.sandbox_id, spec.limits, command, network=spec.network)

        try:
            started = await start(engine)
        except ImageMissing:
            engine = await self._image_again(engine)
            started = await start(engine)
        counters = self._groups.counters(started.container) if self._groups is not None else None
        sandbox = DockerSandbox(
            spec.sandbox_id, started.container, started.attached, self._door, self._removal, counters,
            self._config.orphan_s,
        )  # fmt: skip
        try:
            await sandbox.hand_over(loader.bundle(), _START_S)
        except BaseException as error:
            await sandbox.destroy()
            if isinstance(error, OSError):
                cause = f"{error} {sandbox.last_words}".strip()
                raise unavailable("the agent of a sandbox did not start; send the request again", cause) from error
            raise
        return sandbox

    def _agent(self, engine: Engine, spec: SandboxSpec) -> dict[str, object]:
        config: dict[str, object] = {
            "root": WORKSPACE,
            "python": self._config.python,
            "orphan_s": self._config.orphan_s,
            "nofile": spec.limits.nofile,
        }
        config |= {"packages": PACKAGES} if spec.network else {}
        return config | ({"uid": SANDBOX_UID} if engine.guest_root else {})

    async def _image_again(self, engine: Engine) -> Engine:
        """The image that its name stands for now: it was built anew, and the old one removed. Raises ImageMissing."""
        image: Mapping[str, Any] = await self._door.call("inspect_image", self._config.image)
        if image["Id"] == engine.image:
            advice = f"the image {self._config.image} cannot be used: build it with `make images`"
            raise ImageMissing(advice, retry_after_ms=RETRY_MS)
        log.warning("the sandbox image is another one now", image=self._config.image)
        self._engine = Engine(str(image["Id"]), engine.runtime, engine.guest_root, engine.tcp_memory)
        return self._engine

    # -- what an earlier start left --------------------------------------------------------------------------

    async def survivors(self) -> list[str]:
        """Only those of the runtime and the image that are used now: no lower wall, and no other programs."""
        if self._engine is None:
            raise BackendUnavailable("no sandbox can be looked for before one can be started", retry_after_ms=RETRY_MS)
        runtime, content = self._engine.runtime, self._engine.content
        earlier = [labelled for _, labelled in await self._ours(running=True) if self._is_leftover(labelled)]
        granted = self._config.egress.label if self._config.egress.wanted else ""
        used = [told for told in earlier if labels.goes_on(told, runtime, content, granted)]
        return [told[labels.SANDBOX] for told in used if labels.SANDBOX in told]

    async def attach(self, sandbox_id: str) -> DockerSandbox:
        found = await self._door.call("inspect_container", labels.container_name(sandbox_id))
        try:
            container, state, told = str(found["Id"]), found["State"], found["Config"]["Labels"] or {}
            runs = state["Running"] and not state["Paused"]
            orphan_s = float(told[labels.ORPHAN_AFTER])
        except (KeyError, TypeError, ValueError) as error:
            raise SandboxLost("the sandbox is not one of this service", cause=repr(error)) from error
        if not runs or told.get(labels.DEPLOYMENT) != labels.deployment_id(self._config.data):
            raise gone(f"{sandbox_id} does not run")
        attached = await attach(self._config.daemon, container, self._config.timeout_s)
        counters = self._groups.counters(container) if self._groups is not None else None
        self._kept.add(sandbox_id)
        return DockerSandbox(sandbox_id, container, attached, self._door, self._removal, counters, orphan_s)

    async def sweep(self) -> int:
        try:
            found = await self._ours(running=False)
        except FolioboxError as error:
            log.warning("containers of an earlier start could not be listed", cause=error.cause)
            return 0
        count = 0
        for container, told in found:
            if self._is_leftover(told):
                count += await self._removal.remove(container)
        return count

    def _is_leftover(self, told: Mapping[str, str]) -> bool:
        """Whether an earlier start made it, and this one has not taken it over."""
        return told.get(labels.BOOT) != self._boot and told.get(labels.SANDBOX) not in self._kept

    async def _ours(self, *, running: bool) -> list[tuple[str, dict[str, str]]]:
        """Id and labels of this deployment's containers."""
        try:
            mine = labels.deployment_id(self._config.data)
        except OSError as error:
            raise unavailable("the data folder cannot be used", repr(error)) from error
        listed = await self._door.call("containers", all=not running, filters={"label": f"{labels.DEPLOYMENT}={mine}"})
        return [(str(item["Id"]), dict(item.get("Labels") or {})) for item in listed]
