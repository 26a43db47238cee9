"""Smaller measurements: what did not work, and what ranking costs."""

import json
from pathlib import Path

from benchmarks.pages.markdown import number, paragraph, sources, table
from replication.report.replica import Section
from replication.report.results import ResultFile, read_folder


def sections(results: Path, root: Path) -> list[Section]:
    """The probes and the cost of ranking, where they were measured."""
    made = []
    if probes := read_folder(results / "probes"):
        made.append(_probes(probes, root))
    cost = results / "evaluation.json"
    if cost.is_file():
        made.append(_cost(ResultFile(cost, json.loads(cost.read_text(encoding="utf-8"))), root))
    return made


def _probes(files: list[ResultFile], root: Path) -> Section:
    cells = []
    guessing = 0.0
    for file in files:
        embedded = next(row for row in file.content["rows"] if row["stages"] == ["embed"] and not row["distractors"])
        guessing = 2 * 100 * (1 + 5 + 10) / embedded["images"]
        cells.append([file.content["note"], number(embedded["text_to_image"]["R@1"]), number(embedded["rSum"])])
    words = paragraph(
        "The replica of paper 1 begins with `recipes/pretrain.toml`, which stands in for the multimodal pre-training "
        "of OSCAR. These runs did without: from a text encoder and an image encoder that had never met, the triplet "
        f"loss with the hardest negatives collapses. A model that guesses has an rSum of about {number(guessing)}."
    )
    shown = table(["run", "t2i R@1", "rSum"], cells)
    origin = sources(files, root)
    return Section("What did not work", "\n\n".join([words, shown, origin]))


def _cost(file: ResultFile, root: Path) -> Section:
    words = paragraph(
        "All ranks of 5,000 images and 25,000 captions in both directions, against the bare matrix product of the same "
        "embeddings, and the memory beyond the embeddings."
    )
    cells = [
        [str(row["dim"]), f"{row['cpu_seconds']:.2f}", f"{row['ratio']:.2f}", number(row["peak_mb"])]
        for row in file.content["rows"]
    ]
    shown = table(["dimension", "CPU seconds", "times the product", "MB"], cells)
    return Section("What ranking costs", "\n\n".join([words, shown, sources([file], root)]))
