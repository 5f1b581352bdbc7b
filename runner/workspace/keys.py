"""Where things lie in a store: the one place that spells a key.

    t/<tenant>/b/<sha256>-<8 hex>                          blob
    t/<tenant>/c/<id>/<incarnation>/v/<version>.json       manifest, append-only
    t/<tenant>/c/<id>/<incarnation>/d/<seq>.json           draft entry, append-only
    t/<tenant>/c/<id>/<incarnation>/m/<n>.json             settings of the conversation; the newest counts
    t/<tenant>/c/<id>/<incarnation>/x/<id>.begin.json      an execution that began
    t/<tenant>/c/<id>/<incarnation>/x/<id>.end.json        and its one outcome
    t/<tenant>/c/<id>/<incarnation>/k/<sha256>.json        an idempotency key that was claimed, by its hash
    t/<tenant>/c/<id>/<incarnation>/k/<sha256>.<n>.json    and claimed again, as the run before was refused
    t/<tenant>/c/<id>/<incarnation>/o/<n>.json             owner of the live sandbox; n is the fencing number
    t/<tenant>/c/<id>/<incarnation>/purged.json            tombstone of the incarnation
    t/<tenant>/r/<kind>/<id>/<n>.json                      record outside a conversation; the newest counts

Numbers are padded, so that the order of keys is the order of numbers. Executions and claims lie flat in one
folder each: a new folder would cost two more syncs for every run.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Final

TENANTS: Final = "t/"
TOMBSTONE: Final = "purged.json"
BEGIN: Final = ".begin.json"
END: Final = ".end.json"

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


def blobs(tenant: str) -> str:
    """Folder of a tenant's blobs."""
    return f"t/{tenant}/b/"


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


def settings(home: str) -> str:
    """Folder of the settings of an incarnation."""
    return f"{home}m/"


def executions(home: str) -> str:
    """Folder of the executions of an incarnation."""
    return f"{home}x/"


def execution_begin(home: str, execution: str) -> str:
    """Key whose existence says that an execution began."""
    return f"{home}x/{execution}{BEGIN}"


def execution_end(home: str, execution: str) -> str:
    """Key of the outcome of an execution."""
    return f"{home}x/{execution}{END}"


def claims(home: str) -> str:
    """Folder of the claimed idempotency keys of an incarnation."""
    return f"{home}k/"


def claim(home: str, key: str, generation: int = 1) -> str:
    """Key of the n-th claim of an idempotency key, which may be any text. In order, the first one comes last."""
    again = "" if generation == 1 else f".{generation}"
    return f"{home}k/{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}{again}.json"


def claimed(claim: str) -> str:
    """What all claims of one idempotency key have in common, of the key of one."""
    return claim.rpartition("/")[2].partition(".")[0]


def owners(home: str) -> str:
    """Folder of the owners of an incarnation's live sandbox."""
    return f"{home}o/"


def tombstone(home: str) -> str:
    """Key whose existence says that the incarnation was purged."""
    return home + TOMBSTONE


def records(tenant: str, kind: str, name: str) -> str:
    """Folder of the states of one record."""
    return f"t/{tenant}/r/{kind}/{name}/"


def records_of(tenant: str, kind: str) -> str:
    """Folder of all records of a kind."""
    return f"t/{tenant}/r/{kind}/"


def numbered(folder: str, number: int) -> str:
    """Key of one state in a folder whose newest number counts: settings, owners, records."""
    return f"{folder}{number:012d}.json"


def number_of(key: str) -> int | None:
    """The number in the last segment of a key; None where there is none."""
    match = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else None
