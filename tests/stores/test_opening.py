"""The scheme of a URL decides which class opens a store."""

from pathlib import Path

import pytest

from sightline.errors import StoreError
from sightline.stores.base import RemoteStore
from sightline.stores.opening import REMOTE_STORES, is_store_url, remote_store


@pytest.mark.parametrize("scheme", REMOTE_STORES)
def test_a_url_of_a_store_is_told_from_a_folder(scheme: str) -> None:
    assert is_store_url(f"{scheme}://localhost/photos")
    assert is_store_url(Path(f"{scheme}://localhost/photos"))
    assert not any(map(is_store_url, [None, "photos", Path("photos"), f"/{scheme}", f"{scheme}.jpg"]))


@pytest.mark.parametrize("scheme", REMOTE_STORES)
def test_every_scheme_has_a_class_that_opens_its_stores(scheme: str) -> None:
    kind = remote_store(f"{scheme}://localhost/photos")
    missing = {name for name in dir(RemoteStore) if not name.startswith("_")} - set(dir(kind))
    assert not missing


def test_other_urls_are_refused_with_the_schemes_that_there_are() -> None:
    with pytest.raises(StoreError, match="not the URL of a store") as caught:
        remote_store("http://localhost/photos")
    assert "milvus://" in caught.value.way_out
