"""Encode photos or texts with Sightline or an alternative, each in its usual way, with all cores.

    python -m benchmarks.encoders TASK

`encoding.py` starts this process for each task: for every line on stdin, it encodes everything once, and prints the
seconds taken and its peak memory. This way, several tasks can be loaded at once and timed in turns, each with its own
memory.
"""

import json
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.timing import seconds_of
from sightline.bundle import Bundle
from sightline.media import ImageFile, to_input
from sightline.parallel import usable_cpus

Kind = Literal["images", "texts"]
Engine = Literal["sightline", "sentence-transformers", "transformers"]
Vectors = npt.NDArray[np.float32]
Run = Callable[[], Vectors]

TEXT_TOWER = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12}
"""The shape of the bundled model's text tower, which is that of MiniLM."""
IMAGE_TOWER = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
IMAGE_TOWER |= {"image_size": 224, "patch_size": 16, "projection_dim": 512}
"""The shape of the bundled model's image tower, which is that of CLIP ViT-B/16."""
BATCH: dict[Kind, int] = {"images": 4, "texts": 32}  # Sightline's batch sizes, as in indexing
PEER_BATCH: dict[Kind, int] = {"images": 8, "texts": 32}


@dataclass(frozen=True, slots=True)
class Task:
    """What to encode, and with which engine.

    items: a folder of photos, or a file with one text per line. bundle: the model; the alternatives use only its
    tokenizer. shape: the shape of an alternative's tower, which has random weights.
    """

    engine: Engine
    kind: Kind
    items: str
    bundle: str
    shape: dict[str, Any]

    def batches(self, count: int) -> list[Any]:
        """Yield paths of photos, or texts, `count` at a time."""
        path = Path(self.items)
        items: list[Any] = sorted(path.glob("*.jpg")) if self.kind == "images" else path.read_text().splitlines()
        return [items[start : start + count] for start in range(0, len(items), count)]

    def tokenizer(self) -> Any:
        """The bundle's tokenizer as a transformers tokenizer."""
        from transformers import PreTrainedTokenizerFast

        text = Bundle.open(self.bundle).spec.text
        marks = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
        file = str(Path(self.bundle) / text.tokenizer)
        return PreTrainedTokenizerFast(tokenizer_file=file, model_max_length=text.max_length, **marks)

    def tower(self) -> Any:
        """A transformers tower with random weights."""
        from transformers import BertConfig, BertModel, CLIPVisionConfig, CLIPVisionModel

        if self.kind == "images":
            return CLIPVisionModel(CLIPVisionConfig(**self.shape)).eval()
        return BertModel(BertConfig(vocab_size=len(self.tokenizer()), **self.shape)).eval()


def ready(task: Task) -> Run:
    """Load what a task needs, and return a function that encodes all items to embeddings [items, dim]."""
    return {"sightline": _sightline, "sentence-transformers": _peer, "transformers": _loop}[task.engine](task)


def _sightline(task: Task) -> Run:
    """One graph for all threads; each thread reads, decodes and encodes its own batches."""
    bundle = Bundle.open(task.bundle, threads=1)

    def images(paths: Sequence[Path]) -> Vectors:
        pixels = np.stack([to_input(ImageFile(path), bundle.preprocess) for path in paths])
        return bundle.encode_images(pixels).embedding

    def texts(lines: Sequence[str]) -> Vectors:
        return bundle.encode_texts(lines).embedding

    def run() -> Vectors:
        encode: Callable[[Any], Vectors] = images if task.kind == "images" else texts
        with ThreadPoolExecutor(usable_cpus()) as pool:
            return np.concatenate(list(pool.map(encode, task.batches(BATCH[task.kind]))))

    return run


def _peer(task: Task) -> Run:
    """A sentence-transformers model that wraps the tower."""
    from PIL import Image
    from sentence_transformers import SentenceTransformer
    from transformers import CLIPImageProcessor

    with tempfile.TemporaryDirectory() as folder:
        task.tower().save_pretrained(folder)
        if task.kind == "images":
            side = task.shape["image_size"]
            crop = {"height": side, "width": side}
            CLIPImageProcessor(size={"shortest_edge": side}, crop_size=crop).save_pretrained(folder)
        else:
            task.tokenizer().save_pretrained(folder)
        model = SentenceTransformer(folder, device="cpu")

    def run() -> Vectors:
        (items,) = task.batches(10**9)
        items = [Image.open(path) for path in items] if task.kind == "images" else items
        found: Vectors = model.encode(items, batch_size=PEER_BATCH[task.kind], show_progress_bar=False)
        return found

    return run


def _loop(task: Task) -> Run:
    """A plain loop: pixels from Pillow or padded tokens, the tower in torch, and the mean over real words."""
    import torch
    from PIL import Image

    tower, tokenizer = task.tower(), task.tokenizer()
    mean, std = np.array([0.481, 0.458, 0.408], np.float32), np.array([0.269, 0.261, 0.276], np.float32)

    def images(paths: Sequence[Path]) -> Any:
        size = (task.shape["image_size"],) * 2
        photos = [Image.open(path).convert("RGB").resize(size, Image.Resampling.BICUBIC) for path in paths]
        pixels = (np.stack([np.asarray(photo, dtype=np.float32) for photo in photos]) / 255 - mean) / std
        return tower(pixel_values=torch.from_numpy(pixels).permute(0, 3, 1, 2)).pooler_output

    def texts(lines: Sequence[str]) -> Any:
        tokens = tokenizer(list(lines), padding=True, truncation=True, return_tensors="pt")
        mask = tokens["attention_mask"][:, :, None]
        return (tower(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)

    @torch.inference_mode()
    def run() -> Vectors:
        encode: Callable[[Any], Any] = images if task.kind == "images" else texts
        return np.concatenate([encode(some).numpy() for some in task.batches(PEER_BATCH[task.kind])])

    return run


def main() -> None:
    run = ready(Task(**json.loads(sys.argv[1])))
    for _ in sys.stdin:
        took = seconds_of(run)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": took, "MB": most}), flush=True)


if __name__ == "__main__":
    main()
