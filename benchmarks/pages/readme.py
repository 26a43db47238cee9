"""Write the generated parts of README.md: what the demo prints, and the plots of speed.

python -m benchmarks.pages.readme
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.markdown import replace_block
from benchmarks.pages.performance import PLOTS, read
from benchmarks.pages.plots import draw
from benchmarks.provenance import ROOT


def with_demo(page: str, output: str) -> str:
    """The page with the demo's output."""
    return replace_block(page, "demo", f"```\n$ sightline demo\n{output.rstrip()}\n```")


def with_plots(page: str, drawn: Mapping[str, str]) -> str:
    """The page with the plots; drawn: what each shows, by the name of its file."""
    folder = (Path("docs") / PLOTS).as_posix()
    return replace_block(
        page, "speed", "\n\n".join(f"{title}:\n\n![{title}]({folder}/{name})" for name, title in drawn.items())
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    parser.add_argument("--speed", action="store_true", help="leave the demo as it is")
    arguments = parser.parse_args()
    page = with_plots(arguments.page.read_text(encoding="utf-8"), draw(read(), ROOT / "docs" / PLOTS))
    if not arguments.speed:
        command = [sys.executable, "-m", "sightline", "demo"]
        page = with_demo(page, subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    arguments.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
