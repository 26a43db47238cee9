"""Measure training speed (steps per second) and memory, with each batch encoded at once or in chunks.

    python -m benchmarks.training           a small model, on the CPU
    python -m benchmarks.training --gpu     one of the bundled model's shape, on a GPU (writes training-gpu.json)

A step is what the trainer does with a batch: encode texts and images, compute the contrastive loss of all pairs,
backpropagate, update. Chunks (`optimizer.chunk`) give the same gradients at the cost of a second forward pass over all
chunks but the last, so about three quarters of the steps per second are expected. Inputs are random. Both take turns
in separate processes. Memory is what the steps add to the peak of the process or, on a GPU, of torch's allocations.
"""

import argparse
import json
import resource
import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.baseline import IMAGE_TOWER, TEXT_TOWER
from benchmarks.timing import in_a_process, options, save


@dataclass(frozen=True, slots=True)
class Case:
    """A model's shape, and its batch sizes."""

    name: str
    vision: dict[str, int]
    text: dict[str, int]
    chunk: int
    steps: int
    batch: int = 1024
    words: int = 16


_SMALL = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4}
_SMALL_IMAGES = {"num_hidden_layers": 4, "image_size": 112, "patch_size": 16, "projection_dim": 64}
CASES = {
    "cpu": Case("small", _SMALL | _SMALL_IMAGES, _SMALL | {"num_hidden_layers": 2}, chunk=64, steps=3),
    "cuda": Case("the bundled model's shape", IMAGE_TOWER, TEXT_TOWER, chunk=128, steps=20),
}
WAYS = {"at once": False, "in chunks": True}


def run(case: Case, chunked: bool, device: str) -> dict[str, float]:
    """Measure the median seconds per step, and the megabytes that steps use beyond the model and the batch."""
    import torch

    from sightline.losses import Contrastive
    from sightline.models.retriever import Tokens
    from sightline.training.gradients import Side, backward

    torch.manual_seed(0)
    model, loss = _model(case).to(device).train(), Contrastive().to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *loss.parameters()], lr=1e-4)
    size, batch = case.vision["image_size"], case.batch
    rows = torch.arange(batch, device=device)
    ids = torch.randint(1000, 20000, (batch, case.words), device=device)
    mask, pixels = torch.ones_like(ids, dtype=torch.bool), torch.randn(batch, 3, size, size, device=device)
    texts = Side(lambda some: model.encode_texts(Tokens(ids[some], mask[some])), rows)
    images = Side(lambda some: model.encode_images(pixels[some]), rows)

    def peak_mb() -> float:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else own

    before, seconds = peak_mb(), []
    for number in range(case.steps + 1):
        began = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            chunk = case.chunk if chunked else 0
            backward(model, {"embed": (loss, 1.0)}, texts, images, seed=number, chunk=chunk)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return {"seconds": median(seconds[1:]), "MB": peak_mb() - before}


def _model(case: Case) -> Any:
    from sightline.media import Preprocess
    from sightline.models import DualStreamConfig, TextInput, TowerConfig
    from sightline.models.checkpoint import build

    image, text = ({"model_type": "clip_vision_model", **case.vision}, {"model_type": "bert", **case.text})
    pixels = Preprocess(size=case.vision["image_size"], resize="squash", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    towers = {"image": TowerConfig(config=image), "text": TowerConfig(config=text), "preprocess": pixels}
    more = {"text_input": TextInput(case.words), "embedding_dim": case.vision["projection_dim"], "matcher": "none"}
    return build(DualStreamConfig(**towers, **more))  # type: ignore[arg-type]


def in_processes(flags: list[str], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Run with and without chunks, each in its own process; flags: the options to pass on."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for name in WAYS if number % 2 else reversed(WAYS):
            found[name].append(in_a_process("benchmarks.training", "--way", name, *flags))
    return found


def summary(case: Case, found: dict[str, list[dict[str, float]]]) -> tuple[list[Any], dict[str, float]]:
    """Return the result rows, and how much chunks change steps per second and memory."""
    rows = []
    for name in WAYS:
        row: dict[str, Any] = {"model": case.name, "batch": case.batch, "encoded": name}
        row |= {"chunk": case.chunk} if WAYS[name] else {}
        row |= {of: median(one[of] for one in found[name]) for of in ("seconds", "MB")}
        rows.append(row | {"steps_per_second": 1 / row["seconds"]})
    whole, chunked = rows
    return rows, {
        "steps a second in chunks, times at once": chunked["steps_per_second"] / whole["steps_per_second"],
        "memory of steps at once, times in chunks": whole["MB"] / chunked["MB"],
    }


def main() -> None:
    parser = options(__doc__, model=False)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    device = "cuda" if arguments.gpu else "cpu"
    case = replace(CASES[device], batch=256) if arguments.quick else CASES[device]
    if arguments.way:
        print(json.dumps(run(case, WAYS[arguments.way], device)))
        return
    flags = [flag for flag in ("--gpu", "--quick") if vars(arguments)[flag.removeprefix("--")]]
    rows, ratios = summary(case, in_processes(flags, 1 if flags else 3))
    save("training-gpu" if arguments.gpu else "training", arguments, ["random"], rows, ratios)


if __name__ == "__main__":
    main()
