"""One model with graphs of several precisions: bundles made of a checkpoint, and how well each finds.

Everything is kept in a folder of the user's choice and made only once, for each takes minutes.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.bundle import Bundle
from sightline.datasets import Record
from sightline.evaluation import evaluate

FLOAT32, BLOCKS, FIXED = "float32", "int8 in blocks", "int8 with fixed ranges"


def bundles(checkpoint: Path, work: Path, held_out: Sequence[Record]) -> dict[str, Path]:
    """Folders of bundles of a checkpoint by their precision; held_out: whose pictures say which ranges to fix."""
    folders = {name: work / name.replace(" ", "-") for name in (FLOAT32, BLOCKS, FIXED)}
    missing = [name for name, folder in folders.items() if not folder.is_dir()]
    if missing:
        from sightline.models import checkpoint as checkpoints
        from sightline.onnx_export.exporter import export
        from sightline.onnx_export.static_ranges import pictures_of

        retriever, tokenizer = checkpoints.load(checkpoint)
        for name in missing:
            how: dict[str, Any] = {} if name == FLOAT32 else {"precision": "int8"}
            if name == FIXED:
                how["pictures"] = pictures_of(held_out, retriever.preprocess)
            export(retriever, tokenizer, folders[name], name=name, **how)
    return folders


def recalled(folder: Path, work: Path, records: Sequence[Record]) -> dict[str, Any]:
    """The recalls of a bundle's embeddings on a test set, unless they are known already."""
    bundle = Bundle.open(folder)
    path = work / f"recall-{bundle.sha256[:16]}.json"
    if not path.is_file():
        found = evaluate(bundle, records).to_json()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({key: found[key] for key in ("text_to_image", "image_to_text", "rSum")}))
    known: dict[str, Any] = json.loads(path.read_text())
    return known
