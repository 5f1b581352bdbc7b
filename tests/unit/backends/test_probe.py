"""What the probe concludes from what a sandbox shows of itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.backends.bubblewrap import probe
from runner.backends.bubblewrap.cgroup import Parents
from runner.backends.bubblewrap.config import BubblewrapConfig

CAPABILITIES = "".join(f"Cap{name}:\t0000000000000000\n" for name in ("Inh", "Prm", "Eff", "Bnd", "Amb"))
GOOD = f"6.12.1\nName:\tcat\n{CAPABILITIES}NoNewPrivs:\t1\nSeccomp:\t2\nuser:[1]\nnet:[2]\n"
NO_GROUPS = Parents({}, None, False)


def walls(text: str) -> dict[str, bool]:
    return {wall.name: wall.stands for wall in probe._inner_walls(probe._read(text))}


def test_a_good_sandbox_has_all_walls() -> None:
    assert walls(GOOD) == {"namespaces": True, "seccomp": True, "no-new-privileges": True}
    assert probe._read(GOOD).kernel == "6.12.1"


@pytest.mark.parametrize(
    ("text", "fallen"),
    [
        (GOOD.replace("Seccomp:\t2", "Seccomp:\t0"), "seccomp"),
        (GOOD.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"), "no-new-privileges"),
        (GOOD.replace("CapEff:\t0000000000000000", "CapEff:\t0000000000000001"), "no-new-privileges"),
        (GOOD.replace("net:[2]", os.readlink("/proc/self/ns/net")), "namespaces"),
        ("", "seccomp"),
    ],
)
def test_each_missing_wall_is_seen(text: str, fallen: str) -> None:
    assert walls(text)[fallen] is False


@pytest.mark.parametrize("missing", ["bwrap", "rootfs"])
def test_what_is_missing_is_named_with_the_help(tmp_path: Path, missing: str) -> None:
    config = BubblewrapConfig(tmp_path, tmp_path / "run", None if missing == "bwrap" else "/usr/bin/bwrap")
    report, parents = probe.probe(config, (), NO_GROUPS)
    assert not report.available
    assert parents is NO_GROUPS
    assert ("install the package bubblewrap" if missing == "bwrap" else "make setup") in report.detail


def test_a_sandbox_without_a_filter_is_no_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "etc/foliobox").mkdir(parents=True)
    (tmp_path / "etc/foliobox/image.json").write_text("{}")
    seen = probe._read(GOOD.replace("Seccomp:\t2", "Seccomp:\t0"))
    monkeypatch.setattr(probe, "_look", lambda *_: seen)
    report, _ = probe.probe(BubblewrapConfig(tmp_path, tmp_path / "run", "/usr/bin/bwrap"), (), NO_GROUPS)
    assert (report.available, report.detail) == (False, "a sandbox started without seccomp")
