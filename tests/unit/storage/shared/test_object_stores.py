"""The stores that need no server: the model of the tests, and directories. And the URLs that name a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.storage.shared.store.object_store import ObjectStore
from app.storage.shared.store.urls import open_object_store
from tests.support.model_store import ModelStore
from tests.support.object_store_contract import LongListingContract, ObjectStoreContract


class TestModel(ObjectStoreContract, LongListingContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return ModelStore()


class TestDirectory(ObjectStoreContract, LongListingContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> ObjectStore:
        return open_object_store(f"file://{tmp_path}/objects")


def test_a_directory_does_not_claim_to_survive_a_loss_of_power(tmp_path: Path) -> None:
    assert not open_object_store(f"file://{tmp_path}").is_durable
    assert open_object_store("s3://bucket/prefix").is_durable


def test_a_directory_that_is_made_is_for_its_owner_alone(tmp_path: Path) -> None:
    open_object_store(f"file://{tmp_path}/made/objects")
    assert (tmp_path / "made/objects").stat().st_mode & 0o777 == 0o700
    # One that is there may be shared on purpose.
    (tmp_path / "shared").mkdir(0o750)
    open_object_store(f"file://{tmp_path}/shared")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("", "use s3://BUCKET"),
        ("bucket", "use s3://BUCKET"),
        ("http://bucket", "use s3://BUCKET"),
        ("s3:///prefix", "needs a bucket"),
        ("az://key:secret@container", "holds credentials"),
        ("gs://bucket:443", "has no port"),
        ("gs:///prefix", "needs a bucket"),
        ("gs://bucket?region=eu", "unknown option 'region'"),
        ("gs://bucket?endpoint=host", "must begin with http"),
        ("az:///prefix?account=a", "needs a container"),
        ("az://container", "needs the name of the storage account"),
        ("az://container?account=a&region=eu", "unknown option 'region'"),
        ("az://container?account=a&endpoint=host", "must begin with http"),
        ("s3://bucket?endpoint=host:9000", "must begin with http"),
        ("s3://bucket?endpiont=http://host", "unknown option 'endpiont'"),
        ("s3://bucket?path_style=1", "true or false"),
        ("s3://bucket?payload=hashed", "signed or unsigned"),
        ("file://relative/path", "three slashes"),
        ("file:///path?sync=1", "three slashes"),
        ("file:///dev/null/objects", "cannot be made: Not a directory"),
    ],
)
def test_a_url_that_names_no_store_is_explained(url: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(ValueError, match=hint):
        open_object_store(url)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/prefix",
        "s3://bucket/prefix?endpoint=https://key:secret@host",
        "key:secret@bucket/prefix",
        "https://key:secret@host/bucket",
        "file://key:secret@host/directory",
    ],
)
def test_a_url_with_credentials_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="holds credentials, which would be logged") as refused:
        open_object_store(url)
    assert "secret" not in str(refused.value)
