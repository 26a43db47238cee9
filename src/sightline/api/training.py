"""Train and export a model: `train` and `export`. Both need torch."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sightline.errors import SightlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sightline.bundle.spec import BundleSpec
    from sightline.datasets import Problem, Record
    from sightline.training.recipe import Recipe
    from sightline.training.step_log import StepReport
    from sightline.training.trainer import Trained


def train(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    report: StepReport | None = None,
    on_prepare: Callable[[str, int, int], None] | None = None,
    save_every: int | str | None = None,
    stop_after: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trained:
    """Train a model; the best checkpoint is saved in `out/best`, the latest state in `out/last`.

    Needs torch: `pip install 'sightline-search[train]'`.

    recipe: the path of a TOML file, or its contents as a mapping; see recipes/.
    resume: continue from `out/last`, or start if it does not exist.
    report: called with the metrics of a step. on_prepare: called with the progress of the work before the first step.
    save_every: steps between two saved states, or minutes as in "10m"; overrides `checkpoint.every` of the recipe.
    stop_after: save and stop after this many steps in total.
    stop: called after every step; if it returns True, the run is saved and a KeyboardInterrupt raised.

    >>> import sightline, tempfile
    >>> from sightline.demo.training import tiny_recipe
    >>> folder = tempfile.mkdtemp()
    >>> trained = sightline.train(tiny_recipe(folder), f"{folder}/run")
    >>> trained.steps
    2
    """
    with _needs_torch("training"):
        from sightline.training.recipe import Recipe, parse_recipe, read_recipe
        from sightline.training.trainer import train
    if isinstance(recipe, str | Path):
        recipe = read_recipe(recipe)
    elif not isinstance(recipe, Recipe):
        recipe = parse_recipe(recipe, "recipe")
    return train(
        recipe,
        out,
        resume=resume,
        report=report,
        on_prepare=on_prepare,
        save_every=save_every,
        stop_after=stop_after,
        stop=stop,
    )


def export(
    checkpoint: str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    quantize: Literal["int8"] | None = None,
    four_bits: str = "",
    dim: int | None = None,
    calibrate: Sequence[Record] | None = None,
    provenance: Mapping[str, Any] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    on_problem: Callable[[Problem], None] | None = None,
) -> BundleSpec:
    """Export a checkpoint to a bundle, which searches without torch. At the end, it replaces any bundle at `out`.

    Needs torch: `pip install 'sightline-search[train]'`.

    checkpoint: the folder of a checkpoint or of a published model such as CLIP, or `hf:NAME`.
    out: the bundle's folder. name: the name in results; by default that of the folder.
    quantize: `int8` makes it smaller and faster. four_bits: with int8, modules of this path take four bits per weight.
    dim: keep only the first numbers of embeddings, of a model that was trained so (loss = "matryoshka").
    calibrate: captioned images not used in training, to choose the fusion and calibrate relevance; with int8, they
        also provide the activation ranges of the image tower, which makes it faster, and their captions determine how
        four-bit weights of the text tower are rounded.
    provenance: what the bundle records about its data, licences and recipe.
    progress: called with the current part of the work, the amount done, and the total.
    on_problem: called for every unreadable image in `calibrate`.

    >>> import sightline, tempfile
    >>> from sightline.demo.training import tiny_recipe
    >>> folder = tempfile.mkdtemp()
    >>> trained = sightline.train(tiny_recipe(folder), f"{folder}/run")
    >>> sightline.export(trained.folder, f"{folder}/bundle", name="mine").abilities
    ('embed',)
    """
    with _needs_torch("exporting"):
        from sightline.models.shorter import ShorterEmbeddings
        from sightline.models.torch_model import read
        from sightline.onnx_export.exporter import export
        from sightline.onnx_export.static_ranges import sample_images
    from sightline.bundle.layout import HUB_PREFIX
    from sightline.registry.loader import locate

    retriever, tokenizer = read(locate(checkpoint))
    if dim is not None:
        retriever = ShorterEmbeddings(retriever, dim)
    if provenance is None and str(checkpoint).startswith(HUB_PREFIX):
        provenance = {"initial_weights": str(checkpoint)}
    fixes_ranges = calibrate and quantize and retriever.reads_pixels
    return export(
        retriever,
        tokenizer,
        out,
        name=name or Path(out).resolve().name,
        precision=quantize or "float32",
        four_bits=four_bits,
        images=sample_images(calibrate or [], retriever.preprocess) if fixes_ranges else None,
        provenance=provenance,
        held_out=calibrate,
        progress=progress,
        on_problem=on_problem,
    )


@contextmanager
def _needs_torch(job: str) -> Iterator[None]:
    """Turn a missing package into an error that says how to install it."""
    try:
        yield
    except ImportError as error:
        raise SightlineError(f"{job} needs torch: {error}", "pip install 'sightline-search[train]'") from error
