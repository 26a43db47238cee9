"""The simulation of a fan-out agrees with what queueing theory says where theory has an answer."""

import numpy as np
import pytest

from benchmarks.fan_out import Cluster, latencies, summary


def test_a_single_machine_is_the_queue_of_the_textbooks() -> None:
    """Random arrivals and exponential service: the mean time is that of service, divided by the share of idle time."""
    service = np.random.default_rng(1).exponential(10.0, 100_000)
    for load in (0.3, 0.7):
        took = latencies(Cluster(1, load=load), service, queries=30_000)
        assert took.mean() == pytest.approx(10 / (1 - load), rel=0.08)


def test_without_waiting_a_query_takes_as_long_as_the_slowest_of_its_shards() -> None:
    service = np.arange(1.0, 1001.0)
    took = latencies(Cluster(100, load=1e-6), service, queries=4_000)
    expected = 1000 * 0.5 ** (1 / 100)  # the median of the largest of a hundred
    assert summary(took)["p50_ms"] == pytest.approx(expected, rel=0.005)


def test_more_shards_and_more_load_make_it_slower_and_copies_quicker() -> None:
    service = np.random.default_rng(2).gamma(9.0, 1.0, 2_000)

    def p99(**cluster: float) -> float:
        return summary(latencies(Cluster(**cluster), service, queries=3_000))["p99_ms"]  # type: ignore[arg-type]

    assert p99(shards=1) < p99(shards=10) < p99(shards=100)
    assert p99(shards=10, load=0.2) < p99(shards=10, load=0.5) < p99(shards=10, load=0.8)
    assert p99(shards=10, copies=2, load=0.7) < p99(shards=10, load=0.7)
