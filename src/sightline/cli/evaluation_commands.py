"""`sightline explain` and `eval`: what a model finds in one image, and how well it does on a data set."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.cli.console import (
    named_options,
    print_json,
    print_lines,
    print_table,
    tell_skipped,
    tell_unreadable,
)
from sightline.cli.options import MODELS, At, Imports, ModelName
from sightline.errors import SightlineError
from sightline.files import check_writable
from sightline.fusion_names import FusionRule

if TYPE_CHECKING:
    from sightline.evaluation import Evaluation, Languages, NamesEvaluation


def explain(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words to locate in the image.")],
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="An image file, or the id of an item in a collection.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw heat maps into a .png or .jpg file.")] = None,
    at: At = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help=f"{MODELS} By default the collection's model for an id, and default for a file."
        ),
    ] = None,
    lang: Annotated[
        str | None, typer.Option(metavar="CODE", help="Language of QUERY, such as de. Detected by default.")
    ] = None,
    codes: Annotated[
        bool, typer.Option("--codes", help="Show what each learned code attends to; --model must be a checkpoint.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write the numbers as JSON to stdout.")] = False,
) -> None:
    """Show which parts of IMAGE match each word of QUERY, by late interaction."""
    import sightline
    from sightline.cli.formatting import explanation_lines
    from sightline.explanations.explain import CodesExplained, Explanation
    from sightline.explanations.heatmap import check_suffix, draw
    from sightline.media import ImageFile

    if out is not None:
        check_suffix(out)
        check_writable(out)
    place = int(image) if image.isdecimal() and not Path(image).exists() else image
    found: Explanation | CodesExplained
    if codes:
        if lang is not None:
            raise SightlineError(
                "--lang cannot be combined with --codes", "Leave out --lang: a checkpoint reads any language alike."
            )
        found = sightline.explain_codes(query, place, at=at, model=model or "default")
    else:
        with named_options():
            found = sightline.explain(query, place, at=at, model=model, lang=lang)
    if out is not None:
        if isinstance(found.image, ImageFile) and out.exists() and out.samefile(found.image.path):
            raise SightlineError(f"{out}: this is the input image, which would be overwritten", "Choose another file.")
        draw(found).save(out)
    if as_json:
        print_json(found.to_json())
    elif out is None and isinstance(found, Explanation):
        print_lines(*explanation_lines(found))
    else:
        print_lines(f"{out}: {found}" if out else str(found))


def evaluate(
    model: ModelName,
    data: Annotated[list[str], typer.Argument(help="Captioned images: shards, JSONL, Karpathy, COCO, …")],
    names: Annotated[
        bool,
        typer.Option("--names", help="Zero-shot: how often an image's label ranks first among all labels."),
    ] = False,
    partner: Annotated[
        str | None, typer.Option("--with", metavar="MODEL", help="A second model: rank by the mean of both.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the captions, or several: en,de,fr.")] = "en",
    translate: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Command that translates captions from {lang}, one text per line."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="karpathy, coco-1k, coco-5k, or full: test images among the images of all splits.")
    ] = "karpathy",
    split: Annotated[str | None, typer.Option(help="Only this split. By default test, if there is one.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if the data has only names.")] = None,
    late: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by late interaction.")] = None,
    rerank: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by matching.")] = None,
    matcher: Annotated[
        str | None, typer.Option(metavar="MODEL", help="With --rerank: another model to match with.")
    ] = None,
    fusion: Annotated[
        FusionRule | None,
        typer.Option(help="How match and embed scores are combined. By default the model decides."),
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Weight of the embed score in the fusion.")] = None,
    distractors: Annotated[
        list[str] | None, typer.Option(help="More images for the gallery, captioned or not. May be repeated.")
    ] = None,
    skip_broken: Annotated[bool, typer.Option(help="Report broken records and continue.")] = False,
    skip_missing_language: Annotated[bool, typer.Option(help="Skip images without captions in LANG.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Items encoded at once. The default depends on the device.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap intervals.")] = 0,
    ranks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the rank of every query to a .csv, or to TREC files with .run."),
    ] = None,
    imports: Imports = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
) -> None:
    """Measure how well MODEL finds images by caption and captions by image in DATA.

    Embeddings alone are measured, unless --late or --rerank is given; a search uses the model's own stages.
    """
    import sightline
    from sightline.cli.progress import evaluating

    check_writable(json_file)
    asked: dict[str, Any] = {"lang": [one.strip() for one in lang.split(",")] if "," in lang else lang, "names": names}
    with named_options(), evaluating() as progress:
        found: Evaluation | Languages | NamesEvaluation = sightline.evaluate(
            model, data, split=split, images=images, protocol=protocol, late=late, rerank=rerank, fusion=fusion,
            weight=weight, distractors=distractors or (), skip_missing_language=skip_missing_language, seed=seed,
            batch_size=batch_size, progress=progress, on_problem=tell_skipped if skip_broken else None,
            translate=translate, partner=partner, matcher=matcher, ranks=ranks, imports=imports or (), **asked,
        )  # fmt: skip
    _report(found, json_file)


def _report(found: "Evaluation | Languages | NamesEvaluation", json_file: Path | None) -> None:
    """Print the result, and write it to a file if given."""
    from sightline.evaluation import table

    if json_file is not None:
        json_file.write_text(json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    tell_unreadable("Cannot be read", found.unreadable)
    print_table(table(found))
