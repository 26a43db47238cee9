"""`sightline regions`, `train` and `export`: extract regions, train a model, and export it to a bundle."""

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sightline.cli.console import print_lines, tell, tell_skipped, tell_unreadable
from sightline.cli.options import Imports
from sightline.cli.stop_signals import StopSignals
from sightline.errors import SightlineError
from sightline.packages import install_extra

if TYPE_CHECKING:
    from sightline.models.detector import Detector
    from sightline.training.trainer import Trained


def regions(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE", help="Published features (.tsv, .pt, .h5, a folder); or, with --detector, images."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="STORE", help="Folder of the store to write.")],
    captions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA", help="Captioned images with the same names, to copy captions from; may be repeated."
        ),
    ] = None,
    detector: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="DETR-type detector: a folder, or hf:NAME."),
    ] = None,
    confidence: Annotated[float, typer.Option(metavar="P", help="Keep regions above this confidence.")] = 0.2,
    fewest: Annotated[int, typer.Option(min=1, help="Fewest regions per image, by confidence.")] = 10,
    most: Annotated[int, typer.Option(min=1, help="Most regions per image, by confidence.")] = 100,
    skip_broken: Annotated[bool, typer.Option(help="Report broken rows and continue.")] = False,
) -> None:
    """Write region features, or what a detector finds in images, to a store to train on, evaluate on and index.

    Run the same command again to resume.
    """
    from itertools import chain

    from sightline.cli.progress import indexing
    from sightline.datasets import read_all
    from sightline.datasets.regions import Keep, names_in, read_regions, write_regions

    on_problem = tell_skipped if skip_broken else None
    keep = Keep(confidence, fewest, most)
    chosen = [f"--confidence={confidence}", f"--fewest={fewest}", f"--most={most}", f"--detector={detector or ''}"]
    made_of = shlex.join([*sources, *(f"--captions={data}" for data in captions or ()), *chosen])
    captioned = read_all(captions, on_problem=on_problem) if captions else []
    count = 0
    if detector is not None:
        existing = names_in(out, made_of)
        new = [record for record in read_all(sources, on_problem=on_problem) if record.key not in existing]
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
    lines = [
        f"{out}: {spec.images:,} images ({written.captioned:,} with captions), {spec.regions:,} regions of "
        f"{spec.feature_dim} numbers, {boxes}"
    ]
    if written.lacking:
        lines.append(f"no regions for {len(written.lacking):,} captioned images, such as {written.lacking[0].key}")
    print_lines(*lines)


def _detector(source: str) -> "Detector":
    try:
        from sightline.models.detector import Detector
    except ImportError as error:
        raise SightlineError(f"a detector needs torch: {error}", install_extra("train")) from error
    return Detector.open(source)


def train(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="Model, data and schedule of the run.")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe. May be repeated.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run. By default runs/NAME, named after the recipe.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in the folder; --set schedule.steps=N extends it.")
    ] = False,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(metavar="N|Nm", help="Save every N steps or minutes; by default, as the recipe says."),
    ] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Plot the training curves to curves.png in the run's folder.")
    ] = False,
    imports: Imports = None,
) -> None:
    """Train a model from RECIPE.toml. Use torchrun to train with several processes."""
    if not recipe.exists():  # said before torch is imported, which takes seconds
        raise SightlineError(f"{recipe}: no such recipe")
    try:
        import sightline
        from sightline.training.distributed import join
        from sightline.training.recipe import read_recipe
        from sightline.training.state import find_state, saved_step
    except ImportError as error:
        raise SightlineError(f"training needs torch: {error}", install_extra("train")) from error
    from sightline.cli.progress import training

    asked = read_recipe(recipe, changes or ())
    out = out or Path("runs", asked.name)
    speaks = join().leads
    if resume and speaks and find_state(out / "last") is None:
        tell(f"sightline: nothing to resume in {out}: starting a new run")
    stop = StopSignals(speaks)
    try:
        with training() if speaks else nullcontext() as report, stop:
            on_prepare = report.prepare if report else None
            trained = sightline.train(
                asked, out, resume=resume, report=report, on_prepare=on_prepare, stop=stop,
                save_every=checkpoint_every, imports=imports or (), plot=plot,
                notify=lambda note: tell(f"sightline: {note}"),
            )  # fmt: skip
    except KeyboardInterrupt:
        if not speaks:
            raise typer.Exit(stop.exit_code) from None
        step = saved_step(out / "last")
        saved = f"{out} was last saved after step {step}" if step else f"{out} has nothing saved yet"
        again = ["sightline", "train", str(recipe), *(part for change in changes or () for part in ("--set", change))]
        again += ["--out", str(out), "--resume"]
        again += ["--checkpoint-every", checkpoint_every] if checkpoint_every else []
        again += [part for module in imports or () for part in ("--import", module)]
        tell(f"sightline: interrupted; {saved}\nTo continue: {shlex.join(again)}")
        raise typer.Exit(stop.exit_code) from None
    if speaks:
        print_lines(_what_to_do_with(trained, out / "bundle"))


def _what_to_do_with(trained: "Trained", bundle: Path) -> str:
    """Return one line with the best checkpoint, its result, and the export command."""
    found = trained.validation
    if found is None:
        result = f"after {trained.steps} steps, without validation data"
    else:
        to_image, to_text = found["text_to_image"], found["image_to_text"]
        recalls = f"R@1 {to_image['R@1']:.1f} text to image, {to_text['R@1']:.1f} image to text, " if to_image else ""
        result = f"val {recalls}rSum {found['rSum']:.1f}, at step {found['step']}"
    command = shlex.join(["sightline", "export", str(trained.folder), "--out", str(bundle)])
    return f"{trained.folder}: {result}. Next: {command}"


def export(
    checkpoint: Annotated[
        str, typer.Argument(help="Folder of a checkpoint or of a published model such as CLIP, or hf:NAME.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the bundle to write.")],
    quantize: Annotated[Literal["int8"] | None, typer.Option(help="Make the weights smaller and faster.")] = None,
    four_bits: Annotated[
        str, typer.Option(metavar="PATTERN", help="With int8: use four-bit weights in modules whose path matches.")
    ] = "",
    calibrate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA",
            help="Held-out captions to choose the fusion and calibrate scores; with int8, the image tower also takes "
            "its activation ranges from them, which makes it faster.",
        ),
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Keep the first N dimensions of embeddings, for models trained with matryoshka."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the bundle. By default its folder's name.")] = None,
    push: Annotated[
        str | None, typer.Option(metavar="hf:USER/NAME", help="Upload the bundle to the Hugging Face hub.")
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="With --push: make the repository private, if it is new.")
    ] = False,
    imports: Imports = None,
) -> None:
    """Export CHECKPOINT, your own or a published model, to a bundle that searches without torch.

    A bundle that is already at --out is replaced when the new one is complete.
    """
    import sightline
    from sightline.bundle.languages import FOLDER, LANGUAGES_FILE
    from sightline.bundle.layout import SPEC_FILE
    from sightline.cli.progress import evaluating
    from sightline.datasets.record import Problem

    if (out / SPEC_FILE).is_file():
        tell(f"sightline: {out} has a bundle, which is replaced when the new one is complete")
        if (out / FOLDER / LANGUAGES_FILE).is_file():
            tell("sightline: its language add-on is deleted with it, because it would not fit the new bundle")
    unreadable: list[Problem] = []
    with evaluating() as progress:
        spec = sightline.export(
            checkpoint,
            out,
            name=name,
            quantize=quantize,
            four_bits=four_bits,
            dim=dim,
            calibrate=calibrate,
            imports=imports or (),
            push=push,
            private=private,
            progress=progress,
            on_problem=unreadable.append,
        )
    tell_unreadable("Left out, cannot be read", unreadable)
    size = sum((out / file).stat().st_size for file in spec.files) / 1e6
    named = [] if spec.name == out.resolve().name else [spec.name]
    print_lines(f"{out}: {', '.join([*named, *spec.abilities, spec.precision])}, {size:.1f} MB")
    if push is not None:
        print_lines(f"Pushed: sightline search TEXT --model {push}")
