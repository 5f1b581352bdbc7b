"""The sandbox image: the root file system's own tree, in layers; or made by Dockerfile.sandbox alone."""

from __future__ import annotations

import json
import platform
import shutil
import time
from pathlib import Path

from images.containers import archive, base, docker, layers, recipe
from images.rootfs import builder, commands, progress
from images.rootfs import cache as caches
from runner import __version__

NAME = "foliobox-sandbox"
CONTENT, BUILT = "foliobox.image", "foliobox.built"
ENVIRONMENT = ("PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin", "HOME=/home/sandbox", "LANG=C.UTF-8")
USER = "10001:10001"


def tags(content_hash: str) -> tuple[str, str]:
    """The names of the image: by content, which never means another image, and by version."""
    return f"{NAME}:{content_hash[:16]}", f"{NAME}:{__version__}"


def ensure(plan: builder.Plan, *, pull: bool = True) -> str:
    """The image's id; built from the tree, and the tree too, where they are not there. Raises StepError.

    A host that cannot make the tree, being no Debian, builds Dockerfile.sandbox instead.
    """
    docker.engine()
    by_content, by_version = tags(plan.content_hash)
    found = docker.image(by_content)
    if found is None or not _is_of(found, plan):
        if not plan.tree.is_dir() and not builder.can_bootstrap():
            print("this host has no tool that makes a bare Debian system: building Dockerfile.sandbox", flush=True)
            return from_dockerfile(plan, pull=pull)
        found = _build(plan)
    docker.output("tag", by_content, by_version)
    return str(found["Id"])


def save(plan: builder.Plan, file: Path) -> None:
    """Write the image to a file for `docker load` on another machine; needs no engine. Raises StepError."""
    tree = builder.ensure_tree(plan)
    part = file.with_name(f".{file.name}.part")
    try:
        _pack(plan, tree, part)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def from_dockerfile(plan: builder.Plan, *, pull: bool) -> str:
    """Build Dockerfile.sandbox by itself, with this host's mirrors and certificates; the image's id."""
    docker.engine()
    arguments = ["--build-arg", f"SANDBOX_GROUPS={' '.join(plan.groups)}"]
    arguments += ["--build-arg", f"IMAGE_HASH={plan.content_hash}"]
    names = tags(plan.content_hash)
    recipe.build(plan, "Dockerfile.sandbox", base.ensure(plan, pull=pull), names, arguments)
    return docker.output("image", "inspect", "--format", "{{.Id}}", names[0])


def _is_of(found: dict[str, object], plan: builder.Plan) -> bool:
    """Whether the image was made of this very tree; without a tree, of one with this content."""
    marks = docker.labels(found)
    if marks.get(CONTENT) != plan.content_hash:
        return False
    return not plan.tree.is_dir() or marks.get(BUILT) == _record(plan.tree)["built"]


def _record(tree: Path) -> dict[str, str]:
    record: dict[str, str] = json.loads((tree / "etc/foliobox/image.json").read_text(encoding="utf-8"))
    return record


def _build(plan: builder.Plan) -> dict[str, object]:
    tree = builder.ensure_tree(plan)
    began = time.monotonic()
    log = plan.cache.logs / "load.log"
    # One name, used under the lock: a build that is killed leaves a file that the next one writes over.
    file = plan.cache.root / "sandbox-image.tar"
    with caches.build_lock(plan.cache):
        try:
            image = _pack(plan, tree, file)
            load = [docker.command(), "load", "--input", str(file)]
            progress.run(progress.Step("load into the engine", load, log, builder.tool_environment()))
        finally:
            file.unlink(missing_ok=True)
    found = docker.image(tags(plan.content_hash)[0])
    if found is None:
        raise progress.StepError(f"the engine has no {image} although it has loaded it: look at {log}")
    print(f"[{time.monotonic() - began:4.0f}s] sandbox image ready: {found['Id']}", flush=True)
    return found


def _pack(plan: builder.Plan, tree: Path, file: Path) -> str:
    """Write the archive of the image; return the image's id."""
    began = time.monotonic()
    _room(file.parent)
    built = _record(tree)["built"]
    with open(file, "wb") as out:
        image = archive.Archive(out)
        for name in layers.names(tree):
            command = [*commands.user_namespace(plan.user_id), *layers.command(tree, name)]
            layer = image.pack(name, command)
            print(f"[{time.monotonic() - began:4.0f}s] layer {name}: {progress.size_text(layer.size)}", flush=True)
        settings = {
            "User": USER,
            "Env": list(ENVIRONMENT),
            "WorkingDir": "/workspace",
            "Cmd": ["bash"],
            "Labels": {CONTENT: plan.content_hash, BUILT: built, "org.opencontainers.image.version": __version__},
        }
        config = archive.configuration(image.layers, built, platform.machine(), settings)
        return image.finish(config, tags(plan.content_hash))


def _room(folder: Path) -> None:
    needed, free = 4 << 30, shutil.disk_usage(folder).free
    if free < needed:
        raise progress.StepError(
            f"{folder} has {progress.size_text(free)} left and the image needs {progress.size_text(needed)} for a"
            " while: free some, or put the cache elsewhere with FOLIOBOX_CACHE_DIR."
        )
