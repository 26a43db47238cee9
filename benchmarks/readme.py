"""Run the demo and write what it prints into README.md, between the marks that say where.

python benchmarks/readme.py
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BETWEEN = re.compile(r"(<!-- demo -->\n).*(<!-- /demo -->)", re.DOTALL)


def filled(page: str, shown: str) -> str:
    """The page, with what the demo showed as its block; an error where the page has no place for it."""
    block = f"```\n$ sightline demo\n{shown.rstrip()}\n```\n"
    made, places = BETWEEN.subn(lambda marks: marks[1] + block + marks[2], page)
    if places != 1:
        raise SystemExit("README.md needs one <!-- demo --> … <!-- /demo -->")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, default=ROOT / "README.md")
    arguments = parser.parse_args()
    done = subprocess.run([sys.executable, "-m", "sightline", "demo"], stdout=subprocess.PIPE, text=True, check=True)
    page = arguments.page.read_text(encoding="utf-8")
    arguments.page.write_text(filled(page, done.stdout), encoding="utf-8")


if __name__ == "__main__":
    main()
