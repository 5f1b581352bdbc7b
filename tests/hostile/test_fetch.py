"""The service as it is shipped, asked to fetch what it must not: canaries in namespaces of the test count who comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from images.rootfs import host
from tests.support.egress import needs
from tests.support.odd_urls import NOT_PUBLIC, REFUSED

NAMED = [
    "http://inside.example/", "http://metadata.example/latest/meta-data/", "http://mixed.example/", "http://own.example/",
    "http://93.184.216.1/", "http://[::ffff:93.184.216.1]/", "https://inside.example/", "http://INSIDE.example./",
]  # fmt: skip
CASES = [url for url in [*REFUSED, *NOT_PUBLIC, *NAMED] if url == url.strip() and len(url) < 9000]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of all cases, in one world."""
    missing = host.missing_packages([needs.IPROUTE])
    assert not missing or host.ensure_host(missing, os.geteuid()) == 0, "install iproute2"
    command = ["unshare", "-n", "-m", sys.executable, "-m", "tests.hostile.support.fetch_world"]
    done = subprocess.run(
        [*command, str(tmp_path_factory.mktemp("world"))],
        input=json.dumps(CASES), capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_public_server_is_reached(told: dict[str, Any]) -> None:
    assert (told["allowed"], told["redirect"]) == ("ok", "ok")


def test_nothing_else_is(told: dict[str, Any]) -> None:
    """No case by no route: not by its answer, and not by a connection that the canaries saw."""
    assert len(CASES) * 3 >= 360
    for url, codes in told["codes"].items():
        assert codes["image"] in ("url_refused", "invalid_arguments"), url
        assert codes["file"] in ("url_refused", "invalid_arguments"), url
    through = {url: codes for url, codes in told["codes"].items() if codes["redirect"] == "ok"}
    assert set(through) <= LEAD_BACK, through
    assert told["hits"] == 0


# As the target of a redirect these are relative: they lead to the public server itself, or nowhere.
LEAD_BACK = {
    "",
    "http:///path",
    "/etc/passwd",
    "example.com",
    "HTTP//example.com",
    "http:example.com",
    "http:/example.com",
}


def test_names_of_local_networks_are_not_even_asked_for(told: dict[str, Any]) -> None:
    public = ("origin", "inside", "metadata", "mixed", "own")
    assert set(told["asked"]) <= {"example.com", *(f"{name}.example" for name in public)}


def test_a_name_whose_answers_change_is_reached_where_it_was_judged(told: dict[str, Any]) -> None:
    assert told["rebinding"] == {"ok": 100, "url_refused": 100}
    assert told["rebinding_hits"] == 0


def test_the_control_gets_through(told: dict[str, Any]) -> None:
    """The same cases by a program without a guard: many reach a canary, by every kind of trick."""
    reached = {url for url, hits in told["controls"].items() if hits}
    assert len(reached) >= 45
    for kind in ("http://2130706433/", "http://0x7f000001/", "http://127.1/", "http://[::1]/", "http://127.0.0.1/",
                 "http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://inside.example/",
                 "http://own.example/", "http://localhost/"):  # fmt: skip
        assert kind in reached, kind
    assert any(url.startswith("http://origin.example/r/") for url in reached)
