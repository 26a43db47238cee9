"""How quickly a folder is indexed: against one thread, and against a plain loop of transformers and torch.

    python benchmarks/indexing.py --photos 64

Needs SIGHTLINE_DATA for the photos and a bundle (the bundled one). The loop runs an image tower of the same shape as
the bundled model's in float32, with pixels made by Pillow, in batches of eight: what a user would write instead.
Each way runs in a process of its own, one after the other, twice; the better time counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import provenance

TOWER = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
    "projection_dim": 512,
}


def plain_loop(folder: Path) -> float:
    """Encode every photo with torch in float32; seconds, without loading the library and the tower."""
    import numpy as np
    import torch
    from PIL import Image
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    tower = CLIPVisionModelWithProjection(CLIPVisionConfig(**TOWER)).eval()
    paths = sorted(folder.glob("*.jpg"))
    mean = np.array([0.481, 0.458, 0.408], dtype=np.float32)
    std = np.array([0.269, 0.261, 0.276], dtype=np.float32)
    started = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(paths), 8):
            pictures = [
                Image.open(path).convert("RGB").resize((224, 224), Image.Resampling.BICUBIC)
                for path in paths[start : start + 8]
            ]
            pixels = (np.stack([np.asarray(picture, dtype=np.float32) for picture in pictures]) / 255 - mean) / std
            tower(pixel_values=torch.from_numpy(pixels).permute(0, 3, 1, 2)).image_embeds.numpy()
    return time.perf_counter() - started


def indexed(folder: Path, model: str) -> dict[str, float]:
    """Index the folder into a new collection; seconds of work, and the most memory the process ever had."""
    import resource

    from sightline.collection import index

    with tempfile.TemporaryDirectory() as at:
        report = index(folder, at=at, model=model)
    return {"seconds": report.seconds, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def write_photos(folder: Path, count: int) -> None:
    from sightline.datasets import read_all
    from sightline.media import open_image

    for number, record in enumerate(read_all([os.environ["SIGHTLINE_DATA"] + "/flickr8k-test.tar"])[:count]):
        open_image(record.image).save(folder / f"{number:04}.jpg", quality=90)


def in_a_process(what: str, folder: Path, model: str, cores: int) -> dict[str, float]:
    """Run one way in a process of its own, on so many cores."""
    command = [sys.executable, __file__, "--way", what, "--folder", str(folder), "--model", model]
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    environment = {**os.environ, "OMP_NUM_THREADS": str(cores)}
    found = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=lambda: os.sched_setaffinity(0, chosen),
    )
    result: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=64)
    parser.add_argument("--model", default="default")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/indexing.json"))
    parser.add_argument("--way", choices=["loop", "index"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        loop = arguments.way == "loop"
        found = {"seconds": plain_loop(arguments.folder)} if loop else indexed(arguments.folder, arguments.model)
        print(json.dumps(found))
        return
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photos(folder, arguments.photos)
        ways: dict[str, Any] = {}
        for _ in range(2):
            for label, what, threads in (("loop", "loop", cores), ("one core", "index", 1), ("index", "index", cores)):
                found = in_a_process(what, folder, arguments.model, threads)
                if label not in ways or found["seconds"] < ways[label]["seconds"]:
                    ways[label] = found
    for found in ways.values():
        found["photos_per_second"] = arguments.photos / found["seconds"]
    rate = ways["index"]["photos_per_second"]
    result = {
        "experiment": "indexing",
        **provenance(0, ["flickr8k-test"]),
        "photos": arguments.photos,
        "cores": cores,
        "ways": ways,
        "times_one_core": rate / ways["one core"]["photos_per_second"],
        "times_plain_loop": rate / ways["loop"]["photos_per_second"],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"indexing: {rate:.2f} photos a second, {result['times_one_core']:.2f} x one core, "
        f"{result['times_plain_loop']:.2f} x a plain torch loop, {ways['index']['MB']:.0f} MB"
    )


if __name__ == "__main__":
    main()
