"""What the preflight says about hosts of all kinds, and that it says it in time."""

from __future__ import annotations

import ast
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from runner import preflight
from runner.environment import switch
from runner.preflight import Finding, Host, Output

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNTS = (
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "39 31 0:36 /box /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A user on an empty machine where every command fails and nothing answers."""

    def run(_: Sequence[str]) -> Output:
        return Output(1, "refused")

    return Host(
        target="demo",
        root=False,
        user="ann",
        environment={"PATH": str(tmp_path / "bin"), "FOLIOBOX_CACHE_DIR": str(tmp_path / "cache")},
        repository=tmp_path / "repository",
        system=tmp_path / "system",
        python=(3, 12, 1),
        run=run,
        fetch=lambda url, ca: "no answer (test)",
    )


def write(host: Host, path: str, text: str) -> None:
    place = host.system / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def program(host: Host, name: str) -> None:
    place = Path(host.environment["PATH"]) / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("#!/bin/sh\n")
    place.chmod(0o755)


def with_tree(host: Host) -> None:
    record = host.cache / "rootfs/current/etc/foliobox/image.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")


def test_it_needs_the_standard_library_only() -> None:
    tree = ast.parse(Path(preflight.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names | {"__future__"}


def test_old_python_is_refused(host: Host) -> None:
    found = preflight.probe_python(replace(host, python=(3, 10, 9)))
    assert (found.state, found.found) == ("fail", "3.10.9")


def test_refused_namespaces_name_the_sysctl_and_the_way_without(host: Host) -> None:
    write(host, "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
    found = preflight.probe_namespaces(host)
    assert found.state == "fail"
    assert "kernel.apparmor_restrict_unprivileged_userns=0" in found.change
    assert "SANDBOX_ALLOW_UNISOLATED=1" in found.change


def test_allowed_without_isolation_it_is_a_warning(host: Host) -> None:
    allowed = replace(host, environment={**host.environment, "SANDBOX_ALLOW_UNISOLATED": "1"})
    assert preflight.probe_namespaces(allowed).state == "warn"
    assert preflight.probe_bubblewrap(allowed).state == "warn"
    assert preflight.probe_bubblewrap(host).state == "fail"


@pytest.mark.parametrize(("value", "allowed"), [("1", True), (" Yes ", True), ("ON", True), ("0", False), ("", False)])
def test_the_switch_is_spelt_as_for_the_service(host: Host, value: str, allowed: bool) -> None:
    environment = {**host.environment, "SANDBOX_ALLOW_UNISOLATED": value}
    assert replace(host, environment=environment).unisolated is allowed
    assert switch(environment, "SANDBOX_ALLOW_UNISOLATED") is allowed


def test_the_configured_bubblewrap_is_tried_and_named(host: Host) -> None:
    program(host, "my-bwrap")
    path = host.environment["PATH"] + "/my-bwrap"
    seen: list[str] = []

    def run(command: Sequence[str]) -> Output:
        seen.append(command[0])
        return Output(0, "bubblewrap 0.11.0")

    own = replace(host, environment={**host.environment, "SANDBOX_BWRAP": path}, run=run)
    assert path in preflight.probe_namespaces(own).found
    assert preflight.probe_bubblewrap(own).found == f"0.11 ({path})"
    assert seen == [path, path]
    gone = replace(host, environment={**host.environment, "SANDBOX_BWRAP": "/no/such/bwrap"})
    found = preflight.probe_bubblewrap(gone)
    assert (found.state, found.found) == ("fail", "SANDBOX_BWRAP=/no/such/bwrap is no program")


def test_a_missing_version_is_not_told_after_refused_namespaces(host: Host) -> None:
    program(host, "bwrap")
    probes = [preflight.probe_namespaces, preflight.probe_bubblewrap]
    assert [finding.name for finding in preflight.preflight(host, probes)] == ["namespaces"]
    fine = replace(host, run=lambda command: Output(0, "?"))
    assert [finding.name for finding in preflight.preflight(fine, probes)] == ["namespaces", "bubblewrap"]


def test_root_gives_up_its_rights_before_it_tries_namespaces(host: Host) -> None:
    seen: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> Output:
        seen.append(command)
        return Output(0, "")

    assert preflight.probe_namespaces(replace(host, root=True, run=run)).state == "ok"
    assert seen[0][0] == "setpriv"
    assert preflight.probe_namespaces(replace(host, run=run)).state == "ok"
    assert seen[1][0] in ("unshare", "bwrap")


@pytest.mark.parametrize(("text", "state"), [("bubblewrap 0.8.0", "ok"), ("bubblewrap 0.6.1", "fail"), ("?", "warn")])
def test_bubblewrap_version(host: Host, text: str, state: str) -> None:
    program(host, "bwrap")
    assert preflight.probe_bubblewrap(replace(host, run=lambda command: Output(0, text))).state == state


def test_cgroup_places_of_both_versions() -> None:
    own = "8:pids:/box/inner\n4:memory:/api\n0::/user.slice\n"
    assert preflight.cgroup_places(V1_MOUNTS + V2_MOUNT, own) == {
        "memory": ("v1", "/sys/fs/cgroup/memory/api"),
        "pids": ("v1", "/sys/fs/cgroup/pids/inner"),
        "": ("v2", "/sys/fs/cgroup/user.slice"),
    }


def test_cgroup_v2_counts_when_it_has_the_controllers(host: Host) -> None:
    write(host, "/proc/self/mountinfo", V2_MOUNT)
    write(host, "/proc/self/cgroup", "0::/me\n")
    write(host, "/sys/fs/cgroup/me/cgroup.controllers", "cpu memory pids\n")
    assert preflight.probe_cgroup(host).state == "ok"
    write(host, "/sys/fs/cgroup/me/cgroup.controllers", "cpu memory\n")
    found = preflight.probe_cgroup(host)
    assert (found.state, found.found) == ("warn", "v2, not writable for pids")


def test_no_cgroups_is_a_warning(host: Host) -> None:
    assert preflight.probe_cgroup(host).state == "warn"


def test_disk_needs_more_while_nothing_is_built(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def usage(_: Path) -> object:
        return type("Usage", (), {"free": 3_000_000_000})()

    monkeypatch.setattr("shutil.disk_usage", usage)
    assert preflight.probe_disk(host).state == "fail"
    assert "FOLIOBOX_CACHE_DIR" in preflight.probe_disk(host).change
    with_tree(host)
    assert preflight.probe_disk(host).state == "ok"


@pytest.mark.parametrize(("kilobytes", "state"), [(8_000_000, "ok"), (1_500_000, "warn"), (400_000, "fail")])
def test_memory(host: Host, kilobytes: int, state: str) -> None:
    write(host, "/proc/meminfo", f"MemTotal: 9 kB\nMemAvailable:   {kilobytes} kB\n")
    assert preflight.probe_memory(host).state == state


def test_memory_limit_of_the_own_group_counts(host: Host) -> None:
    write(host, "/proc/meminfo", "MemAvailable:   8000000 kB\n")
    write(host, "/proc/self/mountinfo", V2_MOUNT)
    write(host, "/proc/self/cgroup", "0::/me\n")
    write(host, "/sys/fs/cgroup/me/memory.max", "500000000\n")
    assert preflight.probe_memory(host).found == "0.5 GB available"


def test_user_needs_subordinate_ids_only_to_build(host: Host) -> None:
    assert "uidmap" in preflight.probe_account(host).change
    program(host, "newuidmap")
    write(host, "/etc/subuid", "bob:100000:65536\n")
    found = preflight.probe_account(host)
    assert found.state == "fail"
    assert "usermod --add-subuids" in found.change
    write(host, "/etc/subuid", "ann:100000:65536\n")
    write(host, "/etc/subgid", "ann:100000:65536\n")
    assert preflight.probe_account(host).state == "ok"


def test_missing_package_is_installed_for_root_and_named_for_a_user(host: Host) -> None:
    program(host, "apt-get")
    assert preflight.probe_bootstrap(replace(host, root=True)).state in ("ok", "warn")
    found = host.missing("x", "not installed", "bubblewrap")
    assert (found.state, found.change) == (
        "fail",
        "sudo apt-get install --no-install-recommends -y bubblewrap",
    )
    assert replace(host, root=True).missing("x", "not installed", "bubblewrap").state == "warn"


def test_mirror_comes_from_the_setting_then_from_apt(host: Host) -> None:
    asked: list[str] = []

    def fetch(url: str, _: str | None) -> str:
        asked.append(url)
        return "ok"

    listing = "http://other.test/ubuntu Ubuntu\nhttp://mirror.test/debian/ Debian\n"
    known = replace(host, fetch=fetch, run=lambda command: Output(0, listing))
    assert preflight.probe_mirror(known).found == "http://mirror.test/debian"
    own = replace(known, environment={**host.environment, "FOLIOBOX_DEBIAN_MIRROR": "http://own.test/d/"})
    assert preflight.probe_mirror(own).state == "ok"
    suite = "dists/trixie/InRelease"
    assert asked == [f"http://mirror.test/debian/{suite}", f"http://own.test/d/{suite}"]


def test_unknown_mirror_and_index_are_warnings(host: Host) -> None:
    assert preflight.probe_mirror(host).state == "warn"
    assert preflight.probe_index(host).state == "warn"


def test_nothing_is_asked_when_nothing_must_be_downloaded(host: Host) -> None:
    def fetch(url: str, _: str | None) -> str:
        raise AssertionError(url)

    with_tree(host)
    python = host.repository / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("")
    quiet = replace(host, fetch=fetch)
    assert [preflight.probe_mirror(quiet).state, preflight.probe_index(quiet).state] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("answer", "state"),
    [("ok", "ok"), ("certificate", "fail"), ("no answer (x)", "fail"), ("answers with 404", "warn")],
)
def test_answers_of_an_index(host: Host, answer: str, state: str) -> None:
    environment = {**host.environment, "PIP_INDEX_URL": "https://me:secret@index.test/simple/"}
    found = preflight.probe_index(replace(host, environment=environment, fetch=lambda url, ca: answer))
    assert found.state == state
    assert "secret" not in found.found
    assert ("PIP_CERT" in found.change) == (answer == "certificate")


def test_setup_asks_nothing_about_running() -> None:
    assert preflight.probe_namespaces not in preflight.probes_for("setup")
    assert preflight.probe_namespaces in preflight.probes_for("demo")


def test_a_hanging_and_a_broken_probe_cost_nobody(host: Host) -> None:
    release = threading.Event()

    def probe_hang(_: Host) -> Finding:
        release.wait(30)
        return Finding("hang", "ok", "")

    def probe_break(_: Host) -> Finding:
        raise RuntimeError("boom")

    def probe_good(_: Host) -> Finding:
        return Finding("good", "ok", "fine")

    started = time.monotonic()
    found = preflight.preflight(host, [probe_hang, probe_break, probe_good], total_s=0.2)
    release.set()
    assert time.monotonic() - started < 5
    assert [(finding.name, finding.state) for finding in found] == [
        ("hang", "warn"),
        ("break", "warn"),
        ("good", "ok"),
    ]


def test_table_puts_the_help_below_its_line() -> None:
    lines = preflight.table([Finding("disk", "fail", "1 GB", "free some"), Finding("memory", "ok", "9 GB")])
    assert lines.splitlines() == [
        "  fail  disk    1 GB",
        "                -> free some",
        "  ok    memory  9 GB",
    ]


def test_command_that_is_not_there_is_an_output_too() -> None:
    assert preflight.run_command(["no-such-program-here"]).code == 127
    assert preflight.run_command(["sh", "-c", "echo hi; exit 3"]) == Output(3, "hi")
