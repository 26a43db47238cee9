"""The commit of the running code, for the provenance of models and measurements."""

import os
import subprocess
from pathlib import Path

_NO_CODE = (":(top,exclude)benchmarks/results", ":(top,exclude)docs", ":(top,exclude,glob)**/*.md")
_UNKNOWN = "unknown"


def commit_of(file: Path) -> str:
    """Return the commit of the checkout that a file of the code belongs to, or "unknown" if git does not track it.

    It ends in `-dirty` if tracked files differ from the commit, other than results and pages. An installed package may
    lie in the checkout of an unrelated project, whose commit says nothing about the package. The environment variable
    SIGHTLINE_COMMIT overrides all this, for copies of a checkout without its git history.
    """
    if "SIGHTLINE_COMMIT" in os.environ:
        return os.environ["SIGHTLINE_COMMIT"]
    if _git(file.parent, "ls-files", "--error-unmatch", "--", file.name) is None:
        return _UNKNOWN
    commit = _git(file.parent, "rev-parse", "--verify", "HEAD")
    if commit is None:
        return _UNKNOWN
    changed = _git(file.parent, "status", "--porcelain", "--untracked-files=no", "--", ":(top)", *_NO_CODE)
    return f"{commit}-dirty" if changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what a git command prints, or None if it fails or git is not installed."""
    command = ["git", "--no-optional-locks", *arguments]  # do not disturb another git command in the same checkout
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
