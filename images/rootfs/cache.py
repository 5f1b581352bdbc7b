"""Where built trees live: paths, the build lock, the `current` link, and the sweep of leftovers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LEFTOVER = "building-"


@dataclass(frozen=True)
class Cache:
    """The folders under the cache root; nothing is made before `prepare`."""

    root: Path

    @property
    def trees(self) -> Path:
        """Finished trees, one folder a hash, the link `current`, and trees being built."""
        return self.root / "rootfs"

    @property
    def base(self) -> Path:
        """Archives of the bare Debian system."""
        return self.root / "base"

    @property
    def downloads(self) -> Path:
        """Packages of Debian and Python, kept between builds."""
        return self.root / "downloads"

    @property
    def logs(self) -> Path:
        """One log a step, overwritten by the next build."""
        return self.root / "logs"

    @property
    def current(self) -> Path:
        """The link that names the tree of the latest build."""
        return self.trees / "current"

    def tree(self, content_hash: str) -> Path:
        """Return the place of the finished tree."""
        return self.trees / content_hash[:16]

    def prepare(self) -> None:
        """Make the folders; every account may pass through those that lead to a tree."""
        for folder in (self.root, self.trees, self.base, self.downloads, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.trees):
            folder.chmod(0o755)


def cache_root(environment: Mapping[str, str], user_id: int, home: Path) -> Path:
    """Return the cache root: the setting, else the system's for root, else the user's."""
    chosen = environment.get("FOLIOBOX_CACHE_DIR", "")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if user_id == 0:
        return Path("/var/cache/foliobox")
    xdg = environment.get("XDG_CACHE_HOME", "")
    return (Path(xdg) if xdg.startswith("/") else home / ".cache") / "foliobox"


def point_current(cache: Cache, tree: Path) -> None:
    """Let `current` name the tree, in one step: it is never missing in between."""
    with contextlib.suppress(OSError):
        if os.readlink(cache.current) == tree.name:
            return
    fresh = cache.trees / f".current-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(tree.name)
    fresh.replace(cache.current)


@contextlib.contextmanager
def build_lock(cache: Cache) -> Iterator[None]:
    """Hold the lock of all builds in this cache; say so when another build has it, and wait."""
    with open(cache.trees / ".lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another build holds the lock of this cache; waiting for it", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def leftovers(cache: Cache) -> list[Path]:
    """Return what killed builds left; call it with the lock held."""
    return [path for path in cache.trees.iterdir() if path.name.startswith((LEFTOVER, ".current-"))]


def other_trees(cache: Cache) -> list[Path]:
    """Return the finished trees that `current` does not name."""
    keep = cache.current.resolve()
    folders = (path for path in cache.trees.iterdir() if path.is_dir() and not path.is_symlink())
    return sorted(path for path in folders if not path.name.startswith(".") and path.resolve() != keep)


def remove_tree(path: Path, namespace: list[str]) -> None:
    """Delete a tree whose files may belong to subordinate ids, through the given namespace command."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        subprocess.run([*namespace, "rm", "-rf", "--one-file-system", "--", str(path)], check=True)
