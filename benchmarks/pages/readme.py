"""Write what is measured into README.md, between the marks that say where: what the demo prints, and how fast it is.

    python -m benchmarks.pages.readme

With --speed it draws the plots of speed alone, and leaves the demo as it is.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.pages.performance import DOCS, PLOTS, RESULTS, read
from benchmarks.pages.speed_plots import draw

ROOT = Path(__file__).resolve().parents[2]
BETWEEN = re.compile(r"(<!-- demo -->\n).*(<!-- /demo -->)", re.DOTALL)
SPEED = re.compile(r"(<!-- speed -->\n).*(<!-- /speed -->)", re.DOTALL)


def filled(page: str, shown: str) -> str:
    """The page, with what the demo showed as its block; an error where the page has no place for it."""
    return _between(BETWEEN, "demo", page, f"```\n$ sightline demo\n{shown.rstrip()}\n```\n")


def with_plots(page: str, drawn: Mapping[str, str]) -> str:
    """The page, with the plots; drawn: what each shows, by the name of its file. An error where it has no place."""
    folder = (Path("docs") / PLOTS).as_posix()
    shown = "\n\n".join(f"{title}:\n\n![{title}]({folder}/{name})" for name, title in drawn.items())
    return _between(SPEED, "speed", page, f"{shown or 'Not measured yet.'}\n")


def _between(marks: re.Pattern[str], name: str, page: str, block: str) -> str:
    made, places = marks.subn(lambda found: found[1] + block + found[2], page)
    if places != 1:
        raise SystemExit(f"README.md needs one <!-- {name} --> … <!-- /{name} -->")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    parser.add_argument("--speed", action="store_true", help="leave the demo as it is")
    arguments = parser.parse_args()
    page = with_plots(arguments.page.read_text(encoding="utf-8"), draw(read(RESULTS), DOCS / PLOTS))
    if not arguments.speed:
        command = [sys.executable, "-m", "sightline", "demo"]
        page = filled(page, subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    arguments.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
