"""Names of files that tools put into a workspace: safe, and the same for the same request. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Final
from urllib.parse import unquote, urlsplit

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_ENDING: Final = re.compile(r"\.[A-Za-z0-9]{1,8}")
_MOST: Final = 80


def stem(name: str, default: str) -> str:
    """A name without its ending, of letters, digits, ``-`` and ``_`` only; at most 80 of them."""
    base = name.replace("\\", "/").rpartition("/")[2]
    if "." in base.lstrip("."):
        base = base.rpartition(".")[0]
    return _UNSAFE.sub("-", base).strip("-_")[:_MOST].rstrip("-_") or default


def last_segment(url: str) -> str:
    """What an address calls its file; empty where it does not."""
    try:
        return unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return ""


def ending(name: str) -> str:
    """The ending of a name in lower case, with its dot; empty where there is none that is safe."""
    found = "." + name.rpartition(".")[2] if "." in name.lstrip(".") else ""
    return found.lower() if _ENDING.fullmatch(found) else ""


def download(url: str, filename: str | None, default: str) -> str:
    """``downloads/<name>-<8 hex digits>``, without an ending: the same for the same address and name."""
    name = stem(filename, default) if filename else stem(last_segment(url), default)
    return f"downloads/{name}-{hashlib.sha256(url.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
