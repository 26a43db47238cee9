"""Ways to encode photos and texts, each as it is usually used, with all processors.

    python -m benchmarks.encoders TASK

is the process that `encoding.py` starts for each way, with the task as JSON: for every line that it reads, it encodes
everything once, and prints the seconds and the most memory that it ever had. So several ways can be loaded at the same
time and measured in turns, and still each has its own memory.
"""

import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sightline.bundle import Bundle
from sightline.media import ImageFile, ImageInput, to_input
from sightline.parallel import usable_cpus

Kind = Literal["images", "texts"]
Engine = Literal["sightline", "openvino", "sentence-transformers", "transformers"]
Singles = npt.NDArray[np.float32]
Way = Callable[[], Singles]

IMAGE_TOWER = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
    "projection_dim": 512,
}
"""The shape of the bundled model's image tower, and of CLIP ViT-B/16's."""
TEXT_TOWER = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12}
"""The shape of the bundled model's text tower, and of MiniLM's."""
AT_ONCE: dict[Kind, int] = {"images": 4, "texts": 32}
"""How many items Sightline encodes at a time, as indexing does."""
OF_PEERS: dict[Kind, int] = {"images": 8, "texts": 32}


@dataclass(frozen=True, slots=True)
class Task:
    """What a way encodes, and with what.

    items: a folder of photos, or a file with a text on each line. bundle: whose graphs and tokenizer are used.
    shape: of a peer's tower, whose weights are random. precision: in which OpenVINO computes. out: a file for the
    embeddings.
    """

    engine: Engine
    kind: Kind
    items: str
    bundle: str
    shape: dict[str, Any]
    precision: str = "f32"
    out: str = ""


def ready(task: Task) -> Way:
    """Load what a task needs; each call then encodes all of its items, and gives embeddings [items, dim]."""
    return _WAYS[task.engine, task.kind](task)


def photos(task: Task) -> list[Path]:
    """The photos of a task."""
    return sorted(Path(task.items).glob("*.jpg"))


def texts(task: Task) -> list[str]:
    """The texts of a task."""
    return Path(task.items).read_text(encoding="utf-8").splitlines()


def _sightline_images(task: Task) -> Way:
    bundle = Bundle.open(task.bundle, threads=1)
    return _on_all_processors(task, bundle.preprocess, lambda pixels: bundle.encode_images(pixels).embedding)


def _openvino_images(task: Task) -> Way:
    """The image graph of a bundle under OpenVINO, with a stream and a request for each processor."""
    import openvino

    count, own = usable_cpus(), threading.local()
    how = {"NUM_STREAMS": count, "INFERENCE_NUM_THREADS": count, "INFERENCE_PRECISION_HINT": task.precision}
    compiled = openvino.Core().compile_model(str(Path(task.bundle) / "image.onnx"), "CPU", how)

    def encode(pixels: Singles) -> Singles:
        if not hasattr(own, "request"):
            own.request = compiled.create_infer_request()
        found: Singles = own.request.infer({"pixels": pixels})["embedding"].copy()
        return found

    return _on_all_processors(task, Bundle.open(task.bundle).preprocess, encode)


def _on_all_processors(task: Task, wanted: ImageInput, encode: Callable[[Singles], Singles]) -> Way:
    """Let every processor read, decode and encode batches of its own."""

    def some(paths: Sequence[Path]) -> Singles:
        return encode(np.stack([to_input(ImageFile(path), wanted) for path in paths]))

    def way() -> Singles:
        with ThreadPoolExecutor(usable_cpus()) as pool:
            return np.concatenate(list(pool.map(some, _batches(photos(task), AT_ONCE["images"]))))

    return way


def _sightline_texts(task: Task) -> Way:
    bundle = Bundle.open(task.bundle, threads=1)

    def way() -> Singles:
        with ThreadPoolExecutor(usable_cpus()) as pool:
            found = pool.map(bundle.encode_texts, _batches(texts(task), AT_ONCE["texts"]))
            return np.concatenate([encoded.embedding for encoded in found])

    return way


def _peer_images(task: Task) -> Way:
    """A sentence-transformers model made of the tower and its processor."""
    from PIL import Image
    from transformers import CLIPImageProcessor

    side = task.shape["image_size"]
    processor = CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    model = _sentence_transformer(_image_tower(task), processor)

    def way() -> Singles:
        pictures = [Image.open(path) for path in photos(task)]
        found: Singles = model.encode(pictures, batch_size=OF_PEERS["images"], show_progress_bar=False)
        return found

    return way


def _peer_texts(task: Task) -> Way:
    model = _sentence_transformer(_text_tower(task), _words(task))

    def way() -> Singles:
        found: Singles = model.encode(texts(task), batch_size=OF_PEERS["texts"], show_progress_bar=False)
        return found

    return way


def _loop_images(task: Task) -> Way:
    """What one would write: pixels by Pillow, and the tower under torch."""
    import torch
    from PIL import Image

    tower, side = _image_tower(task), task.shape["image_size"]
    mean, std = np.array([0.481, 0.458, 0.408], np.float32), np.array([0.269, 0.261, 0.276], np.float32)

    @torch.inference_mode()
    def some(paths: Sequence[Path]) -> Singles:
        pictures = [Image.open(path).convert("RGB").resize((side, side), Image.Resampling.BICUBIC) for path in paths]
        pixels = (np.stack([np.asarray(picture, dtype=np.float32) for picture in pictures]) / 255 - mean) / std
        found: Singles = tower(pixel_values=torch.from_numpy(pixels).permute(0, 3, 1, 2)).pooler_output.numpy()
        return found

    return lambda: np.concatenate([some(paths) for paths in _batches(photos(task), OF_PEERS["images"])])


def _loop_texts(task: Task) -> Way:
    """What one would write: tokens with padding, the tower under torch, and the mean over real words."""
    import torch

    tower, tokenizer = _text_tower(task), _words(task)

    @torch.inference_mode()
    def some(lines: Sequence[str]) -> Singles:
        tokens = tokenizer(list(lines), padding=True, truncation=True, return_tensors="pt")
        mask = tokens["attention_mask"][:, :, None]
        states = tower(**tokens).last_hidden_state
        found: Singles = ((states * mask).sum(1) / mask.sum(1)).numpy()
        return found

    return lambda: np.concatenate([some(lines) for lines in _batches(texts(task), OF_PEERS["texts"])])


_WAYS: dict[tuple[Engine, Kind], Callable[[Task], Way]] = {
    ("sightline", "images"): _sightline_images,
    ("openvino", "images"): _openvino_images,
    ("sentence-transformers", "images"): _peer_images,
    ("transformers", "images"): _loop_images,
    ("sightline", "texts"): _sightline_texts,
    ("sentence-transformers", "texts"): _peer_texts,
    ("transformers", "texts"): _loop_texts,
}


def _image_tower(task: Task) -> Any:
    from transformers import CLIPVisionConfig, CLIPVisionModel

    return CLIPVisionModel(CLIPVisionConfig(**task.shape)).eval()


def _text_tower(task: Task) -> Any:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(vocab_size=len(_words(task)), **task.shape)).eval()


def _words(task: Task) -> Any:
    """The bundle's own tokenizer, as transformers wants it."""
    from transformers import PreTrainedTokenizerFast

    text = Bundle.open(task.bundle).spec.text
    marks = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    file = str(Path(task.bundle) / text.tokenizer)
    return PreTrainedTokenizerFast(tokenizer_file=file, model_max_length=text.max_length, **marks)


def _sentence_transformer(tower: Any, processor: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    with tempfile.TemporaryDirectory() as folder:
        tower.save_pretrained(folder)
        processor.save_pretrained(folder)
        return SentenceTransformer(folder, device="cpu")


def _batches(items: Sequence[Any], count: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + count] for start in range(0, len(items), count))


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    way = ready(task)
    for _ in sys.stdin:
        began = time.perf_counter()
        found = way()
        took = time.perf_counter() - began
        np.save(task.out, found)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": took, "MB": most}), flush=True)


if __name__ == "__main__":
    main()
