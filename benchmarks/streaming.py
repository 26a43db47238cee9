"""Measure the memory of training on streamed data: an epoch over synthetic shards of each size, in its own process.

    python -m benchmarks.streaming

Images have 16 x 16 pixels and the model is tiny, so that nearly all memory is used by the data and by torch itself.
"""

import argparse
import io
import json
import random
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.provenance import RESULTS, provenance, write_result

SIZES = (10_000, 100_000, 1_000_000)
PER_SHARD, BATCH, BUFFER = 10_000, 1_000, 10_000
WORDS = "red green blue dog cat bird boat house tree road small large old new two three in on near under".split()  # noqa: SIM905
RECIPE = Path(__file__).with_suffix(".toml")


def write_shard(path: Path, number: int) -> None:
    """Write a WebDataset shard of small images of one colour, with captions of a few words."""
    chance = random.Random(number)
    images = [_image(tuple(chance.choices(range(256), k=3))) for _ in range(100)]
    with path.open("wb") as tar:
        for row in range(PER_SHARD):
            for suffix, data in (
                ("bmp", chance.choice(images)),
                ("txt", " ".join(chance.choices(WORDS, k=6)).encode()),
            ):
                member = tarfile.TarInfo(f"{number:03}{row:05}.{suffix}")
                member.size = len(data)
                tar.write(member.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE))
        tar.write(bytes(2 * tarfile.BLOCKSIZE))


def _image(colour: tuple[int, ...]) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (16, 16), colour).save(written, "BMP")
    return written.getvalue()


def measure(shards: Path, records: int) -> dict[str, Any]:
    """Train for one epoch over the first shards in this process, and measure its memory."""
    import sightline

    started = time.monotonic()
    changes = {
        "data.train": [f"{shards}/{{000..{records // PER_SHARD - 1:03}}}.tar"],
        "data.batch_size": BATCH,
        "data.shuffle_buffer": BUFFER,
        "schedule.steps": records // BATCH,
    }
    trained = sightline.train(RECIPE, shards / f"run-{records}", changes=changes)
    return {
        "records": records,
        "steps": trained.steps,
        "seconds": round(time.monotonic() - started, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    """Write the shards, measure every size in its own process, and save the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--shards", type=Path, help="A folder for the shards, which are written if they are missing.")
    asked = parser.parse_args()
    if asked.records:
        print(json.dumps(measure(asked.shards, asked.records)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        shards = asked.shards or Path(temporary)
        for number in range(SIZES[-1] // PER_SHARD):
            if not (shards / f"{number:03}.tar").exists():
                write_shard(shards / f"{number:03}.tar", number)
        rows = []
        for records in SIZES:
            child = [sys.executable, "-m", "benchmarks.streaming", "--records", str(records), "--shards", str(shards)]
            rows.append(json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout))
            print(rows[-1], flush=True)
    found = {"batch_size": BATCH, "shuffle_buffer": BUFFER, "image_size": 16, "runs": rows}
    write_result(RESULTS / "streaming.json", {**provenance(0, ["made up"]), **found})


if __name__ == "__main__":
    main()
