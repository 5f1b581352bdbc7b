"""What a run printed, as the sessions protocol shows it: within its bytes, the end of ``stderr`` always there. Pure."""

from __future__ import annotations

from typing import Final

from runner.conversations.output import StreamText
from runner.conversations.result import RunResult
from runner.model import Outcome

_GAP: Final = "\n… {count} bytes left out …\n"
_CUT: Final = "\n... [truncated, {name} exceeded {size}]"
_TAG: Final = "[sandbox] "
_TIMEOUT: Final = "\n[sandbox] execution exceeded {seconds:.3f}s and was killed"
_WHY: Final = {
    Outcome.OOM: "the code ran out of memory and was killed",
    Outcome.INTERRUPTED: "the execution was interrupted",
    Outcome.LOST: "the sandbox was lost while this ran; its files are as they were before",
}


def stdout(result: RunResult, limit: int) -> str:
    """The stream within ``limit`` bytes of UTF-8."""
    return _shown(result.stdout, "", "stdout", limit)


def stderr(result: RunResult, timeout_ms: int, limit: int, *notes: str) -> str:
    """The stream, the traceback that the interpreter gave apart from it, and what the service has to say."""
    timed_out = result.outcome is Outcome.TIMEOUT
    text = _with_traceback(result)
    after = _TIMEOUT.format(seconds=timeout_ms / 1000) if timed_out else ""
    said = [_WHY.get(result.outcome, ""), str(result.files_error["detail"]) if result.files_error else "", *notes]
    for note in filter(None, said):
        before = after or text.text
        after += ("\n" if before and not before.endswith("\n") else "") + _TAG + note
    return _shown(text, after, "stderr", limit)


def _with_traceback(result: RunResult) -> StreamText:
    """The stream as a process would have left it: an exception that ended the code is told at its end."""
    text = result.stderr
    traceback = str(result.error.get("traceback") or "") if result.error and result.outcome is Outcome.ERROR else ""
    if not traceback:
        return text
    joined = text.text + ("\n" if text.text and not text.text.endswith("\n") else "") + traceback
    return StreamText(joined, text.truncated, text.total + len(traceback.encode("utf-8", "replace")), text.full)


def exit_code(result: RunResult) -> int:
    """As a shell would tell it: 124 for the limit, 128 and the signal's number for a signal."""
    if result.outcome is Outcome.TIMEOUT:
        return 124
    if result.outcome is Outcome.OOM:
        return 137
    if result.outcome is Outcome.INTERRUPTED:
        return 130
    if result.signal:
        return 128 + result.signal
    if result.exit_code is not None:
        return result.exit_code
    return 0 if result.outcome is Outcome.OK else 1


def _shown(stream: StreamText, after: str, name: str, limit: int) -> str:
    """At most ``limit`` bytes: the beginning and the end of the stream, and ``after`` whole."""
    data = stream.text.encode("utf-8", "replace")
    tail = after.encode("utf-8", "replace")[: limit // 2]
    cut = stream.truncated or len(data) + len(tail) > limit
    if cut:
        size = f"{limit // 1024}KB" if limit % 1024 == 0 else f"{limit} bytes"
        tail = _CUT.format(name=name, size=size).encode() + tail
    room = limit - len(tail)
    if len(data) > room:
        gap = _GAP.format(count=len(data) - room).encode()
        half = max(0, (room - len(gap)) // 2)
        data = data[:half] + gap + data[len(data) - half :]
    return data.decode("utf-8", "ignore") + tail.decode("utf-8", "ignore")
