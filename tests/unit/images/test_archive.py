"""The archive of the sandbox image: layers, digests, and the same bytes for the same tree."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from images.containers import archive, layers, split
from images.rootfs.progress import StepError

EVERYTHING = ("usr/share/fonts/a.ttf", "usr/lib/libreoffice/soffice", "opt/venv/bin/python", "etc/passwd", "opt/other")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree with something for each layer."""
    root = tmp_path / "tree"
    for name in EVERYTHING:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "bin").symlink_to("usr/bin")
    (root / "usr/share").chmod(0o711)
    return root


def packed(tree: Path, file: Path) -> str:
    """Pack a tree as an image; its id."""
    with open(file, "wb") as out:
        image = archive.Archive(out)
        for name in layers.names(tree):
            image.pack(name, layers.command(tree, name))
        return image.finish(archive.configuration(image.layers, "2026-01-01T00:00:00Z", "x86_64", {}), ["a:b"])


def read(file: Path, name: str) -> bytes:
    """One member of an archive."""
    with tarfile.open(file) as tar:
        member = tar.extractfile(name)
        assert member is not None
        return member.read()


def test_the_manifest_names_what_is_there(tree: Path, tmp_path: Path) -> None:
    image = packed(tree, tmp_path / "i.tar")
    manifest: list[dict[str, Any]] = json.loads(read(tmp_path / "i.tar", "manifest.json"))
    config_bytes = read(tmp_path / "i.tar", manifest[0]["Config"])
    assert image == "sha256:" + hashlib.sha256(config_bytes).hexdigest()
    assert manifest[0]["RepoTags"] == ["a:b"]
    config = json.loads(config_bytes)
    digests = [hashlib.sha256(read(tmp_path / "i.tar", layer)).hexdigest() for layer in manifest[0]["Layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]
    assert (config["architecture"], config["os"], len(config["history"])) == ("amd64", "linux", 4)


def test_layers_together_are_the_tree_and_hold_each_file_once(tree: Path, tmp_path: Path) -> None:
    packed(tree, tmp_path / "i.tar")
    files: list[str] = []
    for name in layers.names(tree):
        with tarfile.open(fileobj=io.BytesIO(read(tmp_path / "i.tar", f"{name}/layer.tar"))) as layer:
            entries = layer.getmembers()
            files += [entry.name.removeprefix("./") for entry in entries if entry.isfile()]
            # Folders above a part keep the mode they have in the tree.
            assert {entry.mode for entry in entries if entry.name == "./usr/share"} in ({0o711}, set())
            assert (name == layers.REST) == any(entry.issym() for entry in entries)
    assert sorted(files) == sorted(EVERYTHING)


def test_the_same_tree_gives_the_same_image(tree: Path, tmp_path: Path) -> None:
    first = packed(tree, tmp_path / "1.tar")
    assert packed(tree, tmp_path / "2.tar") == first
    (tree / "etc/passwd").write_text("other")
    assert packed(tree, tmp_path / "3.tar") != first


def test_a_tree_without_office_has_no_such_layer(tree: Path) -> None:
    subprocess.run(["rm", "-r", str(tree / "usr/lib/libreoffice")], check=True)
    assert layers.names(tree) == ["fonts", "python", "system"]


def test_a_layer_that_cannot_be_packed_is_named(tmp_path: Path) -> None:
    with open(tmp_path / "i.tar", "wb") as out, pytest.raises(StepError, match="the layer fonts failed: no such"):
        archive.Archive(out).pack("fonts", ["sh", "-c", "echo no such thing >&2; exit 2"])


def test_an_installed_system_is_split_without_what_the_build_brought(tree: Path, tmp_path: Path) -> None:
    for name in ("etc/apt/sources.list.d/a.sources", "etc/resolv.conf", "run/foliobox/ca.crt", "proc/1/x"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("host")
    split.split(tree, tree / "layers")
    found = {str(path.relative_to(tree / "layers")) for path in (tree / "layers").rglob("*") if path.is_file()}
    own = {f"system/{place}" for place in split.FILES}
    parts = {"fonts/usr/share/fonts/a.ttf", "office/usr/lib/libreoffice/soffice", "python/opt/venv/bin/python"}
    assert found == parts | own | {"system/etc/passwd", "system/opt/other"}
    assert (tree / "layers/system/etc/resolv.conf").read_text() == ""
