"""Build a root file system, or return the finished one, step by step."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from images.rootfs import cache as caches
from images.rootfs import commands, content, progress

BASE_MAX_AGE_S = 14 * 86_400
BASE_TITLE = "bare Debian system"


@dataclass(frozen=True)
class Plan:
    """What is to be built, where, and as whom."""

    images: Path
    cache: caches.Cache
    groups: tuple[str, ...]
    content_hash: str
    user_id: int
    mirror: str

    @property
    def tree(self) -> Path:
        """The place of the finished tree."""
        return self.cache.tree(self.content_hash)


def make_plan(images: Path, groups: list[str], environment: Mapping[str, str]) -> Plan:
    """Return the plan for the wanted groups; raise content.UnknownGroupError."""
    chosen = content.normalise_groups(groups, content.known_groups(images / "sandbox"))
    root = caches.cache_root(environment, os.geteuid(), Path.home())
    return Plan(
        images=images,
        cache=caches.Cache(root),
        groups=chosen,
        content_hash=content.content_hash(images, chosen),
        user_id=os.geteuid(),
        mirror=environment.get("FOLIOBOX_DEBIAN_MIRROR", ""),
    )


def ensure_tree(plan: Plan) -> Path:
    """Return the finished tree, built if need be; `current` names it afterwards. Raise StepError."""
    if plan.tree.is_dir():
        caches.point_current(plan.cache, plan.tree)
        return plan.tree
    plan.cache.prepare()
    with caches.build_lock(plan.cache):
        if not plan.tree.is_dir():
            _sweep(plan)
            _build(plan)
        caches.point_current(plan.cache, plan.tree)
    return plan.tree


def copy_tree(plan: Plan, destination: Path) -> None:
    """Copy the finished tree to a folder that must not exist yet; complete or not there at all."""
    part = destination.with_name(f".{destination.name}.part")
    copy = ["cp", "-a", "--reflink=auto", "--", str(plan.tree), str(part)]
    prefix = commands.user_namespace(plan.user_id)
    if part.exists():
        caches.remove_tree(part, prefix)
    environment = tool_environment()
    log = plan.cache.logs / "copy.log"
    progress.run(progress.Step(f"copy to {destination}", [*prefix, *copy], log, environment))
    part.rename(destination)


def prune(plan: Plan) -> list[Path]:
    """Delete every tree that `current` does not name; return them."""
    if not plan.cache.trees.is_dir():
        return []
    with caches.build_lock(plan.cache):
        _sweep(plan)
        old = caches.other_trees(plan.cache)
        for path in old:
            caches.remove_tree(path, commands.user_namespace(plan.user_id))
    return old


def _sweep(plan: Plan) -> None:
    """Remove what killed builds left behind."""
    for path in caches.leftovers(plan.cache):
        print(f"removing a leftover of an unfinished build: {path.name}", flush=True)
        caches.remove_tree(path, commands.user_namespace(plan.user_id))


def tool_environment() -> dict[str, str]:
    """Return this process's environment with the administrator's tools on PATH."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}


def can_bootstrap() -> bool:
    """Tell whether this host has a tool that makes the bare system."""
    try:
        return bool(_bootstrap_tool())
    except progress.StepError:
        return False


def _bootstrap_tool() -> str:
    """Return the tool that makes the bare system; raise StepError when there is none that can."""
    search = tool_environment()["PATH"]
    if shutil.which("mmdebstrap", path=search):
        return "mmdebstrap"
    if os.geteuid() == 0 and shutil.which("debootstrap", path=search):
        return "debootstrap"
    raise progress.StepError("mmdebstrap is not installed: `python3 images/build.py host` gets or names it.")


def pip_config() -> dict[str, str]:
    """Return what pip of this host is configured with; empty where there is no pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return commands.parse_pip_config(done.stdout)


def base_archive(plan: Plan) -> Path:
    """Return a fresh enough archive of the bare system; call it with the build lock held. Raise StepError."""
    archive = plan.cache.base / f"{content.SUITE}-{os.uname().machine}.tar"
    if archive.is_file() and time.time() - archive.stat().st_mtime < BASE_MAX_AGE_S:
        print(f"[     ] {BASE_TITLE}: from the cache ({archive.name})", flush=True)
        return archive
    tool = _bootstrap_tool()
    part = archive.with_suffix(f".part-{os.getpid()}.tar")
    log = plan.cache.logs / "base.log"
    try:
        with caches.scratch(commands.user_namespace(plan.user_id)) as scratch:
            environment = {**tool_environment(), "TMPDIR": str(scratch)}
            target = part if tool == "mmdebstrap" else scratch / "tree"
            command = commands.bootstrap(tool, content.SUITE, target, plan.mirror, plan.user_id)
            progress.run(progress.Step(BASE_TITLE, command, log, environment, (plan.cache.base, scratch)))
            if tool == "debootstrap":
                command = ["tar", "--numeric-owner", "-C", str(target), "-cf", str(part), "."]
                progress.run(progress.Step(f"pack {BASE_TITLE}", command, log, environment))
        fault = caches.archive_fault(part)
        if fault:
            raise progress.StepError(f"{BASE_TITLE}: {part.name} is not whole ({fault}). Start again; log: {log}")
        part.replace(archive)
    finally:
        part.unlink(missing_ok=True)
    return archive


def _build(plan: Plan) -> None:
    """Build the tree beside its final place and move it there; on failure remove what there is."""
    started = time.monotonic()
    print(f"root file system {plan.tree.name}: {', '.join(plan.groups)}; cache {plan.cache.root}", flush=True)
    place = plan.cache.trees / f"{caches.LEFTOVER}{plan.tree.name}-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        _fill(plan, place, base_archive(plan))
        place.rename(plan.tree)
    except BaseException:
        caches.remove_tree(place, commands.user_namespace(plan.user_id))
        raise
    size = progress.size_text(progress.folder_bytes([plan.tree]))
    print(f"[{time.monotonic() - started:4.0f}s] root file system ready: {size} at {plan.tree}", flush=True)


def _fill(plan: Plan, place: Path, base: Path) -> None:
    """Run install.sh inside the tree."""
    configured = pip_config()
    ca = commands.ca_bundle(os.environ, configured)
    pip = commands.pip_environment(os.environ, configured)
    environment = commands.chroot_environment(os.environ, pip, plan.content_hash, int(time.time()))
    command = [
        *commands.namespace(plan.user_id),
        "bash",
        str(plan.images / "rootfs" / "fill.sh"),
        *(str(place), str(plan.images), str(plan.cache.downloads), str(base), str(ca or "")),
        *plan.groups,
    ]
    log = plan.cache.logs / "install.log"
    progress.run(progress.Step("install packages", command, log, environment, (place, plan.cache.downloads)))
