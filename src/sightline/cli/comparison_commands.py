"""`sightline compare`: two models on the same queries."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.cli.console import named_options, print_table, tell_skipped, tell_unreadable
from sightline.cli.options import MODELS, Imports
from sightline.files import check_writable
from sightline.fusion_names import FusionRule


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help=MODELS)],
    b: Annotated[str, typer.Argument(metavar="B", help="The model to compare with it.")],
    data: Annotated[list[str], typer.Argument(help="Captioned images: shards, JSONL, Karpathy, COCO, …")],
    lang: Annotated[str, typer.Option(help="Language of the captions.")] = "en",
    protocol: Annotated[str, typer.Option(help="Same as for eval.")] = "karpathy",
    split: Annotated[str | None, typer.Option(help="Only this split. By default test, if there is one.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if the data has only names.")] = None,
    late: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by late interaction.")] = None,
    rerank: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by matching.")] = None,
    fusion: Annotated[
        FusionRule | None, typer.Option(help="How match and embed scores are combined. By default each model decides.")
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Weight of the embed score in the fusion.")] = None,
    skip_broken: Annotated[bool, typer.Option(help="Report broken records and continue.")] = False,
    skip_missing_language: Annotated[bool, typer.Option(help="Skip images without captions in LANG.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap intervals.")] = 0,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write the ranks of every query to this file.")] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a page that shows the queries won and lost, with images.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
    imports: Imports = None,
) -> None:
    """Compare models A and B on the queries of DATA: how much better B is, with intervals, and on which queries.

    Embeddings alone are compared, unless --late or --rerank is given; a search uses each model's own stages.
    """
    import sightline
    from sightline.cli.comparison_page import write_page
    from sightline.cli.progress import evaluating
    from sightline.datasets import read_test
    from sightline.evaluation.comparison import Comparison
    from sightline.plugins import import_modules

    import_modules(imports or ())
    for file in (csv_file, html_file, json_file):
        check_writable(file)
    records = read_test(data, split, protocol, images=images, on_problem=tell_skipped if skip_broken else None)
    options: dict[str, Any] = {
        "name": ", ".join(data), "lang": lang, "protocol": protocol, "late": late, "rerank": rerank, "fusion": fusion,
        "weight": weight, "seed": seed, "skip_missing_language": skip_missing_language, "top": 10,
    }  # fmt: skip
    with named_options(), evaluating() as progress:
        models = [sightline.load(model, prefer_gpu=True) for model in (a, b)]
        found = Comparison(*(sightline.evaluate(model, records, progress=progress, **options) for model in models))
    if csv_file is not None:
        found.write_csv(csv_file)
    if html_file is not None:
        write_page(found, records, html_file)
    if json_file is not None:
        json_file.write_text(json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    tell_unreadable("Cannot be read", found.a.unreadable)
    print_table(found.table())
