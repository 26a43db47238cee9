"""The `sightline` command: each of its commands reads arguments, calls one verb and shows what came of it."""

import json
import shlex
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sightline import __version__
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from rich.table import Table

    from sightline.datasets import Problem, Record
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


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Argument(help="default, a bundle or checkpoint folder, or hf:NAME.")],
    data: Annotated[list[str], typer.Argument(help="Captioned images: shards, JSONL, Karpathy, COCO, …")],
    lang: Annotated[str, typer.Option(help="Language of the captions.")] = "en",
    protocol: Annotated[str, typer.Option(help="karpathy, coco-1k or coco-5k.")] = "karpathy",
    split: Annotated[str | None, typer.Option(help="Only this split. By default test, where there is one.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the pictures, where the data only names them.")] = None,
    late: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by late interaction.")] = None,
    rerank: Annotated[int | None, typer.Option(min=1, help="Rescore the K best by match.")] = None,
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
    batch_size: Annotated[int, typer.Option(min=1, help="Items encoded at once.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap intervals.")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the result to this file.")] = None,
) -> None:
    """Measure how well MODEL finds the images of captions and the captions of images in DATA."""
    import sightline
    from sightline.bundle import Bundle
    from sightline.datasets import read_all
    from sightline.evaluation.report import table
    from sightline.progress import evaluating

    _check_writable(json_file)
    report = _reporter() if skip_broken else None
    records = read_all(data, split=split, images=images, on_problem=report)
    if split is None and any(record.split == "test" for record in records):
        records = [record for record in records if record.split == "test"]
    opened = sightline.load(model)
    own = opened.spec.fusion if isinstance(opened, Bundle) else None
    chosen = fusion or (own.rule if own else "ce")
    if weight is None:
        weight = own.weight if own and chosen == own.rule else 0.5
    with evaluating() as progress:
        result = sightline.evaluate(
            opened,
            records,
            data=", ".join(data),
            lang=lang,
            protocol=protocol,
            late=late,
            rerank=rerank,
            fusion=chosen,
            weight=weight,
            distractors=read_all(distractors, on_problem=report) if distractors else (),
            skip_missing_language=skip_missing_language,
            seed=seed,
            batch_size=batch_size,
            progress=progress,
        )
    _show(table(result))
    if json_file is not None:
        json_file.write_text(json.dumps(result.to_json(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


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
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a checkpoint.")],
    out: Annotated[Path, typer.Option(help="Folder of the bundle to write.")],
    quantize: Annotated[Literal["int8"] | None, typer.Option(help="Smaller and faster weights.")] = None,
    four_bits: Annotated[
        str, typer.Option(metavar="PATTERN", help="With int8: modules of this path take four bits a weight.")
    ] = "",
    calibrate: Annotated[
        list[str] | None,
        typer.Option(metavar="DATA", help="Captions not trained on, to choose the fusion and calibrate scores by."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the bundle. By default that of its folder.")] = None,
) -> None:
    """Turn CHECKPOINT into a bundle, which searches without torch."""
    try:
        import sightline
        from sightline.models import checkpoint as checkpoints
        from sightline.training.finish import finish
    except ImportError as error:
        raise SightlineError(f"exporting needs torch: {error}", "pip install 'sightline[train]'") from error
    from sightline.progress import evaluating

    retriever, tokenizer = checkpoints.load(checkpoint)
    held_out = _records(calibrate) if calibrate else None
    spec = sightline.export(
        retriever, tokenizer, out, name=name or out.name, precision=quantize or "float32", four_bits=four_bits
    )
    if held_out is not None:
        with evaluating() as progress:
            spec = finish(out, held_out, progress=progress)
    size = sum((out / file).stat().st_size for file in spec.files) / 1e6
    print(f"{out}: {spec.name}, {', '.join(spec.abilities)}, {spec.precision}, {size:.1f} MB")


@app.command()
def demo() -> None:
    """See it all at work in about a minute: draw pictures, train a tiny model, export it, search."""
    import tempfile

    from sightline.demo import run

    with tempfile.TemporaryDirectory() as folder:
        for line in run(Path(folder)):
            print(line, flush=True)


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
