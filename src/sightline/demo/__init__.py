"""A demo: index the included images, and search them by text and by image."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sightline.bundle.model import Model
from sightline.cli.formatting import percent
from sightline.retrieval.results import Hit, SearchResult

PICTURES = Path(__file__).parent / "pictures"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Question:
    """A search in the demo. `says` introduces it; `image` is the file name of one of the included images.

    lang: the language of the text; the search is left out if the model does not read it.
    """

    says: str
    text: str = ""
    image: str = ""
    without: str = ""
    rerank: int | None = None
    min_relevance: float | None = None
    lang: str = "en"

    def command(self) -> str:
        """Return the command that runs the same search."""
        parts = ["sightline search"]
        if self.text:
            parts.append(f'"{self.text}"')
        if self.image:
            parts.append(f"--image {self.image}")
        if self.without:
            parts.append(f'--not "{self.without}"')
        if self.rerank is not None:
            parts.append(f"--rerank {self.rerank}")
        if self.min_relevance is not None:
            parts.append(f"--min-relevance {self.min_relevance:g}")
        return " ".join(parts)


BOX = "a cat in a box"
QUESTIONS = (
    Question(
        "Describe what you are looking for. Each result shows how likely it is to match:", "a kitten playing with yarn"
    ),
    Question("A fast search compares overall impressions, and is not always right:", BOX, rerank=0),
    Question("So by default, the best twenty are compared with your words more closely:", BOX),
    Question("Your own language works, too:", "ein Hund", lang="de"),
    Question("Exclude what you do not want to see:", "a woman in uniform", without="an astronaut"),
    Question("Search by image. The first result is that image itself:", image="cat-face.jpg"),
    Question("And nothing is found if nothing matches:", "people playing football", min_relevance=0.1),
)


def questions(model: Model) -> list[Question]:
    """Return the searches in languages that the model reads."""
    return [one for one in QUESTIONS if one.lang in model.languages]


def run(folder: Path, model: str | Path | Model = "default") -> Iterator[str]:
    """Index the images into `folder` and search them; yields the lines to print."""
    from sightline.cli.progress import indexing
    from sightline.collection import Collection, index
    from sightline.registry.loader import load

    opened = load(model) if isinstance(model, str | Path) else model
    count = len(list(PICTURES.glob("*.jpg")))
    yield f"{count} pictures come with Sightline. Each is encoded once; file names are not used."
    with indexing() as progress:
        report = index(PICTURES, at=folder, model=opened, progress=progress)
    seconds = f"{report.seconds:.0f} seconds"
    yield f"  {report.new} pictures in {seconds}. In your own folders, only new ones are read next time."
    with Collection.open(folder, opened) as collection:
        for question in questions(opened):
            found = collection.search(
                question.text or None,
                k=_SHOWN,
                rerank=question.rerank,
                image=PICTURES / question.image if question.image else None,
                not_=[question.without] if question.without else [],
                min_relevance=question.min_relevance,
            )
            yield from ("", question.says, f"$ {question.command()}", *_answer(found))
    yield from (
        "",
        "Now your own pictures:",
        "  cd ~/Pictures",
        "  sightline index .",
        '  sightline search "a dog on a beach"',
    )


def _answer(found: SearchResult) -> Iterator[str]:
    """Yield a line for each hit with its relevance, or a line saying that nothing was found."""
    yield from map(_line, found.hits)
    if not found.hits:
        best = "" if found.best_relevance is None else f" The best guess is {percent(found.best_relevance)} likely."
        yield f"  Nothing found.{best}"


def _line(hit: Hit) -> str:
    sure = f"{hit.rank}." if hit.relevance is None else percent(hit.relevance)
    return f"  {sure:>4}  {hit.path}"
