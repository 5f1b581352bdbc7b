"""The image of the runner: Dockerfile.runner, named by version and by what goes into it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from images.containers import base, docker, recipe
from images.rootfs import builder
from runner import __version__

NAME = "foliobox-runner"
CONTENT = "foliobox.content"
PARTS = (
    "Dockerfile.runner", ".dockerignore", "deploy/healthcheck.py", "images/seccomp/sandbox.json", "pyproject.toml",
    "requirements/runner.lock", "README.md", "LICENSE", "runner",
)  # fmt: skip


def content_hash(root: Path, base_id: str) -> str:
    """64 hex digits that change when anything does that goes into the image."""
    digest = hashlib.sha256(base_id.encode())
    for path in _files(root):
        data = path.read_bytes()
        digest.update(f"\0{path.relative_to(root).as_posix()}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def ensure(plan: builder.Plan, *, pull: bool = True) -> str:
    """The image's id; built where it is not there. Raises StepError."""
    docker.engine()
    bare = base.ensure(plan, pull=pull)
    wanted = content_hash(plan.images.parent, docker.output("image", "inspect", "--format", "{{.Id}}", bare))
    by_content, by_version = f"{NAME}:{wanted[:16]}", f"{NAME}:{__version__}"
    found = docker.image(by_content)
    if found is None:
        arguments = ["--label", f"{CONTENT}={wanted}", "--label", f"org.opencontainers.image.version={__version__}"]
        recipe.build(plan, "Dockerfile.runner", bare, [by_content], arguments)
    docker.output("tag", by_content, by_version)
    return docker.output("image", "inspect", "--format", "{{.Id}}", by_content)


def _files(root: Path) -> Iterator[Path]:
    for part in PARTS:
        path = root / part
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (file for file in found if file.is_file() and "__pycache__" not in file.parts)
