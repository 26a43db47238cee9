"""Write docs/results.md and its plots from the result files: every number in them was measured, none was typed.

    python -m replication.results_page

reads benchmarks/results and bundles/default, and replaces docs/results.md and docs/plots. What was not measured yet is
left out with a line that says so.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.pages.markdown import paragraph
from replication.report import asides, bundled, cascades, inflated, plots, pretrained, related, replica
from replication.report.estimates import CONFIRMED, NOT_CONFIRMED, UNDECIDED
from replication.report.replica import Section
from replication.report.results import Replica, read_folder

ROOT = Path(__file__).resolve().parents[1]

READING = (
    "Recalls are per cent: R@k is how often the right item is among the first k, from text to image (t2i) and from "
    "image to text (i2t, where any caption of the image counts); rSum is the sum of all six. ± is the standard "
    "deviation over seeds."
)
VERDICTS = (
    "A verdict is computed from an interval. Where both sides were run with several seeds, it is the 95 % interval "
    "(Student's t) of their difference over seeds; with one seed it is the bootstrap interval of the difference, which "
    "resamples the test images, where the same queries were put to both sides, and else reaches from worst to worst "
    f"between the bootstrap intervals of the two. *{CONFIRMED}*: all of it is on the side of the "
    f"claim. *{NOT_CONFIRMED}*: all of it is on the other side. *{UNDECIDED}*: neither, which is no evidence that "
    "there is no difference."
)


def page(root: Path, results: Path, bundle: Path, out: Path) -> str:
    """Make the page, and draw its plots into `out/plots`."""
    runs = Replica(read_folder(results / "paper1"))
    hrem, beside, shrunken, tower = (
        read_folder(results / name) for name in ("paper2", related.BESIDE, "paper3", "paper3-tower")
    )
    drawn = plots.draw(runs, hrem, beside, shrunken, read_folder(results / "candidates"), out / "plots")
    paper, own = replica.sections(runs, root, drawn), bundled.sections(results, bundle, root, drawn)
    paper2 = related.sections(hrem, beside, results / "paper2", root, drawn)
    paper3 = inflated.sections(shrunken, tower, results / "late-gpu.json", root, drawn)
    paper4 = pretrained.sections(read_folder(results / "paper4"), root)
    parts = [
        "# Results",
        "<!-- Written by replication/results_page.py (make results) from benchmarks/results. Do not edit. -->",
        paragraph(READING),
        paragraph(VERDICTS),
        "## Paper 1, retrieve fast and rerank smart, at our scale",
        _tally(paper, "Geigle et al. 2022, https://arxiv.org/abs/2103.11920."),
        *_shown(paper),
        "## Paper 2, relations among instances (HREM), at our scale",
        _tally(paper2, "Fu et al. 2023, https://github.com/CrossmodalGroup/HREM."),
        *_shown(paper2),
        "## Paper 3, inflate and shrink, at our scale",
        _tally(paper3, "Liu et al. 2021, https://aclanthology.org/2021.emnlp-main.772."),
        *_shown(paper3),
        "## Paper 4, LightningDOT, at our scale",
        _tally(paper4, "Sun et al. 2021, https://arxiv.org/abs/2103.08784."),
        *_shown(paper4),
        "## The bundled model",
        *_shown([*own, cascades.section(results / "cascade.json", root)]),
        *(f"## {section.title}\n\n{section.text}" for section in asides.sections(results, root)),
    ]
    return "\n\n".join(parts) + "\n"


def _shown(sections: Sequence[Section]) -> list[str]:
    return [f"### {section.title}\n\n{section.text}" for section in sections]


def _tally(sections: Sequence[Section], source: str) -> str:
    """How many of a paper's findings were confirmed, and which were not; `source` is where to read it."""
    counts = Counter(finding.verdict for section in sections for finding in section.findings)
    judged = sum(counts[verdict] for verdict in (CONFIRMED, NOT_CONFIRMED, UNDECIDED))
    if not judged:
        return f"{source} None of its findings was measured yet."
    return paragraph(
        f"{source} Of its findings, {judged} were measured: "
        f"{counts[CONFIRMED]} confirmed, {counts[NOT_CONFIRMED]} not confirmed, {counts[UNDECIDED]} undecided."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder to write into")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = page(ROOT, ROOT / "benchmarks" / "results", ROOT / "bundles" / "default", arguments.out)
    (arguments.out / "results.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
