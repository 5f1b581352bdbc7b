"""What ``foliobox doctor`` finds out without a sandbox: settings in effect, what a start would refuse, data folder."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from runner import app as composition
from runner import environment
from runner.api.config import ApiConfig
from runner.api.keyring import Keyring
from runner.cli import serve
from runner.cli.settings_table import SECRET, SETTINGS
from runner.errors import ConfigurationError, FolioboxError
from runner.settings import Settings

SettingRow = tuple[str, str, str, str]


def read_settings(env: environment.Env) -> tuple[Settings | None, list[str]]:
    """The settings, and every one that cannot be used; those, and what they do not go with, are then taken at
    their default.
    """
    kept, problems = dict(env), list[str]()
    while True:
        try:
            return Settings.from_env(kept), problems
        except ConfigurationError as error:
            problems.append(error.detail)
            named = set(re.findall(r"(?:SANDBOX|FOLIOBOX)_[A-Z_0-9]+", error.detail)) & kept.keys()
            if not named:
                return None, problems
            for name in named:
                del kept[name]


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


def start(settings: Settings) -> list[str]:
    """What a start would refuse: the same code looks."""

    def files() -> None:
        serve.raise_open_files(settings.connections.max_connections)

    def address() -> None:
        serve.listen(settings.api).close()

    found = []
    for check in (*composition.checks(settings), files, address):
        try:
            check()
        except ConfigurationError as error:
            found.append(error.detail)
    return found + composition.too_little(settings)


def keyring(api: ApiConfig) -> tuple[Keyring | None, list[str]]:
    """The keys, or why their file cannot be used."""
    try:
        return Keyring(api), []
    except ConfigurationError as error:
        return None, [error.detail]


def plain(error: FolioboxError) -> str:
    """What an error says and what came before it, without the advice to do what is being done."""
    told = re.sub(r"[:,]? (?:or )?(?:see|run) `foliobox doctor`[^;]*$", "", error.detail)
    return f"{told}: {error.cause}" if error.cause else told


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
