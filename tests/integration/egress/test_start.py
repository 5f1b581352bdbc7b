"""The image's start script: a list that cannot be meant so is refused, an empty one allows nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.egress.world import START


def start(folder: Path, **env: str) -> tuple[int, str]:
    """With a stand-in for squid that ends at once, so that only the script is tried."""
    program = folder / "squid"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    given = {"PATH": f"{folder}:{os.environ['PATH']}", "EGRESS_FOLDER": str(folder), **env}
    done = subprocess.run(["/bin/sh", str(START)], check=False, capture_output=True, text=True, env=given)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "name",
    ["*", "com", ".com", "10.0.0.1", "1.2.3.4", "[::1]", "a..b", "-a.b", "a.b.", "a/b.c", "http://a.b", "a.b:443",
     "a.b|c", "é.example", "a.b;c", ".", "..", "a_b.c", "localhost"],
)  # fmt: skip
def test_a_list_that_cannot_be_meant_so_is_refused(tmp_path: Path, name: str) -> None:
    status, said = start(tmp_path, EGRESS_ALLOW=f"good.example {name}")
    assert (status, "EGRESS_ALLOW" in said) == (64, True)


@pytest.mark.parametrize("ports", ["0", "65536", "443x", "-1", "044", "1000000"])
def test_so_are_ports(tmp_path: Path, ports: str) -> None:
    assert start(tmp_path, EGRESS_PORTS=ports)[0] == 64


def test_a_list_becomes_rules(tmp_path: Path) -> None:
    told = {
        "EGRESS_ALLOW": "pkg.example, .below.example\nother.example",
        "EGRESS_PORTS": "8443",
        "EGRESS_DNS": "9.9.9.9 ::1",
    }
    assert start(tmp_path, **told) == (0, "")
    assert (tmp_path / "allow.txt").read_text().split() == ["pkg.example", ".below.example", "other.example"]
    written = (tmp_path / "squid.conf").read_text()
    assert "acl connect_ports port 443 8443\n" in written
    assert "dns_nameservers 9.9.9.9 ::1\n" in written
    assert "@" not in "".join(line for line in written.splitlines() if not line.startswith("#"))


def test_an_empty_list_is_an_empty_file(tmp_path: Path) -> None:
    assert start(tmp_path) == (0, "")
    assert (tmp_path / "allow.txt").read_text() == ""
