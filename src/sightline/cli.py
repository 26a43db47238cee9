"""The `sightline` command: each of its commands reads arguments, calls one verb and shows what came of it."""

import json
import shlex
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sightline import __version__
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from rich.table import Table

    from sightline.datasets import Problem, Record
    from sightline.doctor import Finding
    from sightline.models.detector import Detector
    from sightline.training.trainer import Trained

app = typer.Typer(
    help="Find images by words and words by images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command; an error that Sightline foresaw is shown as a message, not as a traceback."""
    warnings.filterwarnings("ignore", module="PIL")  # about odd metadata in pictures that open all the same
    try:
        app()
    except SightlineError as error:
        print(f"sightline: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("sightline: interrupted", file=sys.stderr)
        sys.exit(130)


def _version(asked: bool) -> None:
    if asked:
        print(f"sightline {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find images by words and words by images."""


@app.command()
def index(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER",
            help="Folders of pictures, shards (.tar), lists of URLs (.urls), region stores; or texts (.txt, .jsonl).",
        ),
    ] = None,
    at: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the collection is kept. By default FOLDER/.sightline.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="default, a bundle or checkpoint folder, or hf:NAME.")
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Forget what is gone, also where a whole folder is.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Read files again that could not be read before.")] = False,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where vectors are kept, if not in DIR: milvus://HOST:PORT/NAME."),
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="ray|ray://HOST:PORT", help="Encode on a Ray cluster, not in this process.")
    ] = None,
) -> None:
    """Index pictures or texts, to be searched. What has not changed since the last time is not read again."""
    import sightline
    from sightline.collection.finding import model_to_index_with
    from sightline.collection.places import default_place, kind_of
    from sightline.collection.report import IndexingInterrupted
    from sightline.progress import indexing
    from sightline.showing import report_lines

    places = [folder.resolve() for folder in folders or []]
    at = at or default_place(places, kind_of(places) if places else "images")
    chosen = model_to_index_with(at, model)
    try:
        with indexing() as progress:
            report = sightline.index(
                places,
                at=at,
                model=chosen,
                progress=progress,
                told=_tell,
                prune=prune,
                retry=retry,
                workers=workers,
                store=store,
            )
    except IndexingInterrupted as interrupted:
        _tell(f"sightline: interrupted; {interrupted.report}\nWhat is done is kept. To go on, type the same again.")
        raise typer.Exit(130) from None
    for line in report_lines(report):
        print(line)


@app.command()
def search(
    words: Annotated[list[str] | None, typer.Argument(metavar="QUERY", help="What to look for, in words.")] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", help="The collection: its folder or store. By default the nearest .sightline."),
    ] = None,
    image: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A picture to look for, alone or with words.")
    ] = None,
    image_weight: Annotated[
        float, typer.Option(metavar="W", help="With words and a picture: how much the picture counts, 0 to 1.")
    ] = 0.5,
    without: Annotated[
        list[str] | None, typer.Option("--not", metavar="TEXT", help="What results should not show. May be repeated.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="EXPR", help="A filter: \"taken >= '2023-06-01' and path like 'holiday/%'\".")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many results.")] = 10,
    rerank: Annotated[
        int | None,
        typer.Option(min=0, metavar="K", help="Look closely at the K best; 0 is fastest. By default as fits a model."),
    ] = None,
    late: Annotated[
        str | None, typer.Option(metavar="K|all", help="Rescore the K best by late interaction, or rank all by it.")
    ] = None,
    late_fragments: Annotated[
        int | None, typer.Option(min=1, metavar="L", help="Only the first L fragments take part in late interaction.")
    ] = None,
    min_relevance: Annotated[
        float | None, typer.Option(metavar="P", help="Leave out what is less likely than this to be it, 0 to 1.")
    ] = None,
    budget_ms: Annotated[
        float | None, typer.Option(metavar="N", help="Look as closely as can be done in N milliseconds.")
    ] = None,
    duplicates: Annotated[
        Literal["fold", "show"], typer.Option(help="Pictures that look the same: as one, or all.")
    ] = "fold",
    model: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="The model that made the collection, if it was moved.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    paths: Annotated[
        bool, typer.Option("--paths", help="Write the paths alone, a line each, for other commands.")
    ] = False,
    null: Annotated[
        bool, typer.Option("--null", "-0", help="With --paths: end each with a zero byte, for xargs -0.")
    ] = False,
    thumbnails: Annotated[bool, typer.Option(help="Show small pictures, where the terminal can.")] = True,
) -> None:
    """Find what fits QUERY best. Finding nothing is an answer too: the exit code is 0 unless something went wrong."""
    import sightline
    from sightline.showing import show

    with sightline.open(at, model=model) as collection:
        result = collection.search(
            " ".join(words) if words else None,
            k=k,
            rerank=rerank,
            late=_how_many(late),
            late_fragments=late_fragments,
            image=image,
            image_weight=image_weight,
            not_=without or (),
            where=where,
            min_relevance=min_relevance,
            budget_ms=budget_ms,
            duplicates=duplicates,
        )
    show(result, "json" if as_json else "null" if null else "paths" if paths else "lines", min_relevance, thumbnails)


@app.command()
def explain(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words.")],
    picture: Annotated[str, typer.Argument(metavar="PICTURE", help="A file, or the id of an item of a collection.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to draw it: a .png or .jpg.")] = None,
    at: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With an id: the collection. By default the nearest .sightline.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="default, or a bundle's folder. For an id: the collection's.")
    ] = None,
    codes: Annotated[
        bool, typer.Option("--codes", help="Draw instead what each code looks at; --model is then a checkpoint.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write the numbers as JSON to stdout.")] = False,
) -> None:
    """Draw where in PICTURE each word of QUERY is found, as late interaction sees it."""
    import sightline
    from sightline.search.codes import CodesExplained
    from sightline.search.codes import draw as draw_codes
    from sightline.search.explain import Explanation
    from sightline.search.heat import check_suffix, draw

    if out is None and not as_json:
        raise typer.BadParameter("Say where to draw it, or ask for --json.", param_hint="--out")
    if out is not None:
        check_suffix(out)
        _check_writable(out)
    place = int(picture) if picture.isdecimal() and not Path(picture).exists() else picture
    found: Explanation | CodesExplained
    if codes:
        found = sightline.explain_codes(query, place, at=at, model=model or "default")
    else:
        found = sightline.explain(query, place, at=at, model=model)
    if out is not None:
        (draw_codes(found) if isinstance(found, CodesExplained) else draw(found)).save(out)
    if as_json:
        _print_json(found.to_json())
    else:
        print(f"{out}: {found}")


def _how_many(late: str | None) -> int | Literal["all"] | None:
    if late is None:
        return None
    if late != "all" and not late.isdecimal():
        raise typer.BadParameter(f"{late!r} is neither a whole number nor 'all'.", param_hint="--late")
    return "all" if late == "all" else int(late)


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


@app.command()
def serve(
    at: Annotated[
        str | None,
        typer.Option(metavar="DIR|URL", help="The collection: its folder or store. By default the nearest .sightline."),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve at. Another than this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve at; 0 for any that is free.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="SIGHTLINE_TOKEN", help="What clients must show to be answered.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Index what changes in the folders meanwhile.")] = False,
    model: Annotated[
        str | None, typer.Option(metavar="BUNDLE", help="The model that made the collection, if it was moved.")
    ] = None,
) -> None:
    """Serve a collection: a page to search with, and an interface for programs (described at /docs)."""
    import signal

    try:
        from sightline.server.serving import serve as run
    except ImportError as error:
        raise SightlineError(f"serving needs packages: {error}", "pip install 'sightline[serve]'") from error
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # service managers end it as Ctrl-C does
    try:
        run(at, host=host, port=port, token=token, model=model, watch=watch, told=_tell)
    except KeyboardInterrupt:
        _tell("sightline: ended")
    finally:
        signal.signal(signal.SIGTERM, before)


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="default, a bundle or checkpoint folder, or hf:NAME.")],
    data: Annotated[list[str], typer.Argument(help="Captioned images: shards, JSONL, Karpathy, COCO, …")],
    partner: Annotated[
        str | None, typer.Option("--with", metavar="MODEL", help="A second model: rank by the mean of both.")
    ] = None,
    lang: Annotated[str, typer.Option(help="Language of the captions; several as en,de,fr.")] = "en",
    translate: Annotated[
        str | None,
        typer.Option(metavar="COMMAND", help="Translates captions from {lang}: a text a line in, a text a line out."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="karpathy, coco-1k, coco-5k, or full: test images among those of all splits.")
    ] = "karpathy",
    split: Annotated[str | None, typer.Option(help="Only this split. By default test, where there is one.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the pictures, where the data only names them.")] = None,
    late: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by late interaction.")] = None,
    rerank: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by match.")] = None,
    matcher: Annotated[str | None, typer.Option(metavar="MODEL", help="With --rerank: another model matches.")] = None,
    fusion: Annotated[
        Literal["ce", "add", "norm_add", "logit_add"] | None,
        typer.Option(help="How match and embed scores combine. By default as the bundle says."),
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Weight of the embed score in the fusion.")] = None,
    distractors: Annotated[
        list[str] | None, typer.Option(help="More images for the gallery, captioned or not. May be repeated.")
    ] = None,
    skip_broken: Annotated[bool, typer.Option(help="Report broken records and go on, instead of stopping.")] = False,
    skip_missing_language: Annotated[bool, typer.Option(help="Leave out images without captions in LANG.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Items encoded at once. By default as many as suit the device.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap intervals.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
) -> None:
    """Measure how well MODEL finds the images of captions and the captions of images in DATA."""
    import sightline
    from sightline.bundle import Bundle
    from sightline.datasets import read_all
    from sightline.evaluation import command_translator, languages, report
    from sightline.progress import evaluating

    _check_writable(json_file)
    on_problem = _reporter() if skip_broken else None
    records = read_all(data, split=split, images=images, on_problem=on_problem)
    if split is None and protocol != "full" and any(record.split == "test" for record in records):
        records = [record for record in records if record.split == "test"]
    opened = sightline.load(model, lasting=True)
    own = opened.spec.fusion if isinstance(opened, Bundle) and matcher is None else None
    chosen = fusion or (own.rule if own else "ce")
    if weight is None:
        weight = own.weight if own and chosen == own.rule else 0.5
    options: dict[str, Any] = {
        "data": ", ".join(data),
        "protocol": protocol,
        "late": late,
        "rerank": rerank,
        "fusion": chosen,
        "weight": weight,
        "distractors": read_all(distractors, on_problem=on_problem) if distractors else (),
        "seed": seed,
        "batch_size": batch_size,
        "translate": command_translator(translate) if translate is not None else None,
        "partner": sightline.load(partner, lasting=True) if partner else None,
        "matcher": sightline.load(matcher, lasting=True) if matcher else None,
    }
    with evaluating() as progress:
        if "," in lang:
            several = languages.evaluate_languages(opened, records, lang.split(","), progress=progress, **options)
            shown, result = languages.table(several), several.to_json()
        else:
            options["skip_missing_language"] = skip_missing_language
            one = sightline.evaluate(opened, records, lang=lang, progress=progress, **options)
            shown, result = report.table(one), one.to_json()
    _show(shown)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@app.command()
def regions(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE", help="Published features (.tsv, .pt, .h5, a folder); or, with --detector, pictures."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="STORE", help="Folder of the store to write.")],
    captions: Annotated[
        list[str] | None,
        typer.Option(metavar="DATA", help="Captioned images of the same names, whose captions the store takes over."),
    ] = None,
    detector: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="A DETR-type detector to look at pictures with: a folder, or hf:NAME."),
    ] = None,
    confidence: Annotated[float, typer.Option(metavar="P", help="Keep regions that the detector is surer of.")] = 0.2,
    fewest: Annotated[int, typer.Option(min=1, help="Keep at least so many of a picture, the surest.")] = 10,
    most: Annotated[int, typer.Option(min=1, help="Keep at most so many of a picture, the surest.")] = 100,
    skip_broken: Annotated[bool, typer.Option(help="Report broken rows and go on, instead of stopping.")] = False,
) -> None:
    """Turn region features, or pictures that a detector looks at, into a store to train on, evaluate on and index.

    When stopped, the same command goes on where it was.
    """
    from itertools import chain

    from sightline.datasets import read_all
    from sightline.datasets.regions import Keep, names_in, read_regions, write_regions
    from sightline.progress import indexing

    on_problem = _reporter() if skip_broken else None
    keep = Keep(confidence, fewest, most)
    chosen = [f"--confidence={confidence}", f"--fewest={fewest}", f"--most={most}", f"--detector={detector or ''}"]
    made_of = shlex.join([*sources, *(f"--captions={data}" for data in captions or ()), *chosen])
    captioned = read_all(captions, on_problem=on_problem) if captions else []
    count = 0
    if detector is not None:
        there = names_in(out, made_of)
        new = [record for record in read_all(sources, on_problem=on_problem) if record.key not in there]
        found, count = _detector(detector).find(new, on_problem), len(new)
    else:
        found = chain.from_iterable([read_regions(source, on_problem) for source in sources])
    with indexing("written", "opening") as progress:
        written = write_regions(
            found, out, captions=captioned, keep=keep, on_problem=on_problem, made_of=made_of,
            progress=lambda done: progress(done, count),
        )  # fmt: skip
    spec = written.spec
    boxes = "with boxes" if spec.boxes else "without boxes"
    print(
        f"{out}: {spec.images:,} images ({written.captioned:,} with captions), {spec.regions:,} regions of "
        f"{spec.feature_dim} numbers, {boxes}"
    )
    if written.lacking:
        print(f"no regions for {len(written.lacking):,} captioned images, such as {written.lacking[0].key}")


def _detector(source: str) -> "Detector":
    try:
        from sightline.models.detector import Detector
    except ImportError as error:
        raise SightlineError(f"a detector needs torch: {error}", "pip install 'sightline[train]'") from error
    return Detector.open(source)


@app.command()
def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="What to train, on what, and how.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe. May be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. By default runs/NAME, after the recipe.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
) -> None:
    """Train a model by RECIPE.toml. Started by torchrun, several processes train as one."""
    try:
        import sightline
        from sightline.training.distributed import join
        from sightline.training.recipe import read_recipe
        from sightline.training.state import saved_step
    except ImportError as error:
        raise SightlineError(f"training needs torch: {error}", "pip install 'sightline[train]'") from error
    from sightline.progress import training

    asked = read_recipe(recipe, changes or ())
    out = out or Path("runs", asked.name)
    speaks = join().leads
    try:
        with training() if speaks else nullcontext() as report:
            trained = sightline.train(asked, out, resume=resume, report=report)
    except KeyboardInterrupt:
        if not speaks:
            raise typer.Exit(130) from None
        step = saved_step(out / "last")
        saved = f"{out} was last saved after step {step}" if step else f"{out} has nothing saved yet"
        again = ["sightline", "train", str(recipe), *(part for change in changes or () for part in ("--set", change))]
        again += ["--out", str(out), "--resume"]
        print(f"sightline: interrupted; {saved}\nTo go on: {shlex.join(again)}", file=sys.stderr)
        raise typer.Exit(130) from None
    if speaks:
        print(_what_to_do_with(trained, out / "bundle"))


def _what_to_do_with(trained: "Trained", bundle: Path) -> str:
    """Say in one line where the best checkpoint is, how it did, and what makes a bundle of it."""
    found = trained.validation
    if found is None:
        told = f"after {trained.steps} steps, without validation data"
    else:
        told = (
            f"val R@1 {found['text_to_image']['R@1']:.1f} text to image, {found['image_to_text']['R@1']:.1f} image to "
            f"text, rSum {found['rSum']:.1f}, at step {found['step']}"
        )
    command = shlex.join(["sightline", "export", str(trained.folder), "--out", str(bundle)])
    return f"{trained.folder}: {told}. Next: {command}"


@app.command()
def export(
    checkpoint: Annotated[
        str, typer.Argument(help="Folder of a checkpoint or of a published model such as CLIP, or hf:NAME.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the bundle to write.")],
    quantize: Annotated[Literal["int8"] | None, typer.Option(help="Smaller and faster weights.")] = None,
    four_bits: Annotated[
        str, typer.Option(metavar="PATTERN", help="With int8: modules of this path take four bits a weight.")
    ] = "",
    calibrate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA",
            help="Captions not trained on, to choose the fusion and calibrate scores by; with int8, the image tower "
            "also takes the ranges of its numbers from them, and is faster.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the bundle. By default that of its folder.")] = None,
) -> None:
    """Turn CHECKPOINT, one's own or a published model, into a bundle, which searches without torch."""
    try:
        import sightline
        from sightline.models.engine import read
        from sightline.training.finish import finish
        from sightline.training.ranges import pictures_of
    except ImportError as error:
        raise SightlineError(f"exporting needs torch: {error}", "pip install 'sightline[train]'") from error
    from sightline.loading import HUB_PREFIX, locate
    from sightline.progress import evaluating

    retriever, tokenizer = read(locate(checkpoint))
    held_out = _records(calibrate) if calibrate else None
    fixes_ranges = held_out and quantize and retriever.reads_pixels
    spec = sightline.export(
        retriever,
        tokenizer,
        out,
        name=name or out.name,
        precision=quantize or "float32",
        four_bits=four_bits,
        pictures=pictures_of(held_out or [], retriever.preprocess) if fixes_ranges else None,
        provenance={"initial_weights": checkpoint} if checkpoint.startswith(HUB_PREFIX) else None,
    )
    if held_out is not None:
        with evaluating() as progress:
            spec = finish(out, held_out, progress=progress)
    size = sum((out / file).stat().st_size for file in spec.files) / 1e6
    print(f"{out}: {spec.name}, {', '.join(spec.abilities)}, {spec.precision}, {size:.1f} MB")


@app.command()
def demo() -> None:
    """See it at work in about a minute: index the pictures that come with Sightline, and search them."""
    import tempfile

    from sightline.demo import run

    with tempfile.TemporaryDirectory() as folder:
        for line in run(Path(folder)):
            print(line, flush=True)


@app.command()
def doctor(
    at: Annotated[Path | None, typer.Option(metavar="DIR", help="The collection to look at.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")] = False,
) -> None:
    """Say what is wrong with this installation, and with a collection, and what to do about it."""
    from sightline.doctor import Finding, examine

    findings: list[Finding] = []
    for finding in examine(at):
        findings.append(finding)
        if not as_json:
            _show_finding(finding)
    is_well = all(finding.state != "broken" for finding in findings)
    if as_json:
        _print_json({"version": __version__, "well": is_well, "findings": [one.to_json() for one in findings]})
    if not is_well:
        raise typer.Exit(1)


def _show_finding(finding: "Finding") -> None:
    mark, colour = {"good": ("ok", "green"), "warning": ("note", "yellow"), "broken": ("FAIL", "red")}[finding.state]
    typer.echo(f"{typer.style(f'{mark:4}', fg=colour, bold=True)}  {finding.subject}: {finding.says}")
    if finding.way_out:
        typer.echo(f"      → {finding.way_out}")


@app.command()
def models(as_json: Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")] = False) -> None:
    """List the models on this machine, and known ones: what they can do, how large they are, how well they do."""
    from sightline.known import KNOWN
    from sightline.shelf import known_table, shelf, table

    bundles = shelf(on_problem=lambda error: print(f"skipped: {error}", file=sys.stderr))
    if as_json:
        found = [bundle.to_json() for bundle in bundles]
        _print_json({"models": found, "known": [one.to_json() for one in KNOWN]})
        return
    if bundles:
        _show(table(bundles))
    else:
        print("No models here. Install Sightline with its model, or export one: sightline export CHECKPOINT --out DIR")
    _show(known_table(KNOWN))
    print("Sightline has measured none of these: sightline eval hf:NAME DATA measures one.")
    print("A bundle of any of these, or of another of their kind: sightline export hf:NAME --out DIR")


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _records(data: list[str]) -> "list[Record]":
    from sightline.datasets import read_all

    return read_all(data)


def _check_writable(path: Path | None) -> None:
    """Refuse a result file that cannot be written before the work, not after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise SightlineError(f"{path}: its folder does not exist", f"mkdir -p {path.parent}")


def _reporter() -> "Callable[[Problem], None]":
    def report(problem: "Problem") -> None:
        print(f"skipped {problem.place}: {problem.reason}", file=sys.stderr)

    return report


def _show(table: "Table") -> None:
    from rich.console import Console

    Console().print(table)
