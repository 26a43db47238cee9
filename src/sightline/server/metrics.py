"""Metrics of the server in Prometheus' text format."""

import os
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Histogram:
    """The number of values in each bucket, given the upper bounds of the buckets, and the sum of all values."""

    bounds: tuple[float, ...]
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Labels) -> Iterable[str]:
        """Yield the histogram in Prometheus format: counts up to each bound, the sum, and the total count."""
        below = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            yield f"{name}_bucket{_shown((*labels, ('le', bound)))} {below}"
        yield f"{name}_sum{_shown(labels)} {self.total}"
        yield f"{name}_count{_shown(labels)} {below}"


class Metrics:
    """The metrics of one server. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[Labels, int] = defaultdict(int)
        self._seconds: dict[Labels, Histogram] = defaultdict(lambda: Histogram(_SECONDS))
        self._stages: dict[str, float] = defaultdict(float)
        self._batches = Histogram(_SIZES)
        self._in_flight = 0

    def begin(self) -> None:
        """Count a request that arrived."""
        with self._lock:
            self._in_flight += 1

    def end(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered, or dropped (status 0). route: its pattern, not the requested path."""
        with self._lock:
            self._in_flight -= 1
            self._requests[("route", route), ("status", str(status))] += 1
            self._seconds[(("route", route),)].add(seconds)

    def search(self, took_ms: Mapping[str, float]) -> None:
        """Record how many milliseconds each stage of a search took."""
        with self._lock:
            for stage, spent in took_ms.items():
                self._stages[stage] += spent / 1000

    def batch(self, size: int) -> None:
        """Count a batch of texts encoded together."""
        with self._lock:
            self._batches.add(size)

    def text(self, items: int) -> str:
        """Return all metrics in Prometheus format. items: number of items in the collection."""
        with self._lock:
            lines = [
                *_head("sightline_requests_total", "counter", "Requests by route and status; 0: the client left."),
                *(f"sightline_requests_total{_shown(labels)} {n}" for labels, n in sorted(self._requests.items())),
                *_head("sightline_request_seconds", "histogram", "From request to response."),
            ]
            for labels, seconds in sorted(self._seconds.items(), key=lambda pair: pair[0]):
                lines += seconds.lines("sightline_request_seconds", labels)
            lines += _head("sightline_stage_seconds_total", "counter", "Time that searches spent in each stage.")
            for stage, spent in sorted(self._stages.items()):
                lines.append(f"sightline_stage_seconds_total{_shown((('stage', stage),))} {spent}")
            lines += _head("sightline_batch_size", "histogram", "Texts encoded at once.")
            lines += self._batches.lines("sightline_batch_size", ())
            gauges = {"sightline_requests_in_flight": self._in_flight, "sightline_items": items}
        memory = resident_bytes()
        if memory is not None:
            gauges["process_resident_memory_bytes"] = memory
        for name, value in gauges.items():
            lines += [*_head(name, "gauge", name.replace("_", " ")), f"{name} {value}"]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """Return the resident memory of this process; None if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _head(name: str, kind: str, says: str) -> list[str]:
    return [f"# HELP {name} {says}", f"# TYPE {name} {kind}"]


def _shown(labels: Labels) -> str:
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inner}}}" if inner else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
