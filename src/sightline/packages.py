"""Commands that install missing packages."""

import shlex
import shutil
import sys
from pathlib import Path


def pip() -> str:
    """Return the command to run pip with for the Python that runs Sightline.

    If Sightline is in a virtual environment, the shell's own pip may belong to another Python.
    """
    found = shutil.which("pip")
    is_own = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip" if is_own else f"{shlex.quote(sys.executable)} -m pip"


def install_command(package: str) -> str:
    """Return the command that installs a package.

    >>> install_command("tensorboard").endswith("pip install tensorboard")
    True
    """
    return f"{pip()} install {shlex.quote(package)}"


def install_extra(name: str) -> str:
    """Return the command that installs an extra of Sightline, such as `heic`."""
    return install_command(f"sightline-search[{name}]")
