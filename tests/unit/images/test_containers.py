"""The door to the `docker` command, and what a build takes over from the host, against a program that plays Docker."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from images.containers import base, docker, recipe, sandbox, service
from images.rootfs import builder, content
from images.rootfs.progress import StepError
from runner import __version__

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH, for a program `docker`."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "docker"


def script(place: Path, *lines: str) -> None:
    """Let `docker` be this shell script; it notes its arguments beside itself."""
    place.write_text("\n".join(['#!/bin/sh\necho "$@" >> "$0.log"', *lines]) + "\n")
    place.chmod(0o755)


def plan(tmp_path: Path) -> builder.Plan:
    """A plan whose cache is empty."""
    return builder.make_plan(ROOT / "images", list(content.SLIM_GROUPS), {"FOLIOBOX_CACHE_DIR": str(tmp_path / "c")})


def test_without_docker_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StepError, match=r"apt-get install docker\.io"):
        docker.engine()


def test_an_engine_that_does_not_answer_is_named(play: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(play, "echo permission denied >&2; exit 1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///x.sock")
    with pytest.raises(StepError, match=r"(?s)unix:///x\.sock.*permission denied"):
        docker.engine()


def test_a_call_that_hangs_ends(play: Path) -> None:
    script(play, "exec sleep 60")
    with pytest.raises(StepError, match="did not end within"):
        docker.call("version", deadline=0.2)


@pytest.mark.parametrize("said", ["Error: No such image: x", "Error response from daemon: no such image: x"])
def test_an_image_that_is_not_there_is_no_failure(play: Path, said: str) -> None:
    script(play, f"echo '{said}' >&2; exit 1")
    assert docker.image("x") is None
    script(play, "echo Cannot connect >&2; exit 1")
    with pytest.raises(StepError, match="Cannot connect"):
        docker.image("x")


def test_builds_use_the_hosts_network_only_where_there_is_no_bridge(play: Path) -> None:
    script(play, "echo 0123")
    assert docker.build_network() == "default"
    script(play, "true")
    assert docker.build_network() == "host"


def test_a_base_that_can_be_pulled_is_not_made(play: Path, tmp_path: Path) -> None:
    script(play, 'case "$1 $2" in "image inspect") echo "No such image" >&2; exit 1;; esac')
    assert base.ensure(plan(tmp_path)) == base.NAME
    calls = (tmp_path / "docker.log").read_text()
    assert f"pull --quiet {base.ORIGIN}" in calls
    assert f"tag {base.ORIGIN} {base.NAME}" in calls
    assert not (tmp_path / "c").exists()


def test_an_image_of_this_content_is_not_built_again(play: Path, tmp_path: Path) -> None:
    wanted = plan(tmp_path)
    labels = f'{{"{sandbox.CONTENT}": "{wanted.content_hash}"}}'
    script(
        play, f"""case "$1 $2" in "image inspect") echo '[{{"Id": "i", "Config": {{"Labels": {labels}}}}}]';; esac"""
    )
    assert sandbox.ensure(wanted) == "i"
    calls = (tmp_path / "docker.log").read_text().splitlines()
    assert calls[-1] == f"tag foliobox-sandbox:{wanted.content_hash[:16]} foliobox-sandbox:{__version__}"


def test_an_image_of_another_build_of_the_tree_does_not_count(tmp_path: Path) -> None:
    wanted = plan(tmp_path)
    (wanted.tree / "etc/foliobox").mkdir(parents=True)
    (wanted.tree / "etc/foliobox/image.json").write_text('{"built": "2026-01-02T00:00:00Z"}')
    for built, same in (("2026-01-01T00:00:00Z", False), ("2026-01-02T00:00:00Z", True)):
        labels = {sandbox.CONTENT: wanted.content_hash, sandbox.BUILT: built}
        assert sandbox._is_of({"Config": {"Labels": labels}}, wanted) is same


def test_downloads_take_over_mirrors_and_proxies_but_no_places_on_disk() -> None:
    host = {"https_proxy": "http://p.test:3", "SECRET": "x", "PIP_INDEX_URL": "https://one.test/simple"}
    found = recipe.downloads(host, {"extra-index-url": "file:///opt/simple https://two.test/simple"})
    assert found == {
        "https_proxy": "http://p.test:3", "PIP_INDEX_URL": "https://one.test/simple",
        "PIP_EXTRA_INDEX_URL": "https://two.test/simple",
    }  # fmt: skip


def test_a_password_of_a_mirror_is_in_no_list_of_processes(
    play: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(play, f'[ "$1" != build ] || env > {tmp_path}/environment', "echo 0123")
    address = "https://me:secret@one.test/simple"
    monkeypatch.setattr(builder, "pip_config", lambda: {"index-url": address})
    monkeypatch.setenv("https_proxy", "http://me:secret@p.test:3")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setattr(recipe, "build_ca", lambda _: contextlib.nullcontext())
    recipe.build(plan(tmp_path), "Dockerfile.runner", "base", ["name"], [])
    called = (tmp_path / "docker.log").read_text()
    assert "--build-arg PIP_INDEX_URL --" in called
    assert "--build-arg https_proxy --" in called
    assert "secret" not in called
    environment = (tmp_path / "environment").read_text().splitlines()
    assert {f"PIP_INDEX_URL={address}", "https_proxy=http://me:secret@p.test:3"} <= set(environment)


def test_the_hosts_authorities_are_in_the_context_only_while_it_builds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bundle.pem").write_text("PEM")
    (tmp_path / "certs").mkdir()
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "bundle.pem"))
    with recipe.build_ca(tmp_path):
        assert (tmp_path / "certs/build/ca.pem").read_text() == "PEM"
    assert not (tmp_path / "certs/build").exists()
    (tmp_path / "certs/build").mkdir()
    (tmp_path / "certs/build/ca.pem").write_text("own")
    with recipe.build_ca(tmp_path):
        assert (tmp_path / "certs/build/ca.pem").read_text() == "own"
    assert (tmp_path / "certs/build/ca.pem").read_text() == "own"


def test_the_runners_image_is_named_by_what_goes_into_it(tmp_path: Path) -> None:
    (tmp_path / "runner/__pycache__").mkdir(parents=True)
    for part in service.PARTS[:-1]:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).write_text("1")
    (tmp_path / "runner/app.py").write_text("1")
    first = service.content_hash(tmp_path, "base")
    (tmp_path / "runner/__pycache__/app.pyc").write_text("1")
    assert service.content_hash(tmp_path, "base") == first
    assert service.content_hash(tmp_path, "other") != first
    (tmp_path / "runner/app.py").write_text("2")
    assert service.content_hash(tmp_path, "base") != first
