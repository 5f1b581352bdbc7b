"""A model of the one-shot gateway: its probe, what tools that gives, and a turn that keeps one container."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.oneshot.client import OneshotClient, Ran

PREVIEW = 4096
ALWAYS = ("run_in_sandbox", "generate_document", "convert_document", "edit_presentation", "render_typst")
WITH_EGRESS = ("capture_webpage", "browse_page")


@dataclass
class Gateway:
    """Started once: the probe is not repeated, and a failed one stops nothing."""

    client: OneshotClient
    egress: bool | None = None

    def start(self) -> Gateway:
        """Ask the runner once."""
        self.egress = self.client.probe()
        return self

    @property
    def tools(self) -> tuple[str, ...]:
        """What is offered: unknown counts as available."""
        return ALWAYS if self.egress is False else ALWAYS + WITH_EGRESS

    @property
    def offers_network(self) -> bool:
        """Whether ``run_in_sandbox`` has its ``network`` argument."""
        return self.egress is not False


@dataclass
class Turn:
    """One turn of a chat: calls share a container, one after another, and let go of it at the end."""

    client: OneshotClient
    container: str | None = None
    network: bool = False
    mutex: Any = field(default_factory=threading.Lock)
    seen: list[str | None] = field(default_factory=list)

    def run(
        self, language: str, code: str, files: dict[str, bytes] | None = None, *, fresh: bool = False,
        network: bool = False, **fields: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """``run_in_sandbox``: the common result of section 8.6, with ``workdir_reset`` when the lease was not kept."""
        with self.mutex:
            held = self.container
            flipped = held is not None and network != self.network
            ran = self.client.run(
                language, code, files, keep_alive=True, network=network,
                container_id=None if fresh or flipped else held, **fields,
            )  # fmt: skip
            if held and (fresh or flipped) and held != ran.container:
                self.client.release(held)
            self.container, self.network = ran.container, network
            self.seen.append(ran.container)
        result = common(ran)
        if held and not fresh and ran.container != held:
            result["workdir_reset"] = "the container was replaced; earlier files are gone"
        return result

    def end(self) -> None:
        """The end of the turn: the lease is let go."""
        if self.container:
            self.client.release(self.container)
        self.container = None


def common(ran: Ran) -> dict[str, Any]:
    """What the model is told of a run."""
    artifacts = ran.artifacts
    told: dict[str, Any] = {
        name: ran.raw[name] for name in ("exit_code", "timed_out", "output_truncated", "duration_ms")
    }
    for stream in ("stdout", "stderr"):
        told[stream] = ran.raw[stream]
        if f"{stream}.txt" in artifacts:
            told[stream] = {"preview": preview(ran.raw[stream]), "truncated": True, "full_output_ref": f"{stream}.txt"}
    told["artifacts"] = [
        {"name": each.name, "size": len(each.data), "mime": each.mime, "status": "attached"}
        | ({"sandbox_path": each.path} if each.path != each.name else {})
        for each in artifacts.values()
    ]
    if ran.raw["artifacts_truncated"]:
        told |= {"artifacts_truncated": True, "artifacts_note": "more files were made than are delivered"}
    return told


def preview(stream: str) -> str:
    """Sixty parts of its head and forty of its tail."""
    data = stream.encode()
    if len(data) <= PREVIEW:
        return stream
    head, tail = PREVIEW * 6 // 10, PREVIEW * 4 // 10
    return data[:head].decode(errors="ignore") + data[-tail:].decode(errors="ignore")
