"""Sightline at work: the pictures that come with it are indexed, and searched by words, by a picture, and in vain."""

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
    """A search to show, and what is said before it. `image` names one of the pictures."""

    says: str
    text: str = ""
    image: str = ""
    without: str = ""
    rerank: int | None = None
    min_relevance: float | None = None

    def command(self) -> str:
        """The same search, as a user would type it."""
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


PANDA = "a red panda on a tree"
QUESTIONS = (
    Question("Say what you look for. Beside each answer is how likely it is to be that:", "half a fruit in a red bowl"),
    Question("A quick look goes by the overall impression, and is not always right:", PANDA, rerank=0),
    Question("So, unless you say otherwise, the best twenty are looked at again, each beside your words:", PANDA),
    Question("Say what you do not want to see:", "a woman in uniform", without="an astronaut"),
    Question("A picture asks as well. The first answer is that picture itself:", image="cat-face.jpg"),
    Question("And what is not there is not found:", "people playing football", min_relevance=0.1),
)


def run(folder: Path, model: str | Path | Model = "default") -> Iterator[str]:
    """Index the pictures into `folder`, search them, and tell line by line what is done and found."""
    from sightline.cli.progress import indexing
    from sightline.collection import Collection, index
    from sightline.registry.loader import load

    opened = load(model) if isinstance(model, str | Path) else model
    count = len(list(PICTURES.glob("*.jpg")))
    yield f"{count} pictures come with Sightline. It looks at each of them once; their names play no part."
    with indexing() as progress:
        report = index(PICTURES, at=folder, model=opened, progress=progress)
    yield f"  {report.new} pictures in {report.seconds:.0f} seconds. From now on, only new ones need a look."
    with Collection.open(folder, opened) as collection:
        for question in QUESTIONS:
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
    """A line a hit, with how sure the model is that it was meant; or an honest no."""
    yield from map(_line, found.hits)
    if not found.hits:
        best = "" if found.best_relevance is None else f" The best guess is {percent(found.best_relevance)} likely."
        yield f"  Nothing found.{best}"


def _line(hit: Hit) -> str:
    sure = f"{hit.rank}." if hit.relevance is None else percent(hit.relevance)
    return f"  {sure:>4}  {hit.path}"
