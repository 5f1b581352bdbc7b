"""Where built trees live: paths, the build lock, the `current` link, and the sweep of leftovers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LEFTOVER = "building-"
SCRATCH = "foliobox-base-"


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
    print(f"`current` now names {tree.name}: {cache.current}", flush=True)


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
    trees = [path for path in cache.trees.iterdir() if path.name.startswith((LEFTOVER, ".current-"))]
    return [*trees, *cache.base.glob("*.part*.tar"), *_dead_scratch()]


@contextlib.contextmanager
def scratch(namespace: list[str]) -> Iterator[Path]:
    """Give a folder for the bare system while it is made, which subordinate ids can pass through."""
    folder = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        # What cannot be removed now is a leftover for the next build; it must not hide why this one failed.
        with contextlib.suppress(subprocess.CalledProcessError):
            remove_tree(folder, namespace)


def _dead_scratch() -> list[Path]:
    """Return this user's folders of `scratch` whose process is gone."""
    found = []
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*-*"):
        owner = path.name.removeprefix(SCRATCH).partition("-")[0]
        gone = owner.isdigit() and not Path(f"/proc/{owner}").exists()
        if gone and not path.is_symlink() and path.lstat().st_uid == os.geteuid():
            found.append(path)
    return found


def archive_fault(archive: Path) -> str:
    """Return what is wrong with an archive of the bare system, "" when it is whole."""
    try:
        with tarfile.open(archive) as tar:
            names = {name.removeprefix("./") for name in tar.getnames()}
        with open(archive, "rb") as handle:
            handle.seek(-1024, os.SEEK_END)
            end = handle.read()
    except (OSError, tarfile.TarError) as error:
        return str(error)
    if any(end):
        return "it has no end"
    lacking = [name for name in ("etc/debian_version", "usr/bin/dpkg") if name not in names]
    return f"it lacks {', '.join(lacking)}" if lacking else ""


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
