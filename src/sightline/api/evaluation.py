"""Measure a model: `evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, overload

from sightline.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sightline.bundle.model import Model
    from sightline.datasets import Problem, Record
    from sightline.evaluation.encodings import SharedImages
    from sightline.evaluation.languages import Languages
    from sightline.evaluation.names import NamesEvaluation
    from sightline.evaluation.result import Evaluation
    from sightline.evaluation.test_set import Translator
    from sightline.fusion_names import FusionRule

    Captioned: TypeAlias = Sequence[Record] | Sequence[str | Path] | str | Path
    """Captioned images: records, or the paths of data sets."""


class _Mode(NamedTuple):
    """A way to evaluate, and the options that do not apply to it. problem: what the error says of such an option."""

    unused: tuple[str, ...]
    problem: str
    way_out: str = "Leave it out."


_MODES = {
    "names": _Mode(
        ("lang", "protocol", "late", "distractors", "skip_missing_language", "seed", "translate", "partner", "matcher",
         "ranks", "top"),
        "cannot be combined with `names`",
    ),
    "languages": _Mode(("shared", "ranks", "top"), "has no effect with several languages"),
    "records": _Mode(("split", "images"), "has no effect on records", "Leave it out, or pass the paths of data sets."),
    "not reranked": _Mode(("fusion", "weight"), "has no effect without reranking", "Set `rerank`, or leave it out."),
}  # fmt: skip


@overload
def evaluate(
    model: Model | str | Path, data: Captioned, *, names: Literal[True], **options: Any
) -> NamesEvaluation: ...
@overload
def evaluate(
    model: Model | str | Path, data: Captioned, *, lang: list[str] | tuple[str, ...], **options: Any
) -> Languages: ...
@overload
def evaluate(model: Model | str | Path, data: Captioned, *, lang: str = "en", **options: Any) -> Evaluation: ...
def evaluate(  # type: ignore[misc]  # `options` of the signatures above are those named here
    model: Model | str | Path,
    data: Captioned,
    *,
    name: str | None = None,
    split: str | None = None,
    images: str | Path | None = None,
    lang: str | Sequence[str] = "en",
    protocol: str = "karpathy",
    names: bool = False,
    late: int | None = None,
    rerank: int | None = None,
    fusion: FusionRule | None = None,
    weight: float | None = None,
    distractors: Captioned = (),
    skip_missing_language: bool = False,
    seed: int = 0,
    batch_size: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    on_problem: Callable[[Problem], None] | None = None,
    translate: Translator | str | None = None,
    shared: SharedImages | None = None,
    partner: Model | str | Path | None = None,
    matcher: Model | str | Path | None = None,
    ranks: str | Path | None = None,
    top: int = 0,
    imports: Sequence[str] = (),
) -> Evaluation | Languages | NamesEvaluation:
    """Measure how well a model finds images by caption and captions by image.

    model: a model, or whatever `load` takes.
    data: captioned images: the paths of data sets, or records as `sightline.datasets.read_all` reads them.
    name: the name of the data set in the result; by default its paths.
    split: the split to read; by default `test`, if there is one. images: the folder of the images, if the data contains
        only their names.
    on_problem: called with each broken record, which is then skipped; by default the first one raises an error.
    lang: the language of the captions, or a list of several; a list gives a `Languages`, with an evaluation for each.
    protocol: which images form a gallery: `karpathy`, `coco-1k`, `coco-5k` or `full`.
    names: measure zero-shot labelling instead: how often an image's label ranks first among all labels; gives a
        `NamesEvaluation`.
    late, rerank: number of top results to rescore by late interaction, then by the matcher; by default 0.
    fusion, weight: how the matcher's score and the cosine are combined; the model sets the defaults.
    distractors: more captioned images, whose images, without their captions, are added to the gallery.
    skip_missing_language: skip records without captions in `lang`, and count them.
    seed: seed of the bootstrap intervals.
    batch_size: number of items encoded at once; by default depends on the device.
    progress: called with the current part of the work, the amount done, and the total.
    translate: translates captions from `lang` into the model's language: a function, or a command that reads and
        writes one text per line.
    shared: images that were encoded earlier, to reuse.
    partner: a second model; rank by the mean similarity of both. matcher: another model for reranking.
    ranks: write the rank of every query to this file: CSV if its name ends in `.csv`, TREC files if it ends in `.run`.
    top: how many results to keep for each query, for `evaluation.rank_files` and `evaluation.comparison`.
    imports: Python modules to import first, and encoders of your own, as `my_module:MyEncoder`.

    An option that would have no effect, such as `seed` with `names`, raises an `OptionError`. An unreadable image is
    listed in `unreadable`; it and its captions count as missed.

    >>> import sightline
    >>> from sightline.datasets import Record
    >>> from sightline.media import image_source
    >>> from PIL import Image
    >>> images = {colour: image_source(Image.new("RGB", (40, 30), colour)) for colour in ("red", "green", "blue")}
    >>> records = [Record(name, image, {"en": (f"a {name} image",)}) for name, image in images.items()]
    >>> sightline.evaluate(sightline.load(), records).text_to_image["R@1"]
    100.0
    """
    given = dict(locals())
    paths = _paths(data)
    modes = {
        "names": names,
        "languages": not isinstance(lang, str),
        "records": paths is None,
        "not reranked": not rerank,
    }
    given |= {"late": late or None, "distractors": distractors or ()}  # 0 and an empty list also mean none
    _check_options(given, [mode for mode, applies in modes.items() if applies])
    from sightline.datasets import read_test
    from sightline.evaluation import command_translator, evaluate, evaluate_languages, evaluate_names
    from sightline.evaluation.rank_files import TOP, check_ranks_file, write_ranks
    from sightline.plugins import import_modules

    import_modules(imports)
    if ranks is not None:
        check_ranks_file(Path(ranks))
    records: Any = data
    if paths is not None:
        records = read_test(paths, split, protocol, images=images, on_problem=on_problem)
    opened = _opened(model)
    options: dict[str, Any] = {
        "data": ", ".join(paths or ()) if name is None else name,
        "rerank": rerank,
        "fusion": fusion,
        "weight": weight,
        "batch_size": batch_size,
        "progress": progress,
    }
    if names:
        return evaluate_names(opened, records, shared=shared, **options)
    options |= {
        "protocol": protocol,
        "late": late,
        "distractors": records_of(distractors, on_problem=on_problem) if distractors else (),
        "seed": seed,
        "translate": command_translator(translate) if isinstance(translate, str) else translate,
        "partner": None if partner is None else _opened(partner),
        "matcher": None if matcher is None else _opened(matcher),
    }
    if not isinstance(lang, str):
        return evaluate_languages(opened, records, list(lang), **options)
    options |= {"shared": shared, "top": max(top, TOP if ranks is not None else 0)}
    found = evaluate(opened, records, lang=lang, skip_missing_language=skip_missing_language, **options)
    if ranks is not None:
        write_ranks(found, Path(ranks))
    return found


def _check_options(given: Mapping[str, object], modes: Sequence[str]) -> None:
    """Refuse options that do not apply to one of these modes, unless they have their default values."""
    usual = evaluate.__kwdefaults__ or {}
    for mode in modes:
        unused, problem, way_out = _MODES[mode]
        for option in unused:
            if given[option] != usual[option]:
                raise OptionError(option, problem, way_out)


def records_of(data: Captioned, **options: Any) -> Sequence[Record]:
    """Read the data sets at these paths, with the options of `datasets.read_all`; if given records, return them."""
    from sightline.datasets import read_all

    paths = _paths(data)
    return read_all(paths, **options) if paths is not None else data  # type: ignore[return-value]


def _paths(data: Captioned) -> list[str] | None:
    """Return the paths of the data sets; None if `data` contains records instead."""
    listed = [data] if isinstance(data, str | Path) else data
    return [str(path) for path in listed] if any(isinstance(one, str | Path) for one in listed) else None


def _opened(model: Model | str | Path) -> Model:
    from sightline.registry.loader import load

    return load(model, prefer_gpu=True) if isinstance(model, str | Path) else model
