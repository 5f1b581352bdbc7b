"""Server-sent events as tests read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx

EVENTS = {"Accept": "text/event-stream"}
Told = tuple[str, dict[str, Any]]


def read(answer: httpx.Response, *, comments: bool = False) -> Iterator[Told]:
    """Events of a streamed answer as they come: name and data; comments under the name ``keep-alive``."""
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.headers
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])
        elif line.startswith(": ") and comments:
            yield "keep-alive", {}
