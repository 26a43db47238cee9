"""`sightline index`, `search` and `serve`: create, search and serve a collection."""

import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from sightline.cli.console import named_options, print_lines, results, tell, tell_at_once
from sightline.cli.options import MODELS, CollectionModel, SeveralAt
from sightline.errors import OptionError, SightlineError
from sightline.fusion_names import FusionRule
from sightline.packages import install_extra

if TYPE_CHECKING:
    from sightline.collection.collection import Collection
    from sightline.retrieval.options import SearchOptions


def index(
    folders: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FOLDER",
            help="Folders of images, shards (.tar), lists of URLs (.urls), region stores; or texts (.txt, .jsonl). "
            "By default, those of the nearest collection.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="The collection, or the folder it is in. By default FOLDER/.sightline."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help=f"{MODELS} By default the collection's model, or else default."),
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove missing files, even when a whole folder is missing.")
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Read unreadable files again, and check all vectors for damage.")
    ] = False,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep vectors on a server instead of in DIR: milvus://HOST:PORT/NAME, postgresql://HOST/DATABASE/NAME.",
        ),
    ] = None,
    workers: Annotated[
        str | None, typer.Option(metavar="ray|ray://HOST:PORT", help="Encode on a Ray cluster, not in this process.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Encode new images with the model's fast image graph.")
    ] = False,
    refine: Annotated[
        bool,
        typer.Option("--refine", help="Then re-encode images from the fast graph with the full one, newest first."),
    ] = False,
    text: Annotated[
        bool | None,
        typer.Option(
            "--text/--no-text",
            envvar="SIGHTLINE_READ_TEXT",
            show_default=False,
            help="Read the text in images, once they can be searched. On by default if the ocr extra is installed.",
        ),
    ] = None,
) -> None:
    """Index images or texts for searching. Unchanged files are not read again."""
    import sightline
    from sightline.cli.formatting import report_lines
    from sightline.cli.progress import indexing
    from sightline.collection.indexing.report import IndexingInterrupted
    from sightline.collection.indexing.targets import location
    from sightline.collection.locate import model_for_indexing, named_path
    from sightline.collection.manifest import enclosing, has_manifest
    from sightline.media.ocr import INSTALL, is_installed

    if text and not is_installed():
        raise SightlineError("reading text in images needs another package", INSTALL)
    places = [named_path(folder).resolve() for folder in folders or []]
    collection = location(at, places)
    if at is None and places and not has_manifest(collection) and (around := enclosing(places[0])):
        update = shlex.join(["sightline", "index", "--at", str(around), str(places[0])])
        tell(f"Creating a collection inside that of {around}. To update that one instead: {update}")
    chosen = model_for_indexing(collection, model)
    try:
        with _answering_ctrl_c(), named_options(), indexing() as progress:
            report = sightline.index(
                places,
                at=collection,
                model=chosen,
                progress=progress,
                notify=tell,
                prune=prune,
                retry=retry,
                workers=workers,
                store=store,
                quick=quick,
                refine=refine,
            )
    except KeyboardInterrupt as interrupted:
        so_far = interrupted.report if isinstance(interrupted, IndexingInterrupted) else None
        done = so_far if so_far and so_far.counts else "nothing has been done yet"
        tell(f"sightline: interrupted; {done}\nProgress is saved; run the same command to continue.")
        raise typer.Exit(130) from None
    print_lines(*report_lines(report, model if model and not _finds_again(model) else None))
    if report.kind == "images" and text is not False and is_installed():
        _read_text(report.at, retry=retry)


def _read_text(at: Path, retry: bool) -> None:
    """Read the text in images not yet read, and report the result; the collection can be searched in the meantime."""
    from sightline.cli.formatting import problem_lines
    from sightline.cli.progress import indexing
    from sightline.collection.image_text.reading import pending, read_text_in_images

    left = pending(at)
    if not left and not retry:
        return
    tell(f"Reading the text in {left:,} images; you can search meanwhile. Ctrl-C stops; the next index continues.")
    try:
        with _answering_ctrl_c(), indexing("read the text of", "loading the text reader") as progress:
            report = read_text_in_images(at, progress, retry=retry)
    except KeyboardInterrupt:
        tell("sightline: interrupted; the text read so far is kept.")
        raise typer.Exit(130) from None
    failed = [(one.path, one.reason) for one in report.failed]
    print_lines(f"Text: {report}", *problem_lines("Text not read", failed))


def _finds_again(model: str) -> bool:
    """Return whether searches can find the model: it is the default one, or a bundle whose folder is recorded."""
    from sightline.bundle.layout import SPEC_FILE
    from sightline.registry.loader import without_fast

    whole = without_fast(model)
    return whole == "default" or (Path(whole) / SPEC_FILE).is_file()


@contextmanager
def _answering_ctrl_c() -> Iterator[None]:
    """Report Ctrl-C at once, because finishing takes a while; a second one exits immediately.

    Neither loses data: the collection is always consistent.
    """

    def interrupted(*_: object) -> NoReturn:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        tell_at_once("finishing what has started; press Ctrl-C again to stop at once")
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # for example, if it is ignored
        yield
        return
    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def search(
    words: Annotated[list[str] | None, typer.Argument(metavar="QUERY", help="A description of what to find.")] = None,
    at: SeveralAt = None,
    image: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Search by image, alone or with a text.")
    ] = None,
    image_weight: Annotated[
        float | None,
        typer.Option(metavar="W", help="Weight of the image in a query with text and image, 0 to 1. By default 0.5."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--not", metavar="TEXT", help="What results should not show. May be repeated.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="EXPR", help="A filter: \"taken >= '2023-06-01' and path like 'holiday/%'\".")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many results.")] = 10,
    start: Annotated[int, typer.Option(metavar="N", help="Skip the first N results.")] = 0,
    late: Annotated[
        str | None, typer.Option(metavar="K|all", help="Rescore the K best by late interaction, or rank all by it.")
    ] = None,
    late_fragments: Annotated[
        int | None, typer.Option(metavar="L", help="Use only the first L fragments in late interaction.")
    ] = None,
    rerank: Annotated[
        int | None,
        typer.Option(metavar="K", help="Rescore the K best by matching; 0 is fastest. By default the model decides."),
    ] = None,
    fusion: Annotated[
        FusionRule | None,
        typer.Option(help="How match and embed scores are combined. By default the model decides."),
    ] = None,
    weight: Annotated[float | None, typer.Option(metavar="W", help="Weight of the embed score in the fusion.")] = None,
    min_relevance: Annotated[
        float | None, typer.Option(metavar="P", help="Hide results below this relevance (0 to 1).")
    ] = None,
    budget_ms: Annotated[
        float | None, typer.Option(metavar="N", help="Time limit: rerank as much as fits in N milliseconds.")
    ] = None,
    duplicates: Annotated[
        Literal["fold", "show"], typer.Option(help="Fold images that look the same into one result, or show them all.")
    ] = "fold",
    lang: Annotated[
        str | None, typer.Option(metavar="CODE", help="Language of QUERY, such as de. Detected by default.")
    ] = None,
    model: CollectionModel = None,
    literal: Annotated[
        bool, typer.Option("--literal", help='Search for phrases such as "last summer" as words, not as filters.')
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
    paths: Annotated[bool, typer.Option("--paths", help="Write only the paths, one per line.")] = False,
    null: Annotated[
        bool, typer.Option("--null", "-0", help="With --paths: end each path with a zero byte, for xargs -0.")
    ] = False,
    thumbnails: Annotated[bool, typer.Option(help="Show thumbnails if the terminal supports them.")] = True,
) -> None:
    """Find what matches QUERY best. With --where alone, list all matches, newest first.

    The exit code is 0 even if nothing is found.
    """
    import sightline
    from sightline.cli.formatting import Form, show, show_items
    from sightline.collection.group import browse_group, check_group, search_group
    from sightline.collection.locate import resolve_location
    from sightline.retrieval.options import SearchOptions

    if as_json and (paths or null):
        raise SightlineError("--json cannot be combined with --paths", "The JSON has the path of every result.")
    form: Form = "json" if as_json else "null" if null else "paths" if paths else "lines"
    text = " ".join(words) if words else None
    places = dict.fromkeys(resolve_location(place) for place in at or (None,))
    with named_options(), ExitStack() as opened:
        collections = [opened.enter_context(sightline.open(place, model=model)) for place in places]
        lang_given = lang is not None
        if text and not literal:
            text, where, lang = _understood(text, where, lang, collections)
        options = SearchOptions(
            text=text,
            image=_one_image(image),
            image_weight=_weight(image_weight, text, image),
            not_=tuple(without or ()),
            where=where,
            k=k,
            start=start,
            late=_how_many(late),
            late_fragments=late_fragments,
            rerank=rerank,
            fusion=fusion,
            weight=weight,
            min_relevance=min_relevance,
            budget_ms=budget_ms,
            duplicates=duplicates,
            lang=lang,
        )
        if where is not None and not text and not image:
            _check_only_filtered(options)
            items = browse_group(collections, where, k=k, start=start)
            with results():
                show_items(items, form, start)
            return
        check_group(collections)
        result = search_group(collections, options).flat()
    with results():
        show(result, form, min_relevance, thumbnails, start, lang_given=lang_given)


def _one_image(images: list[str] | None) -> str | None:
    """Return the image to search by; raises an error for several, and for a URL."""
    if images and len(images) > 1:
        raise OptionError("image", "was given several times", "Search by one image at a time.")
    if images and "://" in images[0]:
        raise OptionError("image", f"must be a file, not {images[0]}", "Download it first.")
    return images[0] if images else None


def _weight(weight: float | None, text: str | None, image: list[str] | None) -> float:
    """Return the weight of the image; raises an error if it was given for a query without both text and image."""
    if weight is not None and not (text and image):
        raise OptionError("image_weight", "has no effect without both a text and an image", "Leave it out.")
    return 0.5 if weight is None else weight


def _check_only_filtered(options: "SearchOptions") -> None:
    """Refuse options that have no effect on a list of everything that passes a filter."""
    usual = type(options)()
    for name in ("not_", "min_relevance", "late", "late_fragments", "rerank", "fusion", "weight", "budget_ms"):
        if getattr(options, name) != getattr(usual, name):
            raise OptionError(
                name, "has no effect without words or an image", "Say what to search for, or leave it out."
            )


def _understood(
    text: str, where: str | None, lang: str | None, collections: Sequence["Collection"]
) -> tuple[str | None, str | None, str | None]:
    """Return the query without its dates, names and folders, the filter built from them, and the query's language.

    Reports the filters on stderr, and dates from which there are no images.
    """
    every = [one.understand(text, lang=lang) for one in collections if one.kind == "images"]
    found = max(every, key=lambda one: len(one.phrases), default=None)
    if found is None:
        return text, where, lang
    for phrase in found.unmatched:
        tell(f"No images match {phrase.text!r} ({phrase.label}), so its words are searched for.")
    if found.where is None:
        return text, where, lang
    filters = ", ".join(f"{phrase.text!r} ({phrase.label})" for phrase in found.phrases)
    tell(f"Filtered by {filters}. To search for these words instead: --literal")
    return found.words or None, f"({where}) and {found.where}" if where else found.where, found.lang


def _how_many(late: str | None) -> int | Literal["all"] | None:
    if late is None or late == "all":
        return late  # type: ignore[return-value]
    if not late.isdecimal():
        raise OptionError("late", f"must be a whole number or 'all', not {late!r}")
    return int(late)


def serve(
    at: SeveralAt = None,
    host: Annotated[str, typer.Option(help="Address to listen on. Any but localhost needs a token.")] = ("127.0.0.1"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")] = 8000,
    token: Annotated[str | None, typer.Option(envvar="SIGHTLINE_TOKEN", help="Token that clients must send.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Index changes in the folders while serving.")] = False,
    text: Annotated[
        bool | None,
        typer.Option(
            "--text/--no-text",
            envvar="SIGHTLINE_READ_TEXT",
            show_default=False,
            help="Read the text in images in the background. On by default if the ocr extra is installed.",
        ),
    ] = None,
    model: CollectionModel = None,
) -> None:
    """Serve collections: a search page, and an HTTP API (described at /docs)."""
    try:
        from sightline.server.run import serve as run
    except ImportError as error:
        raise SightlineError(f"serving needs more packages: {error}", install_extra("serve")) from error
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service manager's SIGTERM acts like Ctrl-C
    try:
        run(
            list(at) if at else None,
            host=host,
            port=port,
            token=token,
            model=model,
            watch=watch,
            read_text=text,
            notify=tell,
            force_exit=True,
        )
    except KeyboardInterrupt:
        tell("sightline: stopped")
    finally:
        signal.signal(signal.SIGTERM, before)
