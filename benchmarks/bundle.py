"""Make the bundled model from a checkpoint: export and calibrate on val, evaluate on test, and write the results down.

    python -m benchmarks.bundle runs/default/best --card recipes/default.card.json --out bundles/default

Needs SIGHTLINE_DATA. The results go into the bundle's `sightline.json` and, with the paired gains of reranking, into
benchmarks/results/default/.
"""

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path

from benchmarks.provenance import RESULTS, provenance, write_result
from sightline.bundle import Bundle
from sightline.bundle.spec import read_spec, write_spec
from sightline.datasets import read_all
from sightline.evaluation import evaluate
from sightline.models import checkpoint
from sightline.onnx_export.exporter import export
from sightline.onnx_export.static_ranges import pictures_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--card", type=Path, help="JSON with the provenance: recipe, data, initial weights, licences")
    parser.add_argument("--out", type=Path, default=Path("bundles/default"))
    parser.add_argument("--as-is", action="store_true", help="measure the bundle in --out as it is")
    arguments = parser.parse_args()
    data = os.environ["SIGHTLINE_DATA"]
    if not arguments.as_is:
        retriever, tokenizer = checkpoint.load(arguments.checkpoint)
        card = json.loads(arguments.card.read_text(encoding="utf-8")) if arguments.card else {}
        held_out = read_all([f"{data}/flickr8k-val.tar"])
        made = export(
            retriever,
            tokenizer,
            arguments.out,
            name="default",
            precision="int8",
            pictures=pictures_of(held_out, retriever.preprocess),
            provenance=card,
            held_out=held_out,
        )
        print("calibration", made.relevance, flush=True)
    bundle = Bundle.open(arguments.out)
    records = read_all([f"{data}/flickr8k-test.tar"])
    started = time.perf_counter()
    embed = evaluate(bundle, records, data="flickr8k-test")
    print("embed", embed.text_to_image, embed.image_to_text, round(time.perf_counter() - started), "s", flush=True)
    rerank = evaluate(bundle, records, data="flickr8k-test", rerank=20, batch_size=20)
    print("rerank", rerank.text_to_image, rerank.image_to_text, round(time.perf_counter() - started), "s", flush=True)
    results = [embed.to_json(), rerank.to_json()]
    write_spec(arguments.out, dataclasses.replace(read_spec(arguments.out), results=tuple(results)))
    gained = {
        way: {name: dataclasses.asdict(gain) for name, gain in recalls.items()}
        for way, recalls in embed.gain_of(rerank).items()
    }
    print("gain of reranking", gained, flush=True)
    whole = {"experiment": "bundle", **provenance(0, ["flickr8k-val", "flickr8k-test"]), "rows": results}
    write_result(RESULTS / "default" / "flickr8k-test.json", {**whole, "gain_of_reranking": gained})


if __name__ == "__main__":
    main()
