"""Gathers each component's own settings from the environment, and finds names that are likely typing errors."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner import environment
from runner.api.config import ApiConfig
from runner.api.connections import ConnectionsConfig
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.docker.config import DockerConfig
from runner.backends.egress import EgressConfig
from runner.conversations.config import ConversationsConfig
from runner.egress.config import FetchConfig
from runner.errors import ConfigurationError
from runner.leases.config import LeasesConfig
from runner.limits.config import LimitsConfig
from runner.objects.config import ObjectsConfig
from runner.sessions.config import SessionsConfig
from runner.workspace.config import WorkspaceConfig

BACKENDS = ("auto", "docker", "bubblewrap", "unisolated")
_NAME = re.compile(r"SANDBOX_[A-Z0-9_]+")
_OF_TOOLS = (
    "FOLIOBOX_CACHE_DIR",
    "FOLIOBOX_DEBIAN_MIRROR",
    "FOLIOBOX_CERTS",
    "FOLIOBOX_BUILD_CACHE",
    "FOLIOBOX_BUILD_CA",
)
_FOREIGN = ("SANDBOX_SERVICE_", "SANDBOX_PORT")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a start needs to know."""

    api: ApiConfig
    connections: ConnectionsConfig
    limits: LimitsConfig
    leases: LeasesConfig
    workspace: WorkspaceConfig
    objects: ObjectsConfig
    sessions: SessionsConfig
    conversations: ConversationsConfig
    bubblewrap: BubblewrapConfig
    docker: DockerConfig
    backend: str
    require_isolation: str
    allow_unisolated: bool
    egress: EgressConfig
    fetch: FetchConfig
    log_level: str
    unknown: tuple[str, ...] = ()
    misspelt: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_env(cls, env: environment.Env) -> Settings:
        """All settings. Raises ConfigurationError on a value that cannot work or a likely misspelt name."""
        return cls(
            api=ApiConfig.from_env(env),
            connections=ConnectionsConfig.from_env(env),
            limits=LimitsConfig.from_env(env),
            leases=LeasesConfig.from_env(env),
            workspace=WorkspaceConfig.from_env(env),
            objects=ObjectsConfig.from_env(env),
            sessions=SessionsConfig.from_env(env),
            conversations=ConversationsConfig.from_env(env),
            bubblewrap=BubblewrapConfig.from_env(env),
            docker=DockerConfig.from_env(env),
            backend=environment.choice(env, "SANDBOX_BACKEND", "auto", BACKENDS),
            require_isolation=environment.choice(env, "SANDBOX_REQUIRE_ISOLATION", "", ("", "separate-kernel")),
            allow_unisolated=environment.switch(env, "SANDBOX_ALLOW_UNISOLATED"),
            egress=EgressConfig.from_env(env),
            fetch=FetchConfig.from_env(env),
            log_level=environment.choice(env, "SANDBOX_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
            unknown=tuple(_unknown(env)),
            misspelt=tuple(_misspelt(env)),
        )


@cache
def known_names() -> frozenset[str]:
    """Every setting that this code reads, found in the code that reads it."""
    found: set[str] = set()
    for path in Path(__file__).parent.rglob("*.py"):
        found |= set(re.findall(r'"(SANDBOX_[A-Z0-9_]+)"', path.read_text(encoding="utf-8")))
    return frozenset(found)


def _unknown(env: environment.Env) -> Iterator[str]:
    for name in env:
        if not _NAME.fullmatch(name) or name in known_names() or name.startswith(_FOREIGN):
            continue
        near = difflib.get_close_matches(name, known_names(), 1, 0.8)
        if near and _distance(name, near[0]) <= 2:
            raise ConfigurationError(f"{name} is not a setting; did you mean {near[0]}?")
        yield name


def _misspelt(env: environment.Env) -> Iterator[tuple[str, str]]:
    """``FOLIOBOX_`` names near to one of its settings; others may be anybody's."""
    for name in env:
        if name.startswith("FOLIOBOX_") and name not in _OF_TOOLS:
            near = next((known for known in _OF_TOOLS if _distance(name, known) <= 2), None)
            if near is not None:
                yield name, near


def _distance(one: str, other: str) -> int:
    """Levenshtein distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]
