"""Write the generated parts of README.md: the output of the demo, and the speed plots.

python -m benchmarks.pages.readme
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.markdown import replace_block
from benchmarks.pages.performance import PLOTS, read
from benchmarks.pages.plots import draw
from benchmarks.provenance import ROOT


def with_demo(page: str, output: str) -> str:
    """The page with the demo's output inserted."""
    return replace_block(page, "demo", f"```\n$ sightline demo\n{output.rstrip()}\n```")


def with_plots(page: str, drawn: Mapping[str, str]) -> str:
    """The page with the plots inserted; drawn: descriptions of the plots, by file name."""
    folder = (Path("docs") / PLOTS).as_posix()
    return replace_block(
        page, "speed", "\n\n".join(f"{title}:\n\n![{title}]({folder}/{name})" for name, title in drawn.items())
    )


def main() -> None:
    page = with_plots((ROOT / "README.md").read_text(encoding="utf-8"), draw(read(), ROOT / "docs" / PLOTS))
    demo = subprocess.run([sys.executable, "-m", "sightline", "demo"], stdout=subprocess.PIPE, text=True, check=True)
    (ROOT / "README.md").write_text(with_demo(page, demo.stdout), encoding="utf-8")


if __name__ == "__main__":
    main()
