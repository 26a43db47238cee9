"""How much memory indexing a large folder takes, with the model in memory but most of its work left out.

    python -m benchmarks.memory --pictures 100000

Needs a bundle (the bundled one) and two gigabytes of disk. Encoding 100,000 photos takes hours on two cores, and takes
no more memory for the last than for the first. So every file is read, decoded and written down as always, while the
model encodes one batch in earnest and gives copies of that for the others. Each file is a little picture of its own.
"""

import argparse
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.provenance import provenance

SIDE = 96


class Repeating:
    """A bundle that encodes the first batch of pictures, and then repeats itself."""

    def __init__(self, bundle: Any) -> None:
        self._bundle = bundle
        self._first: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bundle, name)

    def with_threads(self, threads: int = 1) -> "Repeating":
        """Stay as it is."""
        return self

    prefer_gpu = with_threads

    def encode_images(self, pixels: Any) -> Any:
        """As a bundle does, in no time."""
        from sightline.bundle import Encoded

        if self._first is None or len(self._first.embedding) < len(pixels):
            self._first = self._bundle.encode_images(pixels)
        count, first = len(pixels), self._first
        return Encoded(
            first.embedding[:count].copy(), first.mask[:count], first.fragments[:count], first.states[:count]
        )


def write_pictures(folder: Path, count: int) -> None:
    """Little pictures, no two alike, a thousand in a folder."""
    rng = np.random.default_rng(0)
    for number in range(count):
        if number % 1000 == 0:
            (folder / f"{number // 1000:04}").mkdir()
        coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        into = io.BytesIO()
        Image.fromarray(coarse).resize((SIDE, SIDE)).save(into, "JPEG")
        (folder / f"{number // 1000:04}" / f"{number:06}.jpg").write_bytes(into.getvalue())


def indexed(folder: Path, model: str) -> dict[str, float]:
    """Index the folder; the most memory that the process ever had, and what it had with the model loaded alone."""
    import resource

    from sightline.bundle import Bundle
    from sightline.collection import index
    from sightline.media import blank
    from sightline.registry.loader import locate

    bundle = Bundle.open(locate(model))
    repeating = Repeating(bundle)
    repeating.encode_images(np.repeat(blank(bundle.preprocess), 8, axis=0))
    model_alone = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with tempfile.TemporaryDirectory() as at:
        report = index(folder, at=at, model=repeating)
        again = time.perf_counter()
        index(folder, at=at, model=repeating)
        again = time.perf_counter() - again
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "new": report.new,
        "seconds": report.seconds,
        "seconds_when_nothing_changed": again,
        "MB_with_the_model_loaded": model_alone,
        "MB_at_most": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=100_000)
    parser.add_argument("--model", default="default")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/memory.json"))
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.folder:
        print(json.dumps(indexed(arguments.folder, arguments.model)))
        return
    with tempfile.TemporaryDirectory() as name:
        write_pictures(Path(name), arguments.pictures)
        command = [sys.executable, "-m", "benchmarks.memory", "--folder", name, "--model", arguments.model]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    result = {"experiment": "memory", **provenance(0, []), "pictures": arguments.pictures, **found}
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"memory: {found['MB_at_most']:.0f} MB at most while {found['new']:,} pictures were indexed, "
        f"{found['MB_with_the_model_loaded']:.0f} MB of it with the model loaded alone"
    )


if __name__ == "__main__":
    main()
