"""Turns the result of a run into what this surface gives back: exit status, shortened streams, flat files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from runner.conversations.output import StreamText
from runner.conversations.result import RunResult
from runner.errors import FolioboxError, SandboxLost
from runner.leases.clamp import SAVED_ABOVE, clamp
from runner.leases.config import LeasesConfig
from runner.leases.flatten import Chosen, choose
from runner.leases.nouns import Answer, Item
from runner.model import FileEntry, Outcome
from runner.workspace.history import Workspace

_KILLED, _INTERRUPTED = -9, -2
_STREAMS: Final = {"stdout": "stdout.txt", "stderr": "stderr.txt"}


class Reader:
    """Reads one result. ``inputs`` are names that the run was given; ``kept``: there may be a next run."""

    def __init__(
        self, workspace: Workspace, result: RunResult, config: LeasesConfig, inputs: frozenset[str], *, kept: bool
    ) -> None:
        self._workspace, self._result, self._config = workspace, result, config
        self._inputs, self._kept = inputs, kept

    async def answer(self, lease: str | None, close: Callable[[], None]) -> Answer:
        """The whole answer. Raises SandboxLost where nothing is known of how the run ended, StoreFailed."""
        result = self._result
        status = exit_status(result)
        timed_out = result.outcome is Outcome.TIMEOUT
        saved: dict[str, bytes] = {}
        texts, shortened = {}, False
        for name in _STREAMS:
            texts[name], short = await self._text(name, saved)
            shortened = shortened or short
        if timed_out:
            texts["stderr"] += _line(
                texts["stderr"], f"the run was ended after {result.duration_ms / 1000:.0f} seconds"
            )
        if result.outcome is Outcome.OOM:
            texts["stderr"] += _line(texts["stderr"], "the sandbox ran out of memory and what ran was ended")
        if result.files_error is not None:
            texts["stderr"] += _line(texts["stderr"], f"no file was kept: {result.files_error['detail']}")
        await self._save(saved)
        chosen, items = self._items(saved)
        return Answer(
            exit_code=status,
            stdout=texts["stdout"],
            stderr=texts["stderr"],
            duration_ms=result.duration_ms,
            workspace=self._workspace,
            timed_out=timed_out,
            output_truncated=shortened,
            items=items,
            artifacts_truncated=chosen.truncated or result.files_dropped > 0,
            empty_files=chosen.empty,
            skipped_files=chosen.too_large,
            notes=self._notes(chosen),
            lease=lease,
            close=close,
        )

    async def _text(self, name: str, saved: dict[str, bytes]) -> tuple[str, bool]:
        """A stream as it is shown, and whether something of it is missing; a long one is put into ``saved``."""
        shown: StreamText = getattr(self._result, name)
        text, lost = shown.text, 0
        if shown.truncated:
            whole = await self._whole(shown)
            if whole is None:
                return clamp(text, self._budget)[0], True
            text, lost = whole.decode("utf-8", "replace"), max(0, shown.total - len(whole))
            if len(whole) > SAVED_ABOVE:
                saved[_STREAMS[name]] = whole
        return clamp(text, self._budget, _STREAMS[name] if _STREAMS[name] in saved else None, lost)

    @property
    def _budget(self) -> int:
        return self._config.output_bytes // 2

    async def _whole(self, shown: StreamText) -> bytes | None:
        """All of a stream that was kept; None where nothing was."""
        if shown.full is None:
            return None
        stream = await self._workspace.open_blob(shown.full.blob, shown.full.size)
        try:
            return b"".join([chunk async for chunk in stream])
        finally:
            await stream.aclose()

    async def _save(self, saved: dict[str, bytes]) -> None:
        """Long streams are files of the work folder for the next run; what does not fit is only delivered."""
        if not self._kept:
            return
        for name, content in saved.items():
            with suppress(FolioboxError):
                async with self._workspace.stage(len(content)) as staging:
                    await staging.write(content)
                    await self._workspace.put(name, staging)

    def _items(self, saved: dict[str, bytes]) -> tuple[Chosen, list[Item]]:
        entries: dict[str, FileEntry] = {
            entry.path: entry for entry in self._result.rewritten if entry.path not in self._inputs
        }
        entries |= {file.path: file.entry for file in self._result.files if file.entry is not None}
        sizes = {path: entry.size for path, entry in entries.items()} | {n: len(c) for n, c in saved.items()}
        chosen = choose(sizes, self._inputs, self._config.artifact_bytes)
        items = [
            Item(name, path, sizes[path], None if path in saved else entries[path], saved.get(path, b""))
            for name, path in chosen.files
        ]
        return chosen, items

    def _notes(self, chosen: Chosen) -> list[str]:
        notes = []
        if chosen.too_large:
            notes.append(f"{len(chosen.too_large)} files have more than {self._config.artifact_bytes} bytes each")
        return notes


def exit_status(result: RunResult) -> int:
    """As Python tells it of a child. Raises SandboxLost where nobody knows."""
    if result.outcome is Outcome.TIMEOUT:
        return -1
    if result.exit_code is not None:
        return result.exit_code
    if result.signal is not None:
        return -result.signal
    if result.outcome is Outcome.OOM:
        return _KILLED
    if result.outcome is Outcome.INTERRUPTED:
        return _INTERRUPTED
    raise SandboxLost("the sandbox ended during the run; send it again", cause=result.interpreter_reason)


def _line(before: str, text: str) -> str:
    return f"{'' if not before or before.endswith(chr(10)) else chr(10)}{text}\n"
