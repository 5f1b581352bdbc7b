"""Say what is in a file system, as JSON; read by the Python of the image and by that of the tree alike."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from importlib import metadata

# What a running container or jail has there is the engine's, or the kernel's.
MOUNTED = ("/proc", "/sys", "/dev", "/run", "/tmp", "/workspace", "/home/sandbox")
NAMED_BY_ENGINE = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/mtab", "/.dockerenv")


def output(*command: str) -> list[str]:
    """Lines that a command prints, sorted."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return sorted(done.stdout.splitlines())


def entry(path: str) -> str:
    """One file in a line: kind and mode, owner, size or target, and the hash of small ones."""
    status = os.lstat(path)
    what = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
    if stat.S_ISLNK(status.st_mode):
        return f"{what} -> {os.readlink(path)}"
    if not stat.S_ISREG(status.st_mode):
        return what
    if status.st_size > 1 << 16:
        return f"{what} {status.st_size}"
    with open(path, "rb") as file:
        return f"{what} {status.st_size} {hashlib.sha256(file.read()).hexdigest()[:16]}"


def files() -> dict[str, str]:
    """Every entry that is part of the image."""
    found = {}
    for folder, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in MOUNTED]
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            if path not in NAMED_BY_ENGINE:
                found[path] = entry(path)
    return found


def capabilities() -> list[str]:
    """Files that carry capabilities."""
    return [path for path in files() if not os.path.islink(path) and "security.capability" in os.listxattr(path)]


def raising() -> list[str]:
    """Files that run as another account."""
    return [path for path in files() if os.lstat(path).st_mode & 0o6000 and not os.path.islink(path)]


def stale_fonts() -> str:
    """What fontconfig says when it finds folders that its cache is not current for; it cannot write here."""
    done = subprocess.run(["fc-cache", "--system-only"], capture_output=True, text=True, check=False)
    return done.stderr


def main() -> None:
    """Print everything."""
    with open("/etc/foliobox/image.json", encoding="utf-8") as record:
        image = json.load(record)
    with open("/etc/passwd", encoding="utf-8") as users, open("/etc/group", encoding="utf-8") as groups:
        accounts = [*users.read().splitlines(), *groups.read().splitlines()]
    print(
        json.dumps(
            {
                "record": image,
                "debian": output("dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}\n"),
                "python": sorted(f"{found.name} {found.version}" for found in metadata.distributions()),
                "fonts": output("fc-list", "--format", "%{file} %{family}\n"),
                "accounts": accounts,
                "raising": raising(),
                "capabilities": capabilities(),
                "stale fonts": stale_fonts(),
                "files": files(),
                "version": sys.version,
            }
        )
    )


if __name__ == "__main__":
    main()
