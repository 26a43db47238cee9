"""Train and export a model: `train` and `export`. Both need torch."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sightline.api.evaluation import records_of
from sightline.errors import SightlineError
from sightline.packages import install_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sightline.api.evaluation import Captioned
    from sightline.bundle.spec import BundleSpec
    from sightline.datasets import Problem
    from sightline.training.recipe import Changes, Recipe
    from sightline.training.step_log import StepReport
    from sightline.training.trainer import Trained


def train(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    changes: Changes = (),
    imports: Sequence[str] = (),
    resume: bool = False,
    plot: bool = False,
    report: StepReport | None = None,
    on_prepare: Callable[[str, int, int], None] | None = None,
    save_every: int | str | None = None,
    stop_after: int | None = None,
    stop: Callable[[], bool] | None = None,
    notify: Callable[[str], None] | None = None,
) -> Trained:
    """Train a model; the best checkpoint is saved in `out/best`, the latest state in `out/last`.

    Needs torch: `pip install 'sightline-search[train]'`.

    recipe: the path of a TOML file, or its contents as a mapping; see recipes/.
    out: the run's folder; by default runs/NAME, with the recipe's name.
    changes: changes to the recipe, written as for `--set` (`["optimizer.lr=1e-4"]`) or as `{"optimizer.lr": 1e-4}`.
    imports: Python modules to import first, and encoders of your own, as `my_module:MyEncoder`.
    plot: at the end, plot the training curves to curves.png in the run's folder.
    resume: continue from `out/last`; if that does not exist, start a new run.
    report: called with each step's metrics. on_prepare: called with the progress of the work before the first step, and
        of validations.
    save_every: steps between two saved states, or minutes as in "10m"; overrides `checkpoint.every` of the recipe.
    stop_after: save and stop after this many steps in total.
    stop: called after every step; if it returns True, the run is saved and a KeyboardInterrupt is raised.
    notify: called with each warning about the run, such as validation images that are also training images; by default,
        warnings are logged.

    >>> import sightline, tempfile
    >>> from sightline.demo.training import tiny_recipe
    >>> folder = tempfile.mkdtemp()
    >>> trained = sightline.train(tiny_recipe(folder), f"{folder}/run")
    >>> trained.steps
    2
    """
    with _needs_torch("training"):
        from sightline.training.distributed import join
        from sightline.training.plot import plot_log
        from sightline.training.recipe import read_recipe
        from sightline.training.trainer import train
    from sightline.plugins import import_modules

    import_modules(imports)
    asked = read_recipe(recipe, changes)
    folder = Path("runs", asked.name) if out is None else Path(out)
    trained = train(
        asked,
        folder,
        resume=resume,
        report=report,
        on_prepare=on_prepare,
        save_every=save_every,
        stop_after=stop_after,
        stop=stop,
        notify=notify,
    )
    if plot and join().leads:
        plot_log(folder / "log.jsonl", folder / "curves.png")
    return trained


def export(
    checkpoint: str | Path,
    out: str | Path,
    *,
    name: str | None = None,
    quantize: Literal["int8"] | None = None,
    four_bits: str = "",
    dim: int | None = None,
    calibrate: Captioned | None = None,
    imports: Sequence[str] = (),
    push: str | None = None,
    private: bool = False,
    provenance: Mapping[str, Any] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    on_problem: Callable[[Problem], None] | None = None,
) -> BundleSpec:
    """Export a checkpoint to a bundle, which searches without torch; when complete, it replaces any bundle at `out`.

    Needs torch: `pip install 'sightline-search[train]'`.

    checkpoint: the folder of a checkpoint or of a published model such as CLIP, or `hf:NAME`.
    out: the bundle's folder. name: the name in results; by default that of the folder.
    quantize: `int8` makes the bundle smaller and faster. four_bits: with `int8`, modules whose path matches this
        pattern are stored with four bits per weight.
    dim: keep only the first `dim` dimensions of embeddings, for a model trained to allow this (loss = "matryoshka").
    calibrate: captioned images not used in training, as records or as paths of data sets, to choose the fusion and
        calibrate relevance; with `int8`, they also provide the activation ranges of the image tower, which makes it
        faster, and their captions determine how four-bit weights of the text tower are rounded.
    imports: as for `train`.
    push: upload the bundle to the Hugging Face hub as `hf:USER/NAME`. private: if the repository is new, make it
        private.
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
    from sightline.datasets import refuse
    from sightline.plugins import import_modules
    from sightline.registry.hub import check_pushable
    from sightline.registry.hub import push as push_bundle
    from sightline.registry.loader import locate

    import_modules(imports)
    if push is not None:
        check_pushable(push)
    held_out = None if calibrate is None else records_of(calibrate, on_problem=refuse)
    retriever, tokenizer = read(locate(checkpoint))
    if dim is not None:
        retriever = ShorterEmbeddings(retriever, dim)
    if provenance is None and str(checkpoint).startswith(HUB_PREFIX):
        provenance = {"initial_weights": str(checkpoint)}
    fixes_ranges = held_out and quantize and retriever.reads_pixels
    spec = export(
        retriever,
        tokenizer,
        out,
        name=name or Path(out).resolve().name,
        precision=quantize or "float32",
        four_bits=four_bits,
        images=sample_images(held_out or [], retriever.preprocess) if fixes_ranges else None,
        provenance=provenance,
        held_out=held_out,
        progress=progress,
        on_problem=on_problem,
    )
    if push is not None:
        push_bundle(out, push, private=private)
    return spec


@contextmanager
def _needs_torch(job: str) -> Iterator[None]:
    """Turn a missing package into an error that says how to install it."""
    try:
        yield
    except ImportError as error:
        raise SightlineError(f"{job} needs torch: {error}", install_extra("train")) from error
