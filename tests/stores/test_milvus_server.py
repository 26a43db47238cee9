"""What fails because a server is away is tried again; what a server refuses is not."""

import sys
import time
from typing import Any

import pytest

from sightline.errors import StoreError
from sightline.packages import install_extra
from sightline.stores import milvus_server
from sightline.stores.base import Shape
from sightline.stores.milvus import MilvusStore
from sightline.stores.milvus_address import Address
from sightline.stores.milvus_server import Server

pytest.importorskip("pymilvus", reason="pymilvus is not installed: pip install 'sightline-search[scale]'")
HERE = Address("localhost", 1, "photos")


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was waited between tries; nobody really waits, but the clock believes it."""
    slept: list[float] = []
    began = time.monotonic()
    monkeypatch.setattr(milvus_server, "_client", lambda *_: object())
    monkeypatch.setattr(milvus_server.time, "sleep", slept.append)
    monkeypatch.setattr(milvus_server.time, "monotonic", lambda: began + sum(slept))
    return slept


def failing(times: int, code: Any) -> Any:
    """A call that fails so many times, and then gives how often it was made."""
    from pymilvus.exceptions import MilvusException

    made = []

    def call(_: object) -> int:
        made.append(1)
        if len(made) <= times:
            raise MilvusException(code, "cannot answer now")
        return len(made)

    return call


def unavailable() -> Any:
    import grpc

    return grpc.StatusCode.UNAVAILABLE


def test_a_call_is_repeated_until_the_server_is_back(waits: list[float]) -> None:
    assert Server(HERE, 60).ask(failing(4, unavailable())) == 5
    assert waits == [0.1, 0.2, 0.4, 0.8]


@pytest.mark.parametrize("code", [2, 101, 503, 901])
def test_a_server_that_is_starting_is_waited_for(waits: list[float], code: int) -> None:
    assert Server(HERE, 60).ask(failing(1, code)) == 2


def test_pauses_grow_up_to_a_limit_and_patience_ends(waits: list[float]) -> None:
    with pytest.raises(StoreError, match="no Milvus server answers at localhost:1: cannot answer now") as caught:
        Server(HERE, 60).ask(failing(10**6, unavailable()))
    assert max(waits) == 5
    assert 50 < sum(waits) <= 60
    assert "Start it" in caught.value.way_out


def test_what_is_refused_is_not_asked_again(waits: list[float]) -> None:
    with pytest.raises(StoreError, match="milvus://localhost:1/photos: cannot answer now"):
        Server(HERE, 60).ask(failing(1, 1100))
    assert waits == []


def test_mistakes_of_our_own_are_shown_as_they_are(waits: list[float]) -> None:
    def wrong(_: object) -> None:
        raise KeyError("photos")

    with pytest.raises(KeyError):
        Server(HERE, 60).ask(wrong)


def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(StoreError, match="needs a package") as caught:
        milvus_server.client_package()
    assert caught.value.way_out == install_extra("scale")


@pytest.mark.parametrize("write", [False, True])
def test_a_store_cannot_be_opened_without_the_packages(monkeypatch: pytest.MonkeyPatch, write: bool) -> None:
    for name in ("pymilvus", "pymilvus.exceptions", "grpc"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(StoreError, match="Milvus needs a package") as caught:
        MilvusStore.open(HERE, Shape(4), write=write)
    assert caught.value.way_out == install_extra("scale")
