"""Reading the Python lock for a download in portions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from images.rootfs import content

SANDBOX = Path(content.__file__).resolve().parent.parent / "sandbox"


@pytest.fixture(scope="module")
def fetch() -> ModuleType:
    """The script, which runs inside the image and belongs to no package."""
    spec = importlib.util.spec_from_file_location("sandbox_fetch", SANDBOX / "fetch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_lock_is_read_whole(fetch: ModuleType) -> None:
    text = (SANDBOX / "python.lock").read_text()
    found = fetch.parse_lock(text)
    assert len(found) == text.count("==") - text.count("; ")
    assert all(requirement.hashes for requirement in found)
    assert sum(requirement.text.count("--hash") for requirement in found) == text.count("--hash")
    assert "numpy" in {requirement.name for requirement in found}


def test_only_what_is_not_there_is_wanted(fetch: ModuleType) -> None:
    one, two = "1" * 64, "2" * 64
    lock = f"# head\na==1 \\\n    --hash=sha256:{one}\n    # via b\nb==2 \\\n    --hash=sha256:{two}\n"
    found = fetch.parse_lock(lock)
    assert [requirement.name for requirement in fetch.missing(found, {one})] == ["b"]
    assert "#" not in found[0].text


def test_portions_hold_all_in_order(fetch: ModuleType) -> None:
    assert fetch.portions([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]


def test_files_outside_the_lock_are_removed(fetch: ModuleType, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    folder = tmp_path / "wheels"
    folder.mkdir()
    (folder / "keep.whl").write_bytes(b"keep")
    (folder / "old.whl").write_bytes(b"old")
    digest = fetch.hash_of(folder / "keep.whl")
    lock.write_text(f"keep==1 \\\n    --hash=sha256:{digest}\n")
    fetch.main(lock, folder)
    assert [path.name for path in folder.iterdir()] == ["keep.whl"]
