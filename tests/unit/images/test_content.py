"""Lists of the image and the hash that names a built tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from images.rootfs import content

IMAGES = Path(content.__file__).resolve().parent.parent
SANDBOX = IMAGES / "sandbox"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A small images folder of the same shape."""
    (tmp_path / "sandbox/apt").mkdir(parents=True)
    (tmp_path / "certs").mkdir()
    (tmp_path / "sandbox/install.sh").write_text("true\n")
    (tmp_path / "sandbox/apt/core.txt").write_text("bash\n")
    (tmp_path / "sandbox/apt/media.txt").write_text("ffmpeg\n")
    return tmp_path


def digest(images: Path, *groups: str) -> str:
    return content.content_hash(images, ("core", *groups), "x86_64")


def test_list_keeps_order_and_drops_comments_and_doubles() -> None:
    assert content.parse_list("# a\nb # why\n\n a\nb\n") == ["b", "a"]


def test_groups_start_with_core_and_are_sorted() -> None:
    known = ["core", "fonts", "media"]
    assert content.normalise_groups(["media", "core", "fonts", "media"], known) == ("core", "fonts", "media")
    assert content.normalise_groups(["core"], known) == ("core",)
    with pytest.raises(content.UnknownGroupError, match=r"no group is named; there are: core, fonts, media"):
        content.normalise_groups([], known)


def test_unknown_group_is_named_with_those_there_are() -> None:
    with pytest.raises(content.UnknownGroupError, match=r"no such group: ocr; there are: core, media"):
        content.normalise_groups(["ocr"], ["core", "media"])


def test_hash_is_stable_and_long(images: Path) -> None:
    first = digest(images)
    assert re.fullmatch(r"[0-9a-f]{64}", first)
    assert digest(images) == first


def test_hash_follows_content_names_groups_machine_and_certificates(images: Path) -> None:
    seen = {digest(images), digest(images, "media"), content.content_hash(images, ("core",), "aarch64")}
    (images / "sandbox/install.sh").write_text("false\n")
    seen.add(digest(images))
    (images / "sandbox/install.sh").rename(images / "sandbox/other.sh")
    seen.add(digest(images))
    (images / "certs/own.crt").write_text("x")
    seen.add(digest(images))
    assert len(seen) == 6


def test_hash_ignores_lists_of_other_groups_and_bytecode(images: Path) -> None:
    first = digest(images)
    (images / "sandbox/apt/media.txt").write_text("sox\n")
    (images / "sandbox/__pycache__").mkdir()
    (images / "sandbox/__pycache__/x.pyc").write_bytes(b"1")
    (images / "certs/README.md").write_text("words")
    assert digest(images) == first
    assert digest(images, "media") != first


def test_default_groups_have_lists() -> None:
    known = content.known_groups(SANDBOX)
    assert set(content.DEFAULT_GROUPS) | set(content.SLIM_GROUPS) <= set(known)


@pytest.mark.parametrize("group", content.known_groups(SANDBOX))
def test_lists_hold_bare_package_names(group: str) -> None:
    names = content.parse_list((SANDBOX / "apt" / f"{group}.txt").read_text())
    assert names
    assert [name for name in names if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name)] == []


def test_no_package_is_named_twice() -> None:
    lists = [content.parse_list(path.read_text()) for path in (SANDBOX / "apt").glob("*.txt")]
    names = [name for entries in lists for name in entries]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("lock", ["python.lock", "python-web.lock", "python-build.lock"])
def test_lock_pins_everything_with_hashes_and_names_no_index(lock: str) -> None:
    text = (SANDBOX / lock).read_text()
    assert re.search(r"https?://|--index|--extra-index|--find-links", text) is None
    pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert pins
    assert [line for line in pins if not re.match(r"[a-z0-9-]+==\S+ .*\\$", line)] == []
    blocks = re.split(r"(?m)^(?=[a-z0-9])", text)
    assert [block for block in blocks if "==" in block and "--hash=sha256:" not in block] == []


def locked(lock: str) -> set[str]:
    """The names that a lock pins."""
    return set(re.findall(r"(?m)^([a-z0-9-]+)==", (SANDBOX / lock).read_text()))


@pytest.mark.parametrize("name", ["python", "python-web"])
def test_lock_answers_every_direct_requirement(name: str) -> None:
    wanted = content.parse_list((SANDBOX / f"{name}.in").read_text())
    names = {re.split(r"[\[<>=]", line)[0] for line in wanted}
    assert names - locked(f"{name}.lock") == set()


def test_lock_of_a_group_adds_to_the_lock_of_all() -> None:
    assert locked("python.lock") & locked("python-web.lock") == set()


def test_locks_have_nothing_under_the_agpl() -> None:
    every = locked("python.lock") | locked("python-web.lock")
    assert every & {"pymupdf", "pymupdfb", "pdf2docx", "ghostscript"} == set()


def test_both_products_have_the_same_groups() -> None:
    text = (SANDBOX.parents[1] / "Dockerfile.sandbox").read_text()
    found = re.search(r'ARG SANDBOX_GROUPS="([^"]+)"', text)
    assert found
    assert tuple(found[1].split()) == content.DEFAULT_GROUPS
