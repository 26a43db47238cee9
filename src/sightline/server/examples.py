"""Example searches: everyday subjects that the collection contains."""

import threading
from weakref import WeakKeyDictionary

from sightline.bundle.model import Model
from sightline.collection import Collection

SUBJECTS = (
    "a dog", "a cat", "birds", "horses", "flowers", "a tree", "a forest", "mountains", "the sea", "a beach", "a lake",
    "a river", "a sunset", "snow", "rain", "the night sky", "a city street", "a building", "a church", "a castle",
    "a bridge", "a boat", "a train", "a car", "a bicycle", "an airplane", "a child playing", "a group of people",
    "a portrait of a woman", "a portrait of a man", "people making music", "people dancing", "sports", "a wedding",
    "a birthday cake", "food on a plate", "fruit", "a cup of coffee", "a book", "a computer", "a room", "a garden",
    "a painting", "a statue", "a sign with text", "a document", "a screenshot", "a map",
)  # fmt: skip
SHOWN = 6
"""The maximum number of examples."""
_LIKELY = 0.3  # the minimum relevance of the best result


class Examples:
    """Caches the examples for each collection while the collection is open."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Collection, list[str]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, collection: Collection, model: Model) -> list[str]:
        """Return a few searches that are likely to find something, each with a different best result."""
        with self._lock:
            found = self._known.get(collection)
            if found is None:
                found = self._known[collection] = find_examples(collection, model)
            return found


def find_examples(collection: Collection, model: Model) -> list[str]:
    """Search for everyday subjects, and return the few with the best results; empty for a collection of texts."""
    if collection.kind != "images" or not len(collection):
        return []
    results = collection.search_together(SUBJECTS, k=1, lang="en" if "en" in model.languages else None, model=model)
    sure = [(result[0].relevance or 0.0, result) for result in results if len(result)]
    likely = sorted((one for one in sure if one[0] >= _LIKELY), key=lambda one: -one[0])
    chosen: list[str] = []
    taken: set[int] = set()
    for _, result in likely:
        if len(chosen) < SHOWN and result[0].id not in taken:
            taken.add(result[0].id)
            chosen.append(str(result.query))
    return chosen
