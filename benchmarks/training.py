"""How many steps a second training takes, and how much memory, with a batch encoded at once and in chunks.

    python -m benchmarks.training           a small model, on the processor
    python -m benchmarks.training --gpu     one of the bundled model's shape, on a GPU (writes training-gpu.json)

A step is what the trainer does with a batch: encode texts and pictures, take the contrastive loss of all pairs, send
its gradients back, move the weights. Encoding in chunks (`optimizer.chunk`) gives the same gradients: every chunk
but the last is encoded once without a graph for the loss, and once more for the gradients. Arithmetic says what that
costs: a step is a way there and a way back that takes twice as long, so a second way there makes 4 of 3, of all chunks
but one: about three quarters of the steps.
Pictures and texts are random numbers. On the processor each way has a process of its own, in turns, and memory is what
the steps add to the most that the process ever had; on a GPU, the most that torch had allotted.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.timing import options, write


@dataclass(frozen=True, slots=True)
class Case:
    """A model's shape, and how much of it is trained on at once."""

    name: str
    vision: dict[str, int]
    text: dict[str, int]
    batch: int
    chunk: int
    words: int = 16


SMALL = Case(
    "small",
    {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
    | {"image_size": 112, "patch_size": 16, "projection_dim": 64},
    {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4},
    batch=1024,
    chunk=64,
)
BUNDLED = Case(
    "the bundled model's shape",
    {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
    | {"image_size": 224, "patch_size": 16, "projection_dim": 512},
    {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 12},
    batch=1024,
    chunk=128,
)
WAYS = {"at once": False, "in chunks": True}


def run(case: Case, chunked: bool, steps: int, device: str) -> dict[str, float]:
    """Seconds of a step, the median, and the megabytes that steps take beyond the model and the batch."""
    import torch

    from sightline.losses import Contrastive
    from sightline.training.gradients import Side, backward

    torch.manual_seed(0)
    model, objective = _model(case).to(device).train(), Contrastive().to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *objective.parameters()], lr=1e-4)
    texts, images = _batch(case, model, device)
    ids = torch.arange(case.batch, device=device)
    before, seconds = _memory(device), []
    for number in range(steps + 1):
        began = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            backward(
                model,
                {"embed": (objective, 1.0)},
                Side(texts, ids),
                Side(images, ids),
                seed=number,
                chunk=case.chunk if chunked else 0,
            )
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return {"seconds": median(seconds[1:]), "MB": _memory(device) - before}


def _model(case: Case) -> Any:
    from sightline.media import Preprocess
    from sightline.models import DualStreamConfig, TextInput, TowerConfig
    from sightline.models.checkpoint import build

    half = (0.5, 0.5, 0.5)
    return build(
        DualStreamConfig(
            image=TowerConfig(config={"model_type": "clip_vision_model", **case.vision}),
            text=TowerConfig(config={"model_type": "bert", **case.text}),
            preprocess=Preprocess(size=case.vision["image_size"], resize="squash", mean=half, std=half),
            text_input=TextInput(case.words),
            embedding_dim=case.vision["projection_dim"],
            matcher="none",
        )
    )


def _batch(case: Case, model: Any, device: str) -> tuple[Any, Any]:
    """How to encode some rows of a batch of texts, and of pictures."""
    import torch

    from sightline.models.retriever import Tokens

    size = case.vision["image_size"]
    ids = torch.randint(1000, 20000, (case.batch, case.words), device=device)
    mask, pixels = torch.ones_like(ids, dtype=torch.bool), torch.randn(case.batch, 3, size, size, device=device)
    return (
        lambda rows: model.encode_texts(Tokens(ids[rows], mask[rows])),
        lambda rows: model.encode_images(pixels[rows]),
    )


def _memory(device: str) -> float:
    """The most megabytes so far."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated() / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def on_gpu(steps: int) -> dict[str, list[dict[str, float]]]:
    """Both ways on a GPU, one after the other; a way that does not fit is left out."""
    import torch

    found: dict[str, list[dict[str, float]]] = {}
    for name, chunked in WAYS.items():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        try:
            found[name] = [run(BUNDLED, chunked, steps, "cuda")]
        except torch.cuda.OutOfMemoryError:
            print(f"a batch of {BUNDLED.batch} {name} does not fit", file=sys.stderr)
    return found


def in_processes(case: Case, steps: int, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Both ways on the processor, each time in a process of its own."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for name in WAYS if number % 2 else reversed(WAYS):
            command = [
                sys.executable,
                "-m",
                "benchmarks.training",
                "--way",
                name,
                "--steps",
                str(steps),
                "--batch",
                str(case.batch),
            ]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
    return found


def summary(case: Case, found: dict[str, list[dict[str, float]]]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Rows, and what they come to: what chunks cost in steps a second, and gain in memory."""
    rows = []
    for name in WAYS:
        row: dict[str, Any] = {"model": case.name, "batch": case.batch, "encoded": name}
        if WAYS[name]:
            row["chunk"] = case.chunk
        if runs := found.get(name):
            rows.append(row | {of: median(run[of] for run in runs) for of in ("seconds", "MB")})
            rows[-1]["steps_per_second"] = 1 / rows[-1]["seconds"]
        else:
            rows.append(row | {"note": "does not fit into memory"})
    whole, chunked = rows
    if "note" in whole:
        return rows, {}
    return rows, {
        "steps a second in chunks, times at once": chunked["steps_per_second"] / whole["steps_per_second"],
        "memory of steps at once, times in chunks": whole["MB"] / chunked["MB"],
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--rounds", type=int, help="on the processor")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    batch = arguments.batch or (256 if arguments.quick else SMALL.batch)
    rounds = arguments.rounds or (1 if arguments.quick else 3)
    small = dataclasses.replace(SMALL, batch=batch)
    if arguments.way:
        print(json.dumps(run(small, WAYS[arguments.way], arguments.steps, "cpu")))
        return
    if arguments.gpu:
        rows, ratios = summary(BUNDLED, on_gpu(arguments.steps or 20))
    else:
        rows, ratios = summary(small, in_processes(small, arguments.steps or 3, rounds))
    write("training-gpu" if arguments.gpu else "training", arguments, ["made up"], rows, ratios)


if __name__ == "__main__":
    main()
