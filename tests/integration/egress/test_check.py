"""``foliobox egress check``: all as it must be behind the rules, and a failure for each rule that is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.egress.service import granted
from tests.support.egress.world import ALLOWED, RESOLVER, World

HOSTS = ("--denied", "denied.test", "--direct", f"{ALLOWED}:80", "--resolver", RESOLVER)


def check(data: Path, settings: dict[str, str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    env = {**os.environ, **settings, "SANDBOX_DATA_DIR": str(data)}
    command = [sys.executable, "-m", "runner", "egress", "check", "--allowed", "allowed.test", *HOSTS, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=120)
    return done.returncode, json.loads(done.stdout) if "--json" in arguments else {}, done.stdout + done.stderr


def wrong(told: dict[str, Any]) -> set[str]:
    return {row["name"] for row in told["attempts"] if not row["right"]}


def test_all_is_as_it_must_be_behind_the_rules(tmp_path: Path, outside: World) -> None:
    with granted(outside) as settings:
        status, told, said = check(tmp_path, settings, "--json")
        assert (status, told["ok"], wrong(told)) == (0, True, set()), said
        assert {hit["host"] for hit in outside.hits(kind="http")} <= {"allowed.test:443"}
        status, _, said = check(tmp_path, settings)
        assert (status, "All is as it must be." in said) == (0, True), said


def test_each_hole_is_told_and_fails(tmp_path: Path, outside: World) -> None:
    with granted(outside) as settings:
        try:
            outside.start_proxy("!names", "not_public")
            status, told, _ = check(tmp_path, settings, "--private", "10.99.0.1", "--json")
            assert (status, told["ok"]) == (1, False)
            expected = {"denied host", "denied host, plain", "private address", "private address, plain"}
            assert wrong(told) == expected
            outside.start_proxy(allow="")
            status, told, _ = check(tmp_path, settings, "--json")
            assert (status, wrong(told)) == (1, {"allowed host"})
        finally:
            outside.start_proxy()


def test_a_listed_host_that_nothing_listens_at_is_no_open_one(tmp_path: Path, outside: World) -> None:
    with granted(outside) as settings:
        dead = "--allowed", "a.below.test:4430"
        try:
            outside.start_proxy(ports="4430")
            status, told, _ = check(tmp_path, settings, *dead, "--json")
        finally:
            outside.start_proxy()
    assert (status, told["ok"], wrong(told)) == (1, False, {"allowed host"})
    states = {row["target"]: row["seen"] for row in told["attempts"] if row["name"] == "allowed host"}
    assert states == {"allowed.test": "open", "a.below.test:4430": "failed"}


def test_without_egress_it_says_why(tmp_path: Path) -> None:
    status, _, said = check(tmp_path, {"SANDBOX_EGRESS_NETWORK": ""})
    assert (status, "SANDBOX_EGRESS_NETWORK is not set" in said) == (2, True)
