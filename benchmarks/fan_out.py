"""How long a query takes when many shards must answer: a simulation with measured service times."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Milliseconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Shards that all answer every query; a machine answers one query at a time.

    copies: machines that hold the same shard; a query goes to the one that is free soonest. load: the share of time
    that each machine is busy, on average.
    """

    shards: int
    copies: int = 1
    load: float = 0.5


def latencies(cluster: Cluster, service: Milliseconds, queries: int, seed: int = 0) -> Milliseconds:
    """Milliseconds from a query's arrival to its last answer, of each of so many queries [queries].

    Queries arrive at random (Poisson) at the rate that gives `cluster.load`. Service times are drawn from `service`
    for each shard and query. The first tenth of the queries, which finds idle machines, is left out.
    """
    rng = np.random.default_rng(seed)
    warm_up = queries // 9
    between = service.mean() / (cluster.load * cluster.copies)
    arrivals = np.cumsum(rng.exponential(between, queries + warm_up))
    free = np.zeros((cluster.shards, cluster.copies))
    every = np.arange(cluster.shards)
    took = np.empty(len(arrivals))
    for number, arrival in enumerate(arrivals):
        chosen = free.argmin(axis=1)
        ends = np.maximum(free[every, chosen], arrival) + service[rng.integers(0, len(service), cluster.shards)]
        free[every, chosen] = ends
        took[number] = ends.max() - arrival
    return took[warm_up:]


def summary(took: Milliseconds) -> dict[str, float]:
    """The median and the tail."""
    p50, p95, p99 = (float(value) for value in np.percentile(took, (50, 95, 99)))
    return {"p50_ms": round(p50, 2), "p95_ms": round(p95, 2), "p99_ms": round(p99, 2)}
