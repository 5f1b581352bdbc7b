"""What `foliobox doctor` finds and shows, without a sandbox."""

from __future__ import annotations

import fcntl
import resource
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner import __version__, preflight
from runner import app as composition
from runner.backends.base import Backend, BackendReport
from runner.cli import doctor_checks as checks
from runner.cli.main import app
from runner.cli.settings_table import SETTINGS
from runner.errors import BackendUnavailable, ConfigurationError
from runner.limits import fit
from runner.settings import Settings


def test_every_wrong_setting_is_told_and_the_others_are_read() -> None:
    env = {"SANDBOX_BIND": "bogus", "SANDBOX_MEMORY": "x", "SANDBOX_POOL_SIZE": "5"}
    settings, problems = checks.read_settings(env)
    assert settings is not None
    assert settings.conversations.pool_size == 5
    assert sorted(problem.split("=")[0] for problem in problems) == ["SANDBOX_BIND", "SANDBOX_MEMORY"]


def test_settings_that_do_not_go_together_do_not_end_the_search() -> None:
    settings, problems = checks.read_settings({"SANDBOX_WORKSPACE_SIZE": "4g", "SANDBOX_CPUS": "1e9", "HOME": "/h"})
    assert settings is not None
    assert len(problems) == 2
    assert settings.limits.sandbox.cpus == 1


def test_whatever_a_start_refuses_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    monkeypatch.setattr(fit.Capacity, "read", classmethod(lambda cls: cls(8 << 30, 1000, hard)))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        env = {
            "SANDBOX_DATA_DIR": str(tmp_path),
            "SANDBOX_LINK_SECRET": "short",
            "SANDBOX_MAX_CONNECTIONS": str(min(hard, 1_000_000)),
            "SANDBOX_NOFILE_ULIMIT": str(hard + 1),
            "SANDBOX_BIND": f"127.0.0.1:{taken.getsockname()[1]}",
        }
        told = "\n".join(checks.start(Settings.from_env(env)))
    for name in ("API_KEY", "LINK_SECRET", "MAX_CONNECTIONS", "NOFILE_ULIMIT", "MIN_FREE_PIDS"):
        assert f"SANDBOX_{name}" in told
    assert "in use by another program" in told


def test_a_secret_of_links_that_others_can_read_is_told(tmp_path: Path) -> None:
    env = {"SANDBOX_DATA_DIR": str(tmp_path), "SANDBOX_API_KEY": "k", "SANDBOX_BIND": "127.0.0.1:0"}
    assert checks.start(Settings.from_env(env)) == []
    assert not list(tmp_path.iterdir())
    (tmp_path / "link.key").write_text("x" * 64)
    (tmp_path / "link.key").chmod(0o644)
    assert "link.key" in checks.start(Settings.from_env(env))[0]


def test_the_reason_of_a_sandbox_that_does_not_start_is_told() -> None:
    error = BackendUnavailable("it could not be started: run `foliobox doctor` to see which part", cause="cpu.max")
    assert checks.plain(error) == "it could not be started: cpu.max"
    assert checks.plain(ConfigurationError("bind to loopback, or see `foliobox doctor` for what")) == "bind to loopback"
    assert checks.plain(ConfigurationError("SANDBOX_X: set it")) == "SANDBOX_X: set it"


def test_only_what_differs_is_shown_unless_all_is_asked_for() -> None:
    env = {"SANDBOX_API_KEY": "secret", "SANDBOX_CPUS": "1", "SANDBOX_PIDS_LIMIT": "99", "SANDBOX_BACKEND": ""}
    settings = Settings.from_env(env)
    short = checks.settings_rows(env, settings, everything=False)
    assert [row[:3] for row in short] == [
        ("SANDBOX_API_KEY", "(set)", "environment"),
        ("SANDBOX_PIDS_LIMIT", "99", "environment"),
    ]
    rows = {row[0]: row[1] for row in checks.settings_rows(env, settings, everything=True)}
    assert len(rows) == len(SETTINGS)
    assert rows["SANDBOX_DATA_DIR"] == str(settings.workspace.data_dir)
    assert rows["SANDBOX_ROOTFS"] == str(settings.bubblewrap.rootfs)
    assert rows["SANDBOX_MAX_SESSIONS"] == str(settings.conversations.max_live)


def test_a_held_lock_is_another_runner(tmp_path: Path) -> None:
    assert checks.data_folder(tmp_path / "new") == []
    assert not (tmp_path / "new").exists()
    lock = tmp_path / "store" / "lock"
    lock.parent.mkdir()
    lock.write_text("4711\n")
    assert checks.data_folder(tmp_path) == []
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        (problem,) = checks.data_folder(tmp_path)
    assert "in use by another runner (process 4711)" in problem


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert checks.data_folder(tmp_path / "file")
    assert checks.data_folder(tmp_path / "file" / "below")


def test_an_address_of_another_host_is_told(tmp_path: Path) -> None:
    env = {"SANDBOX_DATA_DIR": str(tmp_path), "SANDBOX_API_KEY": "k", "SANDBOX_BIND": "192.0.2.1:8000"}
    assert "192.0.2.1:8000" in checks.start(Settings.from_env(env))[0]


def test_doctor_goes_on_and_lists_all_at_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried = []

    async def choose(_: Settings) -> tuple[Backend, BackendReport]:
        tried.append("sandbox")
        raise BackendUnavailable("no [bold]sandbox[/] today")

    findings = [preflight.Finding("disk", "fail", "1 GB at /a/[red]b", "free some [x] " + "very " * 30)]
    monkeypatch.setattr(preflight, "preflight", lambda host: findings)
    monkeypatch.setattr(composition, "choose_backend", choose)
    env = {"SANDBOX_API_KEY": "", "SANDBOX_DATA_DIR": str(tmp_path / "[red]x"), "SANDBOX_BIND": "127.0.0.1:0"}
    done = CliRunner().invoke(app, ["doctor"], env={**env, "COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"})
    assert done.exit_code == 1
    assert tried == ["sandbox"]
    text = " ".join(done.output.split())
    for piece in ("1 GB at /a/[red]b", "SANDBOX_API_KEY is not set", "no [bold]sandbox[/] today", "[red]x"):
        assert piece in text
    assert max(map(len, done.output.splitlines())) <= 80


def test_doctor_says_when_all_is_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    report = BackendReport(name="none", available=True, isolation="separate-kernel")
    monkeypatch.setattr(preflight, "preflight", lambda host: [preflight.Finding("disk", "ok", "9 GB")])
    monkeypatch.setattr("runner.cli.doctor._start", started(report))
    env = {"SANDBOX_API_KEY": "k", "SANDBOX_DATA_DIR": str(tmp_path), "SANDBOX_BIND": "127.0.0.1:0"}
    monkeypatch.delenv("COLUMNS", raising=False)
    done = CliRunner().invoke(app, ["doctor", "--all"], env=env)
    assert done.exit_code == 0, done.output
    assert "The service can start." in done.output
    assert all(setting.meaning in done.output for setting in SETTINGS)  # what is piped is not wrapped


Started = tuple[BackendReport, float, list[BackendReport]]


def started(report: BackendReport, *others: BackendReport) -> Callable[[Settings], Awaitable[Started]]:
    async def start(_: Settings) -> Started:
        return report, 0.5, list(others)

    return start


def test_doctor_says_what_was_not_chosen_and_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen = BackendReport("docker", True, "separate-kernel", runtime="runsc", engine="20.10.24")
    other = BackendReport("bubblewrap", False, detail="install the package bubblewrap")
    monkeypatch.setattr("runner.cli.doctor._start", started(chosen, other))
    env = {"SANDBOX_API_KEY": "k", "SANDBOX_DATA_DIR": str(tmp_path), "SANDBOX_BIND": "127.0.0.1:0"}
    text = CliRunner().invoke(app, ["doctor"], env=env).output
    assert "runsc of Docker 20.10.24" in text
    assert "Not used: bubblewrap" in text
    assert "install the package bubblewrap" in text


def test_doctor_refuses_what_a_start_would(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    weaker = BackendReport("docker", True, "shared-kernel", runtime="runc")
    monkeypatch.setattr("runner.cli.doctor._start", started(weaker))
    env = {
        "SANDBOX_API_KEY": "k", "SANDBOX_DATA_DIR": str(tmp_path), "SANDBOX_BIND": "127.0.0.1:0",
        "SANDBOX_REQUIRE_ISOLATION": "separate-kernel",
    }  # fmt: skip
    done = CliRunner().invoke(app, ["doctor"], env=env)
    assert done.exit_code == 1
    assert "SANDBOX_REQUIRE_ISOLATION=separate-kernel" in done.output


def test_version() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"foliobox {__version__}\n")
