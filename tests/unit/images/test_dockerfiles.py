"""The Dockerfiles: for every builder, with nothing of the build in the image, and all that they copy in the context."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from images.containers import egress, layers, sandbox, service
from images.rootfs import commands

ROOT = Path(__file__).resolve().parents[3]
FILES = ("Dockerfile.sandbox", "Dockerfile.runner")


def instructions(name: str) -> list[str]:
    """The instructions of a Dockerfile, continued lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", (ROOT / name).read_text()).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip()]


def last_stage(name: str) -> list[str]:
    """What the image is made of."""
    lines = instructions(name)
    begin = max(at for at, line in enumerate(lines) if line.startswith("FROM"))
    return lines[begin:]


@pytest.mark.parametrize("name", FILES)
def test_the_classic_builder_understands_it(name: str) -> None:
    assert not re.search(r"--mount|--chmod|--link|<<|^# *syntax", (ROOT / name).read_text())


@pytest.mark.parametrize("name", FILES)
def test_mirrors_and_authorities_are_known_to_earlier_stages_only(name: str) -> None:
    taken = {f"ARG PIP_{setting.replace('-', '_').upper()}" for setting in commands.PIP_SETTINGS}
    assert taken <= set(instructions(name))
    assert not [line for line in last_stage(name) if "PIP_" in line or "certs" in line]
    assert last_stage(name)[0] in ("FROM scratch", "FROM python")
    assert not [line for line in instructions(name) if line.startswith("ENV") and "PIP_" in line]


@pytest.mark.parametrize("name", FILES)
def test_the_context_has_all_that_is_copied(name: str) -> None:
    listed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = [
        source
        for line in instructions(name)
        if line.startswith("COPY") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(entry == source or entry.startswith(f"{source}/") for entry in listed), source
        if name == "Dockerfile.runner" and source != "images/certs":
            assert source in service.PARTS, f"{source} must count for the hash of the image"


def test_both_ways_to_the_sandbox_image_start_it_alike() -> None:
    lines = last_stage("Dockerfile.sandbox")
    copied = [line.split("/layers/")[1].split()[0] for line in lines if line.startswith("COPY")]
    assert copied == [*(name for name, _ in layers.PARTS), layers.REST]
    assert f"ENV {' '.join(sandbox.ENVIRONMENT)}" in lines
    assert f"USER {sandbox.USER}" in lines
    assert [line for line in lines if line.startswith(f"LABEL {sandbox.CONTENT}=")]


def test_a_checkout_that_only_its_owner_reads_makes_a_service_that_others_can() -> None:
    lines = instructions("Dockerfile.runner")
    opened = [at for at, line in enumerate(lines) if line.endswith("&& chmod -R go+rX /opt/foliobox")]
    copies = [at for at, line in enumerate(lines) if line.startswith("COPY")]
    assert [lines[at].split()[1:] for at in copies if at > opened[0]] == [
        ["--from=built", "/opt/foliobox", "/opt/foliobox"]
    ]


def test_the_runner_runs_as_nobody_special_and_tells_its_health() -> None:
    lines = last_stage("Dockerfile.runner")
    assert "USER 10000:10000" in lines
    assert [line for line in lines if line.startswith("HEALTHCHECK") and "/opt/foliobox/deploy/healthcheck.py" in line]
    assert 'ENTRYPOINT ["foliobox"]' in lines


def test_the_proxys_image_is_made_of_its_parts_alone_and_runs_without_privileges() -> None:
    lines = instructions("Dockerfile.egress")
    copied = [source for line in lines if line.startswith("COPY") for source in line.split()[1:-1]]
    assert sorted(["Dockerfile.egress", *copied]) == sorted(egress.PARTS)
    listed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert all((ROOT / source).is_file() and str(Path(source).parent) in listed for source in copied)
    assert "USER proxy" in lines
    assert not re.search(r"--mount|--chmod|--link|<<|^# *syntax", (ROOT / "Dockerfile.egress").read_text())
