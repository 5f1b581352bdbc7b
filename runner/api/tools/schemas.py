"""What the tools' surface answers."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from runner.api.v1.schemas import ArtifactOut


class Absent(BaseModel):
    """A tool that is not offered, and the setting that would change that."""

    name: str
    reason: str
    setting: str | None


class CatalogueOut(BaseModel):
    """The catalogue; each tool in the shape that was asked for."""

    tools: list[dict[str, Any]]
    unavailable: list[Absent] | None = Field(None, description="With `include=unavailable` only.")


class ToolOut(BaseModel):
    """What a tool gives; further fields are the tool's own."""

    model_config = ConfigDict(extra="allow")
    files: list[ArtifactOut] = Field(description="Those that it made or changed.")
