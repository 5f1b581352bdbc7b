"""The block of a request: its fields, when it is effective, and that it shows no credentials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.errors import InvalidRequest, StorageRejected
from runner.objects.block import StorageBlock
from runner.objects.config import ObjectsConfig
from runner.objects.service import ObjectStorage

SECRETS = {
    "s3_access_key": "SECRET-1",
    "s3_secret_key": "SECRET-2",
    "oss_access_key_id": "SECRET-3",
    "oss_access_key_secret": "SECRET-4",
}
OSS = {"provider": "aliyun_oss", "oss_bucket": "b", "oss_endpoint": "e", **SECRETS}


def test_no_credentials_are_shown_or_kept() -> None:
    """E49: neither in a text of the block nor in what may be stored of it."""
    block = StorageBlock.parse({"provider": "s3", "s3_bucket": "b", "prefix": "p/", **SECRETS})
    assert "SECRET" not in repr(block) + str(block) + json.dumps(block.public()) + repr(block.place)
    assert block.public() == {"provider": "s3", "prefix": "p/", "s3_bucket": "b", "forgotten": "credentials"}
    assert StorageBlock.parse(block.public()).place == block.place


def test_what_was_stored_of_a_block_never_means_the_runner_s_own_credentials(tmp_path: Path) -> None:
    """A6: one that had credentials waits for them; one that had none is whole."""
    storage = ObjectStorage(ObjectsConfig.from_env({}), tmp_path)
    given = StorageBlock.parse({"provider": "s3", "s3_bucket": "b", **SECRETS})
    ambient = StorageBlock.parse({"provider": "s3", "s3_bucket": "b"})
    assert storage.effective(given) and storage.effective(ambient) and ambient.ambient
    stored = StorageBlock.parse(StorageBlock.parse(given.public()).public())
    assert not storage.effective(stored) and not stored.ambient
    assert StorageBlock.parse(ambient.public()) == ambient


def test_null_missing_and_unknown_fields() -> None:
    """All are optional; what is no string is not one."""
    assert StorageBlock.parse(None) == StorageBlock.parse({"provider": None, "more": 1}) == StorageBlock()
    values: tuple[object, ...] = (1, ["s3"], {}, "x" * 5000)
    for value in values:
        with pytest.raises(InvalidRequest, match=r"^storage\.provider must be"):
            StorageBlock.parse({"provider": value})


@pytest.mark.parametrize(
    ("raw", "effective"),
    [
        ({}, False),
        ({"provider": ""}, False),
        ({"provider": "s3"}, False),
        ({"provider": "s3", "s3_bucket": "b"}, True),
        ({"provider": "s3", "s3_bucket": "b", "s3_access_key": "a"}, False),
        ({"provider": "s3", "s3_bucket": "b", "s3_access_key": "a", "s3_secret_key": "s"}, True),
        (OSS, True),
        *(({**OSS, name: ""}, False) for name in ("oss_bucket", "oss_endpoint", "oss_access_key_id")),
        ({**OSS, "oss_access_key_secret": ""}, False),
        ({"provider": "gcs", "s3_bucket": "b"}, False),
        ({"provider": "local"}, False),
    ],
)
def test_when_a_block_is_effective(raw: dict[str, str], effective: bool, tmp_path: Path) -> None:
    """As the contract's table says."""
    storage = ObjectStorage(ObjectsConfig.from_env({}), tmp_path)
    block = StorageBlock.parse(raw)
    assert storage.effective(block) is effective
    if not effective:
        text = "unsupported storage provider: gcs" if raw.get("provider") == "gcs" else "storage backend not configured"
        with pytest.raises(StorageRejected, match=f"^{text}$"):
            storage.check(block)


def test_local_is_effective_with_a_folder(tmp_path: Path) -> None:
    """One that is there."""
    block = StorageBlock.parse({"provider": "local"})
    for folder, effective in ((tmp_path, True), (tmp_path / "none", False)):
        config = ObjectsConfig.from_env({"SANDBOX_LOCAL_STORAGE_DIR": str(folder)})
        assert ObjectStorage(config, tmp_path).effective(block) is effective
