"""What ``foliobox doctor`` finds out without a sandbox: settings in effect, data folder, address."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
from pathlib import Path

from runner import environment
from runner.api.config import ApiConfig
from runner.api.keyring import Keyring
from runner.cli.settings_table import SECRET, SETTINGS
from runner.errors import ConfigurationError
from runner.settings import Settings

SettingRow = tuple[str, str, str, str]


def read_settings(env: environment.Env) -> tuple[Settings | None, list[str]]:
    """The settings, and every one that cannot be used; those are then taken at their default."""
    kept, problems = dict(env), list[str]()
    while True:
        try:
            return Settings.from_env(kept), problems
        except ConfigurationError as error:
            problems.append(error.detail)
            name = re.match(r"[A-Z_0-9]+", error.detail)
            if name is None or kept.pop(name[0], None) is None:
                return None, problems


def effective(env: environment.Env, settings: Settings | None) -> dict[str, str]:
    """Values of the settings whose default depends on the host."""
    try:
        found = {"FOLIOBOX_CACHE_DIR": str(environment.cache_folder(env))}
    except ConfigurationError:
        found = {}
    if settings is not None:
        found["SANDBOX_DATA_DIR"] = str(settings.workspace.data_dir)
        found["SANDBOX_ROOTFS"] = str(settings.bubblewrap.rootfs)
        found["SANDBOX_BWRAP"] = settings.bubblewrap.bwrap or "none"
        found["SANDBOX_MAX_SESSIONS"] = str(settings.conversations.max_live)
    return found


def settings_rows(env: environment.Env, settings: Settings | None, everything: bool) -> list[SettingRow]:
    """Name, value in effect, source and meaning; without ``everything`` only what differs from the default."""
    found = effective(env, settings)
    rows = []
    for setting in SETTINGS:
        given = env.get(setting.name, "").strip()
        value = "(set)" if given and setting.name in SECRET else given or found.get(setting.name, setting.default)
        if everything or (given and given != setting.default):
            rows.append((setting.name, value, "environment" if given else "default", setting.meaning))
    return rows


def key(api: ApiConfig) -> list[str]:
    """Whether callers must show a key, and the file of keys can be used."""
    try:
        api.check()
        Keyring(api)
    except ConfigurationError as error:
        return [error.detail]
    return []


def data_folder(folder: Path) -> list[str]:
    """Whether a store can be opened there: no other runner has its lock, and the folder can be written to."""
    lock = folder / "store" / "lock"
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        place = next(path for path in (folder, *folder.parents) if path.exists())
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            return []
        return [f"SANDBOX_DATA_DIR={folder}: {place} cannot be written to; name a folder of your own"]
    except OSError as error:
        return [f"SANDBOX_DATA_DIR={folder} cannot be opened ({error.strerror}); name a folder of your own"]
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
        who = f"SANDBOX_DATA_DIR={folder} is in use by another runner (process {holder})"
        return [f"{who}; stop that one or name another folder"]
    finally:
        os.close(fd)
    return []


def address(host: str, port: int) -> list[str]:
    """Whether the service could listen there."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(where)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return [f"{host}:{port} is in use by another program; set SANDBOX_BIND to a free port"]
        return [f"SANDBOX_BIND={host}:{port} cannot be used ({error.strerror}); set it to an address of this host"]
    return []
