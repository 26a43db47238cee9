"""Write pages in docs/ and the generated parts of other pages, from benchmarks/results.

python -m benchmarks.pages
python -m benchmarks.pages --readme     also runs the demo for README.md
"""

import subprocess
import sys

from benchmarks.pages import blocks, bundled_model, performance, plots, relevance, scale
from benchmarks.provenance import RESULTS, ROOT, read_result


def main() -> None:
    docs, results = ROOT / "docs", performance.read()
    drawn = plots.draw(results, docs / performance.PLOTS)
    (docs / "performance.md").write_text(performance.page(results, drawn), encoding="utf-8")
    (docs / "scale.md").write_text(scale.page(), encoding="utf-8")
    (docs / "bundled-model.md").write_text(bundled_model.page(), encoding="utf-8")
    plots.save(lambda: relevance.plot(read_result(RESULTS / "relevance.json")), docs / relevance.PLOT)
    for name in blocks.BLOCKS:
        text = (docs / name).read_text(encoding="utf-8")
        (docs / name).write_text(blocks.page(name, text), encoding="utf-8")
    demo = [sys.executable, "-m", "sightline", "demo"]
    said = subprocess.check_output(demo, text=True) if "--readme" in sys.argv else None
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (ROOT / "README.md").write_text(blocks.readme(text, drawn, said), encoding="utf-8")


if __name__ == "__main__":
    main()
