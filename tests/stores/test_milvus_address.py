"""A URL names a store of Milvus, and says what is wrong with it when it does not."""

import pytest

from sightline.errors import StoreError
from sightline.stores.milvus_address import INDEXES, Address, parse_address


def test_a_url_says_where_a_store_is_and_how_it_is_kept() -> None:
    url = "milvus://vectors.example.org:1234/photos?index=diskann&consistency=Strong&partition=month"
    address = parse_address(url)
    assert address == Address("vectors.example.org", 1234, "photos", "diskann", "Strong", "month")
    assert str(address) == url


def test_what_is_left_out_is_as_usual() -> None:
    address = parse_address("milvus://localhost/photos")
    assert address == Address("localhost", 19530, "photos", "auto", "Bounded", None)
    assert parse_address(str(address)) == address
    assert str(parse_address("milvus://[::1]:5/a")) == "milvus://[::1]:5/a"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("milvus://localhost", "has no store name"),
        ("milvus:///photos", "has no host"),
        ("milvus:/localhost/photos", "has no host"),
        ("http://localhost/photos", "not the URL of a Milvus store"),
        ("milvus://localhost/my photos", "invalid store name: 'my photos'"),
        ("milvus://localhost/a/b", "invalid store name: 'a/b'"),
        ("milvus://localhost:many/photos", "cannot be read"),
        ("milvus://localhost/photos?index", "cannot be read"),
        ("milvus://localhost/photos?index=best", "index cannot be 'best'"),
        ("milvus://localhost/photos?colour=red", "unknown option 'colour'"),
        ("milvus://me:secret@localhost/photos", "password"),
    ],
)
def test_what_names_no_store_is_refused_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as caught:
        parse_address(url)
    assert caught.value.way_out
    assert "secret" not in str(caught.value)


def test_a_product_quantiser_cuts_vectors_evenly() -> None:
    assert INDEXES["ivf-pq"].building(512)["m"] == 64
    assert INDEXES["ivf-pq"].building(12)["m"] == 4
    assert INDEXES["hnsw"].building(12) == {"M": 32, "efConstruction": 256}


def test_an_index_looks_harder_for_more_results() -> None:
    assert INDEXES["flat"].search(10) == {}
    assert INDEXES["hnsw"].search(10) == {"ef": 256}
    assert INDEXES["hnsw"].search(1000) == {"ef": 2000}
    assert INDEXES["diskann"].search(16_384) == {"search_list": 16_384}
