"""The table of limits in the operator's guide: complete, with the defaults and the codes of the code."""

from __future__ import annotations

import re
from pathlib import Path

from runner import errors
from runner.agent import protocol
from runner.api.v1.schemas import ConversationIn
from runner.cli.settings_table import SETTINGS
from runner.model import Outcome
from runner.workspace import guards, paths

GUIDE = Path(__file__).parents[2] / "docs/operating.md"
RUNNER = Path(__file__).parents[2] / "runner"
PROTOCOLS = ("sessions", "leases", "objects")
SURFACES = ("SANDBOX_SESSIONS_", "SANDBOX_ONESHOT_")
ROW = re.compile(r"^\| (.+) \| (.+) \| (?:`(SANDBOX_[A-Z_]+)`|(fixed)) \| (?:`([a-z_]+)`|(none)) \|$", re.MULTILINE)
LIMIT = re.compile(r"_(MAX|MIN)_|LIMIT|_SIZE$|_FILES$|_CAP_|TIMEOUT|TTL|GRACE|_MEMORY$|_CPUS$|ULIMIT")
NO_LIMIT = frozenset(("SANDBOX_POOL_SIZE",))
# Other names of settings in the table, and a body that only one protocol has.
OF_ONE_PROTOCOL = {"SANDBOX_DOCKER_CALL_TIMEOUT_S", "SANDBOX_WORKSPACE_TMPFS_SIZE", "SANDBOX_MAX_STORAGE_BODY_BYTES"}
OF_RESULTS = frozenset(("stdout_truncated", "files_error", "idle"))  # fields and reasons of a run's result
OF_CONNECTIONS = frozenset(("too_many_connections", "timeout"))


def rows() -> list[tuple[str, str, str, str]]:
    """What, default, setting or ``fixed``, code or nothing."""
    text = GUIDE.read_text(encoding="utf-8").partition("## Limits")[2].partition("\n## ")[0]
    found = [(m[1], m[2], m[3] or m[4], m[5] or "") for m in ROW.finditer(text)]
    assert len(found) == text.count("\n| ") - 1  # every row but the head has this form
    return found


def of_protocols() -> set[str]:
    """Settings of the two gateway protocols alone, and of their storage: ``docs/settings.md`` has them."""
    read: dict[bool, set[str]] = {True: set(), False: set()}
    for path in RUNNER.rglob("*.py"):
        if path.name != "settings_table.py":
            mine = path.relative_to(RUNNER).parts[0] in PROTOCOLS
            read[mine] |= set(re.findall(r'"(SANDBOX_[A-Z0-9_]+)"', path.read_text(encoding="utf-8")))
    own = {name for name in read[True] | read[False] if name.startswith(SURFACES)}
    return (read[True] - read[False]) | own | OF_ONE_PROTOCOL


def test_every_setting_that_is_a_limit_is_in_the_table_with_its_default() -> None:
    table = {setting: default for _, default, setting, _ in rows() if setting != "fixed"}
    limits = {s.name: s.default for s in SETTINGS if LIMIT.search(s.name)}
    elsewhere = NO_LIMIT | of_protocols()
    assert table == {name: default for name, default in limits.items() if name not in elsewhere}


def test_every_code_is_one_that_callers_are_told() -> None:
    codes = {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception) and hasattr(kind, "code")
    }
    known = codes | {outcome.value for outcome in Outcome} | OF_RESULTS | OF_CONNECTIONS
    assert {code for *_, code in rows() if code} <= known


def test_fixed_limits_are_those_of_the_code() -> None:
    fixed = {what: int(default) for what, default, setting, _ in rows() if setting == "fixed"}
    labels = ConversationIn.model_json_schema()["properties"]["labels"]["maxProperties"]
    assert fixed == {
        "paths and link targets of a workspace": guards.MAX_NAMES_BYTES,
        "path": paths.MAX_PATH_BYTES,
        "one name of a path": paths.MAX_SEGMENT_BYTES,
        "folders above a file": paths.MAX_LEVELS - 1,
        "labels of a conversation": labels,
    }
    assert (protocol.MAX_PATH_BYTES, protocol.MAX_LEVELS) == (paths.MAX_PATH_BYTES, paths.MAX_LEVELS)
