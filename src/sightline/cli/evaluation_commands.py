"""`sightline explain` and `eval`: what a model finds in one image, and how well it does on a data set."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.cli.console import (
    check_writable,
    named_options,
    print_json,
    print_lines,
    print_table,
    tell_skipped,
    tell_unreadable,
)
from sightline.errors import SightlineError
from sightline.fusion_rules import FusionRule

if TYPE_CHECKING:
    from sightline.bundle.model import Model
    from sightline.datasets import Record
    from sightline.evaluation import Evaluation, Languages, NamesEvaluation


def explain(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The words to look for.")],
    picture: Annotated[str, typer.Argument(metavar="PICTURE", help="A file, or the id of an item of a collection.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it into a .png or .jpg. By default it is shown in words.")
    ] = None,
    at: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With an id: the collection. By default the nearest .sightline.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="default, or a bundle's folder. For an id: the collection's.")
    ] = None,
    codes: Annotated[
        bool, typer.Option("--codes", help="Draw what each code attends to instead; --model must be a checkpoint.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write the numbers as JSON to stdout.")] = False,
) -> None:
    """Show where in PICTURE each word of QUERY is found, as late interaction sees it."""
    import sightline
    from sightline.cli.formatting import explanation_lines
    from sightline.media import ImageFile
    from sightline.retrieval.explain import CodesExplained, Explanation
    from sightline.retrieval.heatmap import check_suffix, draw

    if out is not None:
        check_suffix(out)
        check_writable(out)
    place = int(picture) if picture.isdecimal() and not Path(picture).exists() else picture
    found: Explanation | CodesExplained
    if codes:
        found = sightline.explain_codes(query, place, at=at, model=model or "default")
    else:
        found = sightline.explain(query, place, at=at, model=model)
    if out is not None:
        if isinstance(found.image, ImageFile) and out.exists() and out.samefile(found.image.path):
            raise SightlineError(f"{out}: is the picture itself, which would be lost", "Draw it into another file.")
        draw(found).save(out)
    if as_json:
        print_json(found.to_json())
    elif out is None and isinstance(found, Explanation):
        print_lines(*explanation_lines(found))
    else:
        print_lines(f"{out}: {found}" if out else str(found))


def evaluate(
    model: Annotated[str, typer.Argument(help="default, a bundle or checkpoint folder, or hf:NAME.")],
    data: Annotated[list[str], typer.Argument(help="Captioned images: shards, JSONL, Karpathy, COCO, …")],
    names: Annotated[
        bool,
        typer.Option("--names", help="Zero-shot: how often an image's label comes first among all labels."),
    ] = False,
    partner: Annotated[
        str | None, typer.Option("--with", metavar="MODEL", help="A second model: rank by the mean of both.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the captions; several as en,de,fr.")] = "en",
    translate: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Command that translates captions from {lang}, one text per line."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="karpathy, coco-1k, coco-5k, or full: test images among those of all splits.")
    ] = "karpathy",
    split: Annotated[str | None, typer.Option(help="Only this split. By default test, if there is one.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the images, if the data only names them.")] = None,
    late: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by late interaction.")] = None,
    rerank: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by matching.")] = None,
    matcher: Annotated[
        str | None, typer.Option(metavar="MODEL", help="With --rerank: another model to match with.")
    ] = None,
    fusion: Annotated[
        FusionRule | None,
        typer.Option(help="How match and embed scores combine. By default as the model says."),
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Weight of the embed score in the fusion.")] = None,
    distractors: Annotated[
        list[str] | None, typer.Option(help="More images for the gallery, captioned or not. May be repeated.")
    ] = None,
    skip_broken: Annotated[bool, typer.Option(help="Report broken records and continue.")] = False,
    skip_missing_language: Annotated[bool, typer.Option(help="Leave out images without captions in LANG.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Items encoded at once. By default as many as suit the device.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap intervals.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
) -> None:
    """Measure how well MODEL finds the images of captions and the captions of images in DATA."""
    import sightline
    from sightline.cli.progress import evaluating
    from sightline.datasets import read_all
    from sightline.evaluation import command_translator, evaluate_languages

    check_writable(json_file)
    on_problem = tell_skipped if skip_broken else None
    records = read_all(data, split=split, images=images, on_problem=on_problem)
    if split is None and protocol != "full" and any(record.split == "test" for record in records):
        records = [record for record in records if record.split == "test"]
    opened = sightline.load(model, prefer_gpu=True)
    if names:
        unused = {"--with": partner, "--translate": translate, "--late": late, "--matcher": matcher}
        for option, value in {**unused, "--distractors": distractors}.items():
            if value is not None:
                raise typer.BadParameter("Not with --names.", param_hint=option)
        _evaluate_names(
            opened, records, json_file, data=", ".join(data), rerank=rerank, fusion=fusion, weight=weight,
            batch_size=batch_size,
        )  # fmt: skip
        return
    options: dict[str, Any] = {
        "data": ", ".join(data),
        "protocol": protocol,
        "late": late,
        "rerank": rerank,
        "fusion": fusion,
        "weight": weight,
        "distractors": read_all(distractors, on_problem=on_problem) if distractors else (),
        "seed": seed,
        "batch_size": batch_size,
        "translate": command_translator(translate) if translate is not None else None,
        "partner": sightline.load(partner, prefer_gpu=True) if partner else None,
        "matcher": sightline.load(matcher, prefer_gpu=True) if matcher else None,
    }
    with named_options(), evaluating() as progress:
        if "," in lang:
            named = [one.strip() for one in lang.split(",")]
            found: Evaluation | Languages = evaluate_languages(opened, records, named, progress=progress, **options)
        else:
            options["skip_missing_language"] = skip_missing_language
            found = sightline.evaluate(opened, records, lang=lang, progress=progress, **options)
    _report(found, json_file)


def _evaluate_names(model: "Model", records: "list[Record]", json_file: Path | None, **options: Any) -> None:
    from sightline.cli.progress import evaluating
    from sightline.evaluation import evaluate_names

    with evaluating() as progress:
        found = evaluate_names(model, records, progress=progress, **options)
    _report(found, json_file)


def _report(found: "Evaluation | Languages | NamesEvaluation", json_file: Path | None) -> None:
    """Print the result, and write it to a file if given."""
    from sightline.evaluation import table

    if json_file is not None:
        json_file.write_text(json.dumps(found.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    tell_unreadable("Cannot be read", found.unreadable)
    print_table(table(found))
