"""Captions for class names from WordNet: synonyms, hypernyms and glosses.

Reads the files of WordNet 3 (`index.noun`, `data.noun`), as Debian's package wordnet-base installs them in
/usr/share/wordnet.
"""

from dataclasses import dataclass
from pathlib import Path

from sightline.errors import DataError

# Lexicographer files for visible things: animal, artifact, body, food, location, object, person, plant and
# substance. For a name with several senses, the first sense in one of these is used.
_VISIBLE = frozenset({5, 6, 8, 13, 15, 17, 18, 20, 27})


@dataclass(frozen=True, slots=True)
class Sense:
    """One meaning of a noun: its words, the offsets of its hypernyms, and its gloss."""

    file: int
    words: tuple[str, ...]
    kinds: tuple[str, ...]
    gloss: str


class WordNet:
    """The nouns of WordNet, read from a folder with its files."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        try:
            index = (folder / "index.noun").read_text(encoding="utf-8").splitlines()
            data = (folder / "data.noun").read_text(encoding="utf-8").splitlines()
        except OSError as error:
            way_out = "Use a folder with index.noun and data.noun, such as Debian's /usr/share/wordnet (wordnet-base)."
            raise DataError(f"{folder}: WordNet cannot be read: {error}", way_out) from error
        self._senses = dict(_sense(line) for line in data if not line.startswith("  "))
        self._offsets = dict(_entry(line) for line in index if not line.startswith("  "))

    def captions(self, name: str) -> list[str]:
        """Return the captions for a class name; empty if WordNet does not contain it.

        For "tench" these are "tinca tinca", "tench, a cyprinid", "a tench, a kind of cyprinid" and "tench: freshwater
        game fish".
        """
        sense = self._meaning(name)
        if sense is None:
            return []
        found = [word.lower() for word in sense.words if word.lower() != name]
        for kind in (self._senses[offset].words[0].lower() for offset in sense.kinds):
            found += [f"{name}, {_with_article(kind)}", f"{_with_article(name)}, a kind of {kind}"]
        return [*found, f"{name}: {sense.gloss}"] if sense.gloss else found

    def _meaning(self, name: str) -> Sense | None:
        key = name.lower().replace(" ", "_")
        offsets = self._offsets.get(key) or self._offsets.get(key.removesuffix("s"), ())
        senses = [self._senses[offset] for offset in offsets]
        seen = [sense for sense in senses if sense.file in _VISIBLE] or senses
        common = [sense for sense in seen if any(word.islower() for word in sense.words)]  # a crane, not Stephen Crane
        return next(iter(common or seen), None)


def _entry(line: str) -> tuple[str, tuple[str, ...]]:
    """Read a line of index.noun: lemma, type, synsets, pointers, [pointer…], senses, tagged, offset…."""
    fields = line.split()
    return fields[0], tuple(fields[6 + int(fields[3]) :])


def _sense(line: str) -> tuple[str, Sense]:
    """Read a line of data.noun: offset file type words [word id]… pointers, [symbol offset type ends]… | gloss."""
    head, _, gloss = line.partition("|")
    fields = head.split()
    count = int(fields[3], 16)
    words = tuple(word.replace("_", " ") for word in fields[4 : 4 + 2 * count : 2])
    pointers = fields[5 + 2 * count :]
    targets = zip(pointers[::4], pointers[1::4], strict=False)
    kinds = tuple(offset for symbol, offset in targets if symbol in ("@", "@i"))
    return fields[0], Sense(int(fields[1]), words, kinds, gloss.split(";")[0].split('"')[0].strip())


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
