"""Measure a PostgreSQL store: recall of HNSW against exact search, and milliseconds per query, also with a filter.

    PGPASSWORD=… python -m benchmarks.postgres postgresql://USER@HOST:PORT/DATABASE --sizes 10000 50000

Vectors are drawn around the embeddings of photos; queries are the embeddings of their captions. See photo_vectors.py.
With --made-up, random vectors replace those embeddings. The schemas `sightline_bench_SIZE` are created, and deleted at
the end.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.photo_vectors import Ids, Real, Vectors, around, real, recall, unit
from benchmarks.provenance import RESULTS, provenance, write_result
from sightline.bundle.encoded import Encoded
from sightline.stores import postgres_schema
from sightline.stores.base import Note, Shape
from sightline.stores.filters import Test
from sightline.stores.postgres import PostgresStore
from sightline.stores.postgres_address import parse_postgres_address
from sightline.stores.postgres_driver import driver

TOP, SEED, ONE_IN = 20, 0, 100
AT_ONCE, DIM = 2_000, 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of a database: postgresql://USER@HOST:PORT/DATABASE")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--photos", type=int, default=400)
    parser.add_argument("--made-up", action="store_true", help="around random vectors rather than photos")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--embeddings", type=Path, default=Path("embeddings.npz"), help="kept between runs")
    parser.add_argument("--out", type=Path, default=RESULTS / "postgres.json")
    asked = parser.parse_args()
    found = made_up() if asked.made_up else real(asked.embeddings, "default", asked.photos)
    queries = found.captions[np.random.default_rng(SEED).permutation(len(found.captions))[: asked.queries]]
    rows = [measured(asked.url, size, found, queries) for size in asked.sizes]
    server = driver().connect(asked.url)
    versions = server.execute(
        "SELECT current_setting('server_version'), (SELECT extversion FROM pg_extension WHERE extname = 'vector')"
    ).fetchone()
    server.close()
    result = {"postgresql": versions[0], "pgvector": versions[1], "queries": len(queries), "dim": queries.shape[1]}
    result |= {"stores": rows, **provenance(SEED, ["made up" if asked.made_up else f"{asked.photos} photos"])}
    write_result(asked.out, result)


def made_up() -> Real:
    """Random vectors in 50 groups, in place of the embeddings of photos, and queries near some of them."""
    rng = np.random.default_rng(SEED)
    groups = rng.standard_normal((50, DIM), dtype=np.float32)
    images = unit(groups[rng.integers(0, 50, 1_000)] + rng.standard_normal((1_000, DIM), dtype=np.float32))
    return Real(images, unit(images[:500] + 0.05 * rng.standard_normal((500, DIM), dtype=np.float32)))


def measured(url: str, size: int, found: Real, queries: Vectors) -> dict[str, Any]:
    """Fill a store of this size, search it without an index, build the index, and search it again."""
    address = parse_postgres_address(f"{url.rstrip('/')}/sightline_bench_{size}")
    shape = Shape(queries.shape[1])
    store = PostgresStore.open(address, shape, write=True, columns={"group": "number"})
    begun = time.perf_counter()
    fill(store, found, size)
    filled = time.perf_counter()
    store.compact()
    exact, exact_ms = searched(store, queries)
    few, few_ms = searched(one_in_many(store), queries)
    postgres_schema.INDEX_FROM = 0
    indexing = time.perf_counter()
    store.close()
    indexed = time.perf_counter()
    store = PostgresStore.open(address, shape, write=True, columns={"group": "number"})
    near, near_ms = searched(store, queries)
    near_few, near_few_ms = searched(one_in_many(store), queries)
    store.close()
    with driver().connect(url, autocommit=True) as server:
        server.execute(f'DROP SCHEMA "{address.name}" CASCADE')
    row = {
        "vectors": size,
        "fill_seconds": round(filled - begun, 1),
        "index_seconds": round(indexed - indexing, 1),
        "exact_ms": exact_ms,
        "hnsw_ms": near_ms,
        "recall@10": round(recall(near[:, :10], exact[:, :10]), 4),
        "recall@20": round(recall(near, exact), 4),
        "filter": f"1 in {ONE_IN}",
        "filtered_exact_ms": few_ms,
        "filtered_hnsw_ms": near_few_ms,
        "filtered_recall@20": round(recall(near_few, few), 4),
    }
    print(row, flush=True)
    return row


def fill(store: PostgresStore, found: Real, size: int) -> None:
    start = 0
    for block in around(found, size, SEED):
        for first in range(0, len(block), AT_ONCE):
            some = block[first : first + AT_ONCE]
            ids = np.arange(start, start + len(some))
            notes = [Note("", {"group": float(id % ONE_IN)}, {}) for id in ids.tolist()]
            store.add(ids, Encoded(some, np.zeros((len(some), 0), dtype=np.bool_)), notes)
            start += len(some)


def one_in_many(store: PostgresStore) -> PostgresStore:
    return store.where(Test("group", "number", "=", (7,)))


def searched(store: PostgresStore, queries: Vectors) -> tuple[Ids, float]:
    """Run all queries one after another; returns the ids of their results, and the median time in milliseconds."""
    store.search(queries[:3], TOP)
    results, seconds = [], []
    for query in queries:
        begun = time.perf_counter()
        results.append(store.search(query[None], TOP).ids)
        seconds.append(time.perf_counter() - begun)
    return np.concatenate(results), round(1000 * float(np.median(seconds)), 2)


if __name__ == "__main__":
    main()
