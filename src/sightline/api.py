"""The public functions. Each imports what it needs when called, so that importing Sightline is fast."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sightline.errors import CollectionError, SightlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sightline.bundle.model import Model
    from sightline.bundle.spec import BundleSpec
    from sightline.collection.collection import Collection
    from sightline.collection.indexing.report import Report
    from sightline.datasets import Problem, Record
    from sightline.evaluation.encodings import SharedImages
    from sightline.evaluation.result import Evaluation
    from sightline.evaluation.test_set import Translator
    from sightline.fusion_rules import FusionRule
    from sightline.media import ImageLike
    from sightline.retrieval.explain import CodesExplained, Explanation
    from sightline.retrieval.results import SearchResult
    from sightline.training.recipe import Recipe
    from sightline.training.step_log import StepReport
    from sightline.training.trainer import Trained


def load(model: str | Path = "default", *, prefer_gpu: bool = False) -> Model:
    """Open a model, ready to encode and match.

    model: `default` (the one that ships with Sightline), the folder of a bundle, of a checkpoint or of a published
        model such as CLIP (the latter two need the extra `train`), or `hf:NAME` (any of these on the Hugging Face
        hub, downloaded once).
    prefer_gpu: run a bundle on the GPU, if there is one and torch is installed; worthwhile for jobs that take minutes.

    >>> import sightline
    >>> model = sightline.load()
    >>> model.encode_texts(["a dog on a beach"]).embedding.shape
    (1, 512)
    """
    from sightline.registry.loader import load

    return load(model, prefer_gpu=prefer_gpu)


def open(at: str | Path | None = None, *, model: str | Path | Model | None = None) -> Collection:
    r"""Open a collection for searching.

    at: the collection's folder, or the folder of images that contains it; by default the nearest to the current
        folder. On a machine that did not index it, the URL of its store.
    model: the model that indexed it, if it has moved and is not the default one.

    >>> import sightline, tempfile
    >>> from pathlib import Path
    >>> notes = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> _ = notes.write_text("two cats\na red bus\n")
    >>> at = sightline.index(notes).at
    >>> with sightline.open(at) as collection:
    ...     print(len(collection), [hit.text for hit in collection.search("a bus", k=1)])
    2 ['a red bus']
    """
    from sightline.collection.collection import Collection

    return Collection.open(at, model)


def index(
    folders: Sequence[str | Path] | str | Path = (),
    *,
    at: str | Path | None = None,
    model: str | Path | Model = "default",
    progress: Callable[[int, int], None] | None = None,
    wait: bool | float = True,
    notify: Callable[[str], None] | None = None,
    prune: bool = False,
    retry: bool = False,
    workers: str | None = None,
    store: str | None = None,
) -> Report:
    """Index folders of images, or text files, into a collection; unchanged files are not read again.

    folders: one or several; if empty, everything that the collection at `at` contains. Images may also be in shards
        (`.tar`), or at the URLs of a list (`.urls`). Texts are the lines of a `.txt` file, or of a `.jsonl` file with
        `text` or `caption` and optionally `id`.
    at: the collection's folder; by default `.sightline` in the folder that is indexed.
    model: as for `load`.
    progress: called with the number of files done, and the number of files to read.
    wait, notify: if another process is indexing the same collection, wait for it (True, or a number of seconds), and
        report that.
    prune: remove missing files, even when a whole folder is missing.
    retry: read files again that could not be read before.
    workers: `ray` or `ray://HOST:PORT` to read and encode on a Ray cluster.
    store: `milvus://HOST:PORT/NAME` to keep the vectors of a new collection on a Milvus server.

    Unreadable files are listed in the report and do not stop the run. Ctrl-C raises `IndexingInterrupted` with the
    report so far; finished work is kept, and the next run continues.

    >>> import sightline, tempfile
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> Image.new("RGB", (40, 30), "red").save(f"{folder}/red.png")
    >>> sightline.index(folder).new
    1
    """
    from sightline.collection.indexing.sync import index

    return index(
        folders,
        at=at,
        model=model,
        progress=progress,
        wait=wait,
        notify=notify,
        prune=prune,
        retry=retry,
        workers=workers,
        store=store,
    )


def search(
    text: str | None = None,
    *,
    at: str | Path | None = None,
    model: str | Path | Model | None = None,
    image: ImageLike | None = None,
    image_weight: float = 0.5,
    not_: str | Sequence[str] = (),
    where: str | None = None,
    k: int = 10,
    start: int = 0,
    late: int | Literal["all"] | None = None,
    late_fragments: int | None = None,
    rerank: int | None = None,
    fusion: FusionRule | None = None,
    weight: float | None = None,
    min_relevance: float | None = None,
    budget_ms: float | None = None,
    duplicates: Literal["fold", "show"] = "fold",
) -> SearchResult:
    """Open a collection, search it once, and close it.

    at, model: as for `open`. For the options see `Collection.search`. To search more than once, `open` a collection.

    >>> import sightline, tempfile
    >>> from PIL import Image
    >>> folder = tempfile.mkdtemp()
    >>> for colour in ("red", "green", "blue"):
    ...     Image.new("RGB", (40, 30), colour).save(f"{folder}/{colour}.png")
    >>> _ = sightline.index(folder)
    >>> sightline.search("something green", at=folder)[0].path
    'green.png'
    >>> sightline.search(image=Image.new("RGB", (50, 50), "red"), at=folder)[0].path
    'red.png'
    """
    with open(at, model=model) as collection:
        return collection.search(
            text,
            image=image,
            image_weight=image_weight,
            not_=not_,
            where=where,
            k=k,
            start=start,
            late=late,
            late_fragments=late_fragments,
            rerank=rerank,
            fusion=fusion,
            weight=weight,
            min_relevance=min_relevance,
            budget_ms=budget_ms,
            duplicates=duplicates,
        )


def explain(
    text: str,
    image: ImageLike | int,
    *,
    at: str | Path | None = None,
    model: str | Path | Model | None = None,
) -> Explanation:
    """Compare each word of a text with each part of an image; `retrieval.heatmap.draw` draws the result.

    image: a path, bytes, a PIL image or an array; or the id of an item of the collection `at`.
    model: as for `load`. By default the collection's model for an item, and the default model for an image.

    >>> import sightline
    >>> from PIL import Image
    >>> found = sightline.explain("a red square", Image.new("RGB", (40, 30), "red"))
    >>> [match.word for match in found.words], found.words[0].grid.shape
    (['a', 'red', 'square'], (7, 7))
    """
    import numpy as np

    from sightline.media import image_source
    from sightline.retrieval.explain import explain_image

    if not isinstance(image, int):
        return explain_image(text, image_source(image), _opened(model or "default"))
    from sightline.collection.indexing.shards_and_urls import source_of  # imports all readers of captioned images

    with open(at, model=model) as collection:
        if collection.kind != "images":
            raise CollectionError(f"{collection.at}: its items are texts, which have no parts", "Give an image.")
        source = source_of(collection.item(image).files[0])
        stored = collection.store.fetch(np.array([image], dtype=np.int64), "fragments")
        return explain_image(text, source, collection.model, stored.values[0][stored.mask[0]])


def explain_codes(
    text: str, image: ImageLike | int, *, model: str | Path | Model, at: str | Path | None = None
) -> CodesExplained:
    """Show what each code of a checkpoint attends to in a text and in an image; `retrieval.heatmap.draw` draws it.

    Needs torch: `pip install 'sightline-search[train]'`.

    image: a path, bytes, a PIL image or an array; or the id of an item of the collection `at`.
    model: a checkpoint with codes.

    >>> import sightline, tempfile
    >>> from PIL import Image
    >>> from sightline.demo.training import tiny_recipe
    >>> folder = tempfile.mkdtemp()
    >>> trained = sightline.train(tiny_recipe(folder, codes=2), f"{folder}/run")
    >>> found = sightline.explain_codes("a red square", Image.new("RGB", (16, 16), "red"), model=trained.folder)
    >>> found.to_words.shape
    (2, 3)
    """
    from sightline.media import ImageFile, image_source
    from sightline.retrieval.explain import explain_codes

    opened = _opened(model)
    if not isinstance(image, int):
        return explain_codes(text, image_source(image), opened)
    with open(at) as collection:
        return explain_codes(text, ImageFile(collection.item(image).files[0].where), opened)


def evaluate(
    model: Model,
    records: Sequence[Record],
    *,
    data: str = "",
    lang: str = "en",
    protocol: str = "karpathy",
    late: int | None = None,
    rerank: int | None = None,
    fusion: FusionRule | None = None,
    weight: float | None = None,
    distractors: Sequence[Record] = (),
    skip_missing_language: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    translate: Translator | None = None,
    shared: SharedImages | None = None,
    partner: Model | None = None,
    matcher: Model | None = None,
) -> Evaluation:
    """Measure how well a model finds the images of captions and the captions of images.

    records: captioned images, as `sightline.datasets.read_all` reads them.
    data: the name of the data set in the result. lang: the language of the captions.
    protocol: which images form a gallery: karpathy, coco-1k, coco-5k or full.
    late, rerank: number of top results to rescore by late interaction, then by the matcher; by default 0.
    fusion, weight: how the matcher's score and the cosine are combined; the model sets the defaults.
    distractors: records whose images, without their captions, are added to the gallery.
    skip_missing_language: skip records without captions in `lang`, and count them.
    seed: seed of the bootstrap intervals.
    batch_size: number of items encoded at once; by default depends on the device.
    progress: called with the current part of the work, the amount done, and the total.
    translate: translates captions from `lang` into the model's language.
    shared: the encoded images, if they already exist.
    partner: a second model; rank by the mean similarity of both. matcher: another model for reranking.

    An unreadable image is listed in `unreadable`; it and its captions count as missed.

    >>> import sightline
    >>> from sightline.datasets import Record
    >>> from sightline.media import image_source
    >>> from PIL import Image
    >>> images = {colour: image_source(Image.new("RGB", (40, 30), colour)) for colour in ("red", "green", "blue")}
    >>> records = [Record(name, image, {"en": (f"a {name} image",)}) for name, image in images.items()]
    >>> sightline.evaluate(sightline.load(), records).text_to_image["R@1"]
    100.0
    """
    from sightline.evaluation.evaluator import evaluate

    return evaluate(
        model,
        records,
        data=data,
        lang=lang,
        protocol=protocol,
        late=late,
        rerank=rerank,
        fusion=fusion,
        weight=weight,
        distractors=distractors,
        skip_missing_language=skip_missing_language,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
        translate=translate,
        shared=shared,
        partner=partner,
        matcher=matcher,
    )


def train(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    report: StepReport | None = None,
    on_prepare: Callable[[str, int, int], None] | None = None,
    save_every: int = 500,
    stop_after: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Trained:
    """Train a model; the best checkpoint is saved in `out/best`, the latest state in `out/last`.

    Needs torch: `pip install 'sightline-search[train]'`.

    recipe: the path of a TOML file, or its contents as a mapping; see recipes/.
    resume: continue from `out/last`, or start if it does not exist.
    report: called with the metrics of a step. on_prepare: called with the progress of the work before the first step.
    save_every: steps between two saved states. stop_after: save and stop after this many steps in total.
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
        from sightline.models.torch_model import read
        from sightline.onnx_export.exporter import export
        from sightline.onnx_export.static_ranges import pictures_of
    from sightline.bundle.layout import HUB_PREFIX
    from sightline.registry.loader import locate

    retriever, tokenizer = read(locate(checkpoint))
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
        pictures=pictures_of(calibrate or [], retriever.preprocess) if fixes_ranges else None,
        provenance=provenance,
        held_out=calibrate,
        progress=progress,
        on_problem=on_problem,
    )


def _opened(model: str | Path | Model) -> Model:
    return load(model) if isinstance(model, str | Path) else model


@contextmanager
def _needs_torch(job: str) -> Iterator[None]:
    """Turn a missing package into an error that says how to install it."""
    try:
        yield
    except ImportError as error:
        raise SightlineError(f"{job} needs torch: {error}", "pip install 'sightline-search[train]'") from error
