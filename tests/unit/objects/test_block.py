"""The block of a request: its fields, when it is effective, and that it shows no credentials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.errors import InvalidRequest, StorageRejected
from runner.objects.block import StorageBlock
from runner.objects.config import ObjectsConfig
from runner.objects.place import place_of
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
    assert "SECRET" not in repr(block) + str(block) + json.dumps(block.public()) + repr(place_of(block))
    assert block.public() == {"provider": "s3", "prefix": "p/", "s3_bucket": "b", "forgotten": "credentials"}
    assert block.without_credentials() == StorageBlock.parse(block.public())
    assert place_of(block.without_credentials()) == place_of(block)


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


S3 = {"provider": "s3", "s3_bucket": "b"}
_OSS = {"provider": "aliyun_oss", "oss_bucket": "b"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (S3, {**S3, "s3_region": "us-east-1", "prefix": "workspaces/"}),
        (S3, {**S3, "s3_endpoint": "https://s3.us-east-1.amazonaws.com"}),
        ({**S3, "prefix": "p"}, {**S3, "prefix": "p/"}),
        ({**S3, "s3_endpoint": "https://store.example"}, {**S3, "s3_endpoint": "HTTPS://Store.Example.:443/"}),
        ({**S3, "s3_endpoint": "store.example"}, {**S3, "s3_endpoint": "https://b.store.example"}),
        ({**S3, "s3_endpoint": "http://m:9000"}, {**S3, "s3_endpoint": "http://m:9000/", "s3_region": "eu-west-1"}),
        ({**S3, **SECRETS}, {**S3, "oss_bucket": "x", "oss_endpoint": "y", "s3_access_key": "another"}),
        ({**_OSS, "oss_endpoint": "oss-cn-x.aliyuncs.com"}, {**_OSS, "oss_endpoint": "https://oss-cn-x.aliyuncs.com/"}),
        ({"provider": "local"}, {"provider": "local", "prefix": "workspaces/", "s3_bucket": "b"}),
    ],
)
def test_a_place_is_the_same_however_it_is_written(one: dict[str, str], other: dict[str, str]) -> None:
    """Else nothing would ever be archived again once a gateway writes it in another way."""
    assert place_of(StorageBlock.parse(one)) == place_of(StorageBlock.parse(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (S3, {**S3, "s3_bucket": "c"}),
        (S3, {**S3, "s3_region": "eu-west-1"}),
        (S3, {**S3, "prefix": "p"}),
        (S3, {**S3, "s3_endpoint": "store.example"}),
        ({**S3, "s3_endpoint": "http://m:9000"}, {**S3, "s3_endpoint": "http://m:9001"}),
        ({**S3, "s3_endpoint": "http://m:9000"}, {**S3, "s3_endpoint": "https://m:9000"}),
        ({**S3, "s3_endpoint": "no host"}, {**S3, "s3_endpoint": "none either"}),
        ({"provider": "local"}, {"provider": "local", "prefix": "../x"}),
    ],
)
def test_other_places_are_told_apart(one: dict[str, str], other: dict[str, str]) -> None:
    """The control."""
    assert place_of(StorageBlock.parse(one)) != place_of(StorageBlock.parse(other))
    assert place_of(StorageBlock.parse(one, "a")) != place_of(StorageBlock.parse(one, "b"))


def test_what_is_open_to_a_store_ends_with_its_use(tmp_path: Path) -> None:
    """E49: its credentials are in it; used again it stays."""
    now = [1000.0]
    config = ObjectsConfig.from_env({"SANDBOX_STORAGE_HOSTS": "m:9000"})
    storage = ObjectStorage(config, tmp_path, lambda: now[0])
    one, other = (
        StorageBlock.parse({**S3, **SECRETS, "s3_bucket": "bucket", "s3_endpoint": "http://m:9000", "prefix": p})
        for p in "ab"
    )
    storage.check(one)
    storage.check(other)
    now[0] += 800
    storage.check(one)
    now[0] += 800
    storage.forget_idle()
    assert list(storage._buckets) == list(storage._used) == [one]
    now[0] += 800
    storage.forget_idle()
    assert not storage._buckets and not storage._used
