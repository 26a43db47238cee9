"""A real Milvus server, started and killed by tests.

It is in an environment of its own, which `make milvus` installs in `.milvus`, or where SIGHTLINE_MILVUS says: Milvus
2.3.5 where there is a build for the machine (Linux on x86-64, macOS), and otherwise the server of Milvus Lite 2.5.1.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from uuid import uuid4

from scale.servers import is_open, kept_port
from sightline.stores.milvus_schema import parts_name

HOME = Path(os.environ.get("SIGHTLINE_MILVUS", Path(__file__).parents[2] / ".milvus"))
PATIENCE = 180
_MAIN = """
import contextlib, milvus, socket

def bind(self, port):
    with contextlib.suppress(OSError):
        return socket.create_server(("127.0.0.1", port))

milvus.MilvusServerConfig.try_bind_port = bind  # it would take another port soon after the server was killed
milvus.main()
"""
_START = '"$@" >>log 2>&1 </dev/null & echo $$'  # so that it outlives the process that starts it


class MilvusServer:
    """A server with its data in a folder, at a port of this machine that it keeps."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = kept_port(folder)
        self._named: list[str] = []

    @staticmethod
    def missing() -> str:
        """Why there can be no server here; nothing where there can."""
        return "" if _site("milvus") or _site("milvus_lite") else f"no Milvus server in {HOME}: make milvus"

    @property
    def kind(self) -> str:
        return "Milvus 2.3.5" if _site("milvus") else "Milvus Lite 2.5.1"

    def url(self, name: str = "", options: str = "index=flat") -> str:
        """The URL of a store, by default a new one."""
        self._named.append(name or f"store_{uuid4().hex}")
        return f"milvus://127.0.0.1:{self.port}/{self._named[-1]}?{options}"

    def drop_stores(self) -> None:
        """Delete all stores that `url` has named: each keeps the server busy, even if nobody uses it."""
        from pymilvus import MilvusClient

        client = MilvusClient(f"http://127.0.0.1:{self.port}", timeout=5, dedicated=True)
        for name in set(self._named):
            for own in (name, parts_name(name)):
                if client.has_collection(own, timeout=5):
                    client.drop_collection(own, timeout=5)
        client.close()
        self._named.clear()

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        command, environment = self._command()
        started = subprocess.run(
            ["sh", "-c", _START, "sh", *command],
            cwd=self.folder, env=environment, start_new_session=True, check=True, capture_output=True, text=True,
        )  # fmt: skip
        (self.folder / "group").write_text(started.stdout)
        self._wait()

    def kill(self) -> None:
        """End it at once, with all its processes, as a power cut would."""
        os.killpg(int((self.folder / "group").read_text()), signal.SIGKILL)
        while is_open(self.port):
            time.sleep(0.01)

    def remove(self) -> None:
        """Do nothing: all of its data is in its folder."""

    def _command(self) -> tuple[list[str], dict[str, str]]:
        if _site("milvus"):
            options = ["--data", str(self.folder), "--proxy-port", str(self.port)]
            return [str(HOME / "bin" / "python"), "-c", _MAIN, *options], {**os.environ, **self._settings()}
        lite = _site("milvus_lite")
        assert lite
        command = [str(lite / "lib" / "milvus"), str(self.folder / "milvus.db"), f"127.0.0.1:{self.port}", "ERROR"]
        return command, {**os.environ, "LD_LIBRARY_PATH": str(lite / "lib")}

    def _settings(self) -> dict[str, str]:
        """Settings of the server, whose etcd would otherwise always listen at the same two ports."""
        client, peer = (f"http://localhost:{kept_port(self.folder, name)}" for name in ("etcd-port", "etcd-peer-port"))
        own = {
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
        }
        (self.folder / "etcd.yaml").write_text(json.dumps(own))
        return {
            "ETCD_ENDPOINTS": client.removeprefix("http://"),
            "ETCD_CONFIG_PATH": str(self.folder / "etcd.yaml"),
            "PROXY_TIMETICKINTERVAL": "50",  # ms until a write can be searched; usually 200
        }

    def _wait(self) -> None:
        from pymilvus import MilvusClient

        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                client = MilvusClient(f"http://127.0.0.1:{self.port}", timeout=5, dedicated=True)
                client.list_collections(timeout=5)
                client.close()
                return
            except Exception:  # whatever it is, it is not ready
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)


def _site(package: str) -> Path | None:
    return next(iter(HOME.glob(f"lib/python3*/site-packages/{package}")), None)
