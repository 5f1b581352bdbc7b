"""The columns that tests run in: a way to start sandboxes, the settings that choose it, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OFFERED = "FOLIOBOX_COLUMNS"  # in the environment of tests: the columns that this host has, by name
CHOSEN = "FOLIOBOX_COLUMN"  # the one that services of this test process use


@dataclass(frozen=True)
class Column:
    """One way to start sandboxes, with what ``/healthz`` has to say of it."""

    name: str
    backend: str
    isolation: str
    runtime: str = ""

    @property
    def needs_engine(self) -> bool:
        """Whether it is a column of the Docker engine."""
        return self.backend == "docker"

    def settings(self) -> dict[str, str]:
        """The settings that choose it."""
        return {"SANDBOX_BACKEND": self.backend, **({"SANDBOX_RUNTIME": self.runtime} if self.runtime else {})}


BUBBLEWRAP = Column("bubblewrap", "bubblewrap", "shared-kernel")
RUNC = Column("docker-runc", "docker", "shared-kernel", "runc")
RUNSC = Column("docker-runsc", "docker", "separate-kernel", "runsc")
COLUMNS = {column.name: column for column in (BUBBLEWRAP, RUNC, RUNSC)}


def named(text: str) -> list[Column]:
    """Columns of a list with commas, in their own order. Raises ValueError for a name that there is not."""
    names = {name.strip() for name in text.split(",") if name.strip()}
    if unknown := names - set(COLUMNS):
        raise ValueError(f"no such column: {', '.join(sorted(unknown))}; there are: {', '.join(COLUMNS)}")
    return [column for column in COLUMNS.values() if column.name in names]


def offered(environment: Mapping[str, str]) -> list[Column]:
    """The columns that whoever started the tests found here; all of them where nobody looked."""
    return named(environment.get(OFFERED, "")) or list(COLUMNS.values())
