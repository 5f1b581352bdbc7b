"""Where things lie in a store: the one place that spells a key.

    t/<tenant>/b/<sha256>-<8 hex>                          blob
    t/<tenant>/c/<id>/<incarnation>/v/<version>.json       manifest, append-only
    t/<tenant>/c/<id>/<incarnation>/d/<seq>.json           draft entry, append-only
    t/<tenant>/c/<id>/<incarnation>/purged.json            tombstone of the incarnation
    t/<tenant>/r/<kind>/<id>/<n>.json                      record, append-only

Numbers are padded, so that the order of keys is the order of numbers.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

TOMBSTONE: Final = "purged.json"

_BLOB = re.compile(r"[0-9a-f]{64}-[0-9a-f]{8}")
_NUMBERED = re.compile(r"([0-9]{12})\.json")
_INCARNATION = re.compile(r"[0-9]{6}")


def new_blob(sha256: str) -> str:
    """A fresh blob name. The random half keeps two uploads apart, and a hash from telling what is there."""
    return f"{sha256}-{secrets.token_hex(4)}"


def is_blob(name: str) -> bool:
    """Whether ``name`` has the form of a blob name."""
    return _BLOB.fullmatch(name) is not None


def blob(tenant: str, name: str) -> str:
    """Key of a blob."""
    return f"t/{tenant}/b/{name}"


def conversations(tenant: str) -> str:
    """Folder of a tenant's conversations."""
    return f"t/{tenant}/c/"


def incarnations(tenant: str, conversation: str) -> str:
    """Folder of a conversation's incarnations."""
    return f"t/{tenant}/c/{conversation}/"


def incarnation(tenant: str, conversation: str, name: str) -> str:
    """Folder of one incarnation."""
    return f"t/{tenant}/c/{conversation}/{name}/"


def incarnation_name(number: int) -> str:
    """Name of the n-th incarnation, counted from 1."""
    return f"{number:06d}"


def is_incarnation(name: str) -> bool:
    """Whether ``name`` has the form of an incarnation."""
    return _INCARNATION.fullmatch(name) is not None


def versions(home: str) -> str:
    """Folder of the manifests of an incarnation, whose folder is ``home``."""
    return f"{home}v/"


def version(home: str, number: int) -> str:
    """Key of a manifest."""
    return f"{home}v/{number:012d}.json"


def drafts(home: str) -> str:
    """Folder of the draft entries of an incarnation."""
    return f"{home}d/"


def draft(home: str, seq: int) -> str:
    """Key of a draft entry."""
    return f"{home}d/{seq:012d}.json"


def tombstone(home: str) -> str:
    """Key whose existence says that the incarnation was purged."""
    return home + TOMBSTONE


def records(tenant: str, kind: str, name: str) -> str:
    """Folder of the states of one record."""
    return f"t/{tenant}/r/{kind}/{name}/"


def record(tenant: str, kind: str, name: str, number: int) -> str:
    """Key of one state of a record."""
    return f"{records(tenant, kind, name)}{number:012d}.json"


def number_of(key: str) -> int | None:
    """The number in the last segment of a manifest's, draft entry's or record's key."""
    match = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else None
