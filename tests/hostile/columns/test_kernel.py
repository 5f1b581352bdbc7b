"""Whose kernel runs the code, as the code sees it and as ``/healthz`` says it, is the one the column promises."""

from __future__ import annotations

import os
from pathlib import Path

import httpx

from tests.support.columns import Column
from tests.support.runner import Chat

LOOK = "import os; print(os.uname().release); print(open('/proc/version').read().strip())"


def test_the_kernel_is_the_one_that_healthz_says(column: Column, http: httpx.Client, chat: Chat) -> None:
    release, version = chat.ok(LOOK)["stdout"].splitlines()
    host = (os.uname().release, Path("/proc/version").read_text().strip())
    if column.isolation == "separate-kernel":
        assert release != host[0] and version != host[1]
    else:
        assert (release, version) == host
    told = http.get("/healthz").json()
    assert (told["backend"], told["isolation"]) == (column.backend, column.isolation)
    assert told["runtime"] == (column.runtime or None)
    assert bool(told["docker"]) == column.needs_engine
