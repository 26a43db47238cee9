"""`sightline status` and `remove`: show what a collection contains, and remove files from it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sightline.cli.console import print_json, print_lines, tell
from sightline.cli.options import CollectionModel, SeveralAt
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.collection.status import CollectionStatus


def status(
    at: SeveralAt = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Show what is indexed, and what could not be indexed and why."""
    from sightline.collection.status import status

    found = [status(place) for place in at] if at else [status()]
    if as_json:
        print_json({"collections": [one.to_json() for one in found]})
        return
    for one in found:
        print_lines(*_lines(one))


def _lines(found: "CollectionStatus") -> Iterator[str]:
    from sightline.cli.formatting import GROUPED, printable, problem_lines, refine_line

    copies = f", {found.copies:,} exact {'copy' if found.copies == 1 else 'copies'}" if found.copies else ""
    size = f"; {found.bytes / 1e6:.1f} MB" if found.bytes else ""  # unknown for a store on a server
    yield f"{printable(found.at)}: {found.items:,} {found.kind}{copies}; model {found.model}{size}"
    for root in found.roots:
        missing = "" if root.exists else "  (currently missing)"
        broken = f", {root.broken:,} broken" if root.broken else ""
        yield f"  {printable(root.path)}: {root.ready:,} files{broken}{missing}"
    if found.suffixes:
        counts = [f"{count:,} {suffix or 'without suffix'}" for suffix, count in found.suffixes.items()]
        yield f"Files: {', '.join(counts)}"
    if found.to_refine:
        yield refine_line(found.to_refine, found.at)
    if found.text is not None:
        failed = f", {found.text.failed:,} failed" if found.text.failed else ""
        yield f"Text: read in {found.text.read:,} images, {found.text.with_text:,} of them with text{failed}"
    if found.albums:
        yield "Albums: " + ", ".join(f"{printable(name)} ({count:,})" for name, count in sorted(found.albums.items()))
    yield from problem_lines("Cannot be read", [(one.path, one.reason) for one in found.broken], GROUPED)
    yield from problem_lines("Text not read", [(one.path, one.reason) for one in found.text_problems], GROUPED)


def remove(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="Folders or files to remove from the collection.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="DIR", help="The collection. By default the nearest .sightline.")
    ] = None,
    everything: Annotated[bool, typer.Option("--everything", help="Delete the whole collection.")] = False,
    model: CollectionModel = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove folders or files from a collection, or delete it. Your files are not touched."""
    from sightline.collection.indexing.remove import delete_collection, remove
    from sightline.collection.locate import find_collection

    if everything == bool(paths):
        problem = "PATHs cannot be combined with --everything" if paths else "no PATHs to remove"
        raise SightlineError(problem, "Specify PATHs or --everything. `sightline status` lists what is indexed.")
    found = find_collection(at)
    if not yes:
        what = "the whole collection, with its albums," if everything else ", ".join(paths or ())
        typer.confirm(f"Remove {what} from {found}? Your files stay.", abort=True)
    if everything:
        tell(f"Deleted the collection {delete_collection(at, notify=tell)}")
        return
    count = remove(paths or [], at, model=model, notify=tell)
    tell(f"Removed {count:,} file{'' if count == 1 else 's'} from {found}")
