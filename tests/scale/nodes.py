"""Three nodes of a Ray cluster on this machine, one of which can be killed while it works."""

import os
import signal
from pathlib import Path
from typing import Any

NODES = 3
_NODE = {"num_cpus": 1, "object_store_memory": 100 << 20}


class Nodes:
    """A cluster: `fill` starts what is missing, `kill_a_busy_one` takes one away without a word."""

    def __init__(self) -> None:
        import ray
        from ray.cluster_utils import Cluster

        self._cluster: Any = Cluster(
            initialize_head=True,
            head_node_args={**_NODE, "include_dashboard": False},
        )
        self._others: list[Any] = []
        self.fill()
        ray.init(address=self._cluster.address, log_to_driver=False)

    def fill(self) -> None:
        """Start nodes until there are three."""
        while len(self._others) < NODES - 1:
            self._others.append(self._cluster.add_node(**_NODE))

    def kill_a_busy_one(self) -> bool:
        """Kill a node that encodes a block right now, with all its processes; False where there is none."""
        for node in self._others:
            raylet = node.all_processes["raylet"][0].process.pid
            workers = [process for process in _children(raylet) if b"ray::" in _command(process)]
            if any(b"ray::encode_block" in _command(process) for process in workers):
                self._others.remove(node)
                self._cluster.remove_node(node, allow_graceful=False)
                for process in workers:
                    _kill(process)
                return True
        return False

    def end(self) -> None:
        """End everything."""
        import ray

        ray.shutdown()
        self._cluster.shutdown()


def _children(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(status[1]) == parent:
            found.append(int(folder.name))
    return found


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
