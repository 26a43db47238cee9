from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

import sightline
from server.samples import application, fill, picture
from server.served import opening, served
from sightline.collection import Collection
from sightline.server.run import ServedCollection


@pytest.fixture(autouse=True, scope="session")
def _no_token() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SIGHTLINE_TOKEN", raising=False)
        yield


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> Path:
    """Eight pictures in two folders, one of them twice, and one of a kind that browsers do not show; indexed."""
    folder = fill(tmp_path_factory.mktemp("photos"))
    (folder / "town" / "copy.png").write_bytes(picture(0))
    (folder / "rare.tiff").write_bytes(picture(99, format="TIFF"))
    sightline.index(folder, model=tiny_bundle)
    return folder


@pytest.fixture(scope="session")
def opened(photos: Path) -> Iterator[ServedCollection]:
    with opening(photos) as found:
        yield found


@pytest.fixture(scope="session")
def app(opened: ServedCollection) -> FastAPI:
    return application(opened)


@pytest.fixture(scope="session")
def client(app: FastAPI) -> Iterator[httpx.Client]:
    """Asks a real server on a port of this machine."""
    with served(app) as address, httpx.Client(base_url=address, timeout=30) as found:
        yield found


@pytest.fixture(scope="session")
def collection(photos: Path) -> Iterator[Collection]:
    with sightline.open(photos) as found:
        yield found


@pytest.fixture(scope="session")
def ids(collection: Collection) -> dict[str, int]:
    """The id of each picture, by its path."""
    items = collection.items(collection.catalog.ids())
    return {file.path: id for id, item in items.items() for file in item.files}
