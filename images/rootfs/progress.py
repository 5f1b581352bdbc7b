"""Run one step of the build: a log file, a line every few seconds, and a useful end when it fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

INTERVAL_S = 3.0
LIFELINE = Path(__file__).with_name("lifeline.sh")
TAIL_LINES = 15

# What the log says -> what it means and what to change. The first that matches is told.
CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"No space left on device|ENOSPC|You don't have enough free space",
        (
            "The disk is full. A build needs about 8 GB at the cache folder: free some, or put the cache"
            " elsewhere with FOLIOBOX_CACHE_DIR."
        ),
    ),
    (
        (
            r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSL certificate problem|unknown CA"
            r"|certificate is NOT trusted|server certificate verification failed"
        ),
        (
            "A certificate was refused: a proxy on the way seems to sign anew. Set PIP_CERT and SSL_CERT_FILE"
            " to a bundle that holds its authority."
        ),
    ),
    (
        r"THESE PACKAGES DO NOT MATCH THE HASHES|hashes are required|DO NOT MATCH THE HASHES",
        (
            "A Python package differs from the lock. If the index serves altered files, do not use it; after a"
            " change of python.in, make the lock anew (images/README.md)."
        ),
    ),
    (
        r"NO_PUBKEY|is not signed|couldn't be verified because the public key|Release signed by unknown key",
        "The Debian archive's signature could not be checked: install debian-archive-keyring.",
    ),
    (
        r"Unable to locate package|has no installation candidate",
        (
            "The mirror does not have a package that images/sandbox/apt names: it may be incomplete or no mirror"
            " of this suite. Choose another with FOLIOBOX_DEBIAN_MIRROR."
        ),
    ),
    (
        r"No matching distribution found|Could not find a version that satisfies",
        (
            "The Python index does not have a locked version. Point pip to a complete index (pip config, or"
            " PIP_INDEX_URL)."
        ),
    ),
    (
        (
            r"Temporary failure resolving|Could not resolve|Name or service not known|Failed to fetch"
            r"|Could not connect|Connection timed out|Network is unreachable|NewConnectionError|ProxyError"
            r"|ReadTimeoutError|Connection refused"
        ),
        (
            "A mirror did not answer. Check the network and http_proxy/https_proxy; another Debian mirror is set"
            " with FOLIOBOX_DEBIAN_MIRROR, another Python index in pip's configuration. Start again: what was"
            " downloaded is kept."
        ),
    ),
    (
        r"newuidmap|newgidmap|unshare failed|Operation not permitted.*(?:unshare|mount)|uid_map",
        (
            "This host refuses user namespaces or has no subordinate ids for you: `python3 images/build.py host`"
            " names what is missing; as root the build needs neither."
        ),
    ),
)


class StepError(RuntimeError):
    """A step that failed; the message is ready to be shown."""


@dataclass(frozen=True)
class Step:
    """One step: its title, its command, where it logs, and which folders grow while it runs."""

    title: str
    command: list[str]
    log: Path
    environment: Mapping[str, str]
    grows: tuple[Path, ...] = ()


def folder_bytes(paths: Iterable[Path]) -> int:
    """Return the bytes of the files below the given folders; what vanishes meanwhile counts nothing."""
    total = 0
    for path in paths:
        for folder, _, names in os.walk(path):
            for name in names:
                try:
                    total += os.lstat(os.path.join(folder, name)).st_size
                except OSError:
                    continue
    return total


def size_text(count: int) -> str:
    """Return a size for people: 0 MB, 812 MB, 2.31 GB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def last_lines(log: Path, count: int) -> list[str]:
    """Return the last lines of a log that are not empty."""
    try:
        data = log.read_bytes()[-64_000:]
    except OSError:
        return []
    lines = (line.rstrip() for line in data.decode("utf-8", "replace").replace("\r", "\n").splitlines())
    return [line for line in lines if line][-count:]


def recognise(text: str) -> str:
    """Return what to change for the first known cause in the text, or ""."""
    return next((advice for pattern, advice in CAUSES if re.search(pattern, text)), "")


def failure_text(step: Step, code: int) -> str:
    """Return the message of a failed step: the end of its log, the cause if known, what to change."""
    tail = last_lines(step.log, TAIL_LINES)
    advice = recognise("\n".join(last_lines(step.log, 200)))
    how = f"was ended by signal {-code}" if code < 0 else f"failed with code {code}"
    lines = [f"{step.title} {how}. Last lines of {step.log}:", *(f"    {line}" for line in tail)]
    return "\n".join([*lines, advice or "The cause is not a known one; the log has all of it."])


def run(step: Step) -> None:
    """Run the step to its end; raise StepError when it fails. The command dies with this process."""
    started = time.monotonic()
    print(f"[     ] {step.title}", flush=True)
    with open(step.log, "wb") as log:
        process = subprocess.Popen(
            ["bash", str(LIFELINE), *step.command],
            stdin=subprocess.PIPE,  # its end tells the lifeline that this process is gone
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(step.environment),
            start_new_session=True,
        )
        finished = threading.Event()
        reporter = threading.Thread(target=_report, args=(step, started, finished), daemon=True)
        reporter.start()
        try:
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            if process.stdin is not None:
                process.stdin.close()
            finished.set()
            reporter.join()
    if code != 0:
        raise StepError(failure_text(step, code))
    print(f"[{time.monotonic() - started:4.0f}s] {step.title}: done", flush=True)


def _report(step: Step, started: float, finished: threading.Event) -> None:
    """Print a line every few seconds: time, size of what grows, the last line of the log."""
    before = folder_bytes(step.grows)
    while not finished.wait(INTERVAL_S):
        grown = folder_bytes(step.grows) - before
        amount = f" +{size_text(grown)}" if step.grows else ""
        tail = last_lines(step.log, 1)
        text = tail[0][:80] if tail else ""
        print(f"[{time.monotonic() - started:4.0f}s]   {step.title}{amount}  {text}", flush=True)
