"""Download the locked Python distributions into a folder, so that an interrupted download resumes.

fetch.py LOCK FOLDER. pip keeps files only when a whole run ends, and caches only what the index lets it
cache; so the lock is fetched in small portions, and what the folder has already is not asked for again.
Files of the folder that the lock does not name are deleted.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

PORTION = 8


@dataclass(frozen=True)
class Requirement:
    """One pinned distribution of the lock: its lines as they are, and the SHA-256 values it allows."""

    name: str
    text: str
    hashes: frozenset[str]


def parse_lock(text: str) -> list[Requirement]:
    """Return the requirements of a lock in pip's format with hashes."""
    result = []
    for block in re.split(r"(?m)^(?=[A-Za-z0-9])", text):
        lines = [line for line in block.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if lines:
            body = "\n".join(lines) + "\n"
            found = frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", body))
            result.append(Requirement(lines[0].split("==")[0].strip(), body, found))
    return result


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def missing(requirements: list[Requirement], present: set[str]) -> list[Requirement]:
    """Return the requirements of which no allowed file is present."""
    return [requirement for requirement in requirements if not requirement.hashes & present]


def portions(requirements: list[Requirement], size: int) -> list[list[Requirement]]:
    """Return the requirements in groups of at most `size`."""
    return [requirements[start : start + size] for start in range(0, len(requirements), size)]


def download(requirements: list[Requirement], folder: Path) -> None:
    """Let pip download one portion; its exit code ends this program when it fails."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listing:
        listing.write("".join(requirement.text for requirement in requirements))
        listing.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-input", "--progress-bar", "off", "--retries", "5"]
        command += ["--no-deps", "--require-hashes", "--no-build-isolation", "--dest", str(folder)]
        done = subprocess.run([*command, "-r", listing.name], check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def main(lock: Path, folder: Path) -> None:
    """Fill the folder with exactly what the lock names."""
    folder.mkdir(parents=True, exist_ok=True)
    requirements = parse_lock(lock.read_text(encoding="utf-8"))
    allowed = frozenset().union(*(requirement.hashes for requirement in requirements))
    present = set()
    for path in sorted(folder.iterdir()):
        digest = hash_of(path)
        if digest in allowed:
            present.add(digest)
        else:
            path.unlink()
    wanted = missing(requirements, present)
    print(f"{len(requirements)} distributions, {len(requirements) - len(wanted)} of them here", flush=True)
    done = 0
    for portion in portions(wanted, PORTION):
        last = done + len(portion)
        print(f"downloading {done + 1} to {last} of {len(wanted)}: {portion[0].name} ...", flush=True)
        download(portion, folder)
        done = last


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
