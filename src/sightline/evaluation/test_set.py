"""A test set as flat lists: images, captions, the image of each caption, and translations of captions."""

import hashlib
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sightline.arrays import Int64Array
from sightline.datasets import Record
from sightline.errors import DataError, EvaluationError
from sightline.media import ImageSource

Translator = Callable[[Sequence[str], str], Sequence[str]]
"""Translates texts from a given language; returns one translation per text, in the same order."""


@dataclass(frozen=True, slots=True)
class Questions:
    """The images used as queries, with all their captions in one language, and distractor images.

    image_of: [captions], the index in `images` of each caption's image. skipped: the number of records left out because
    they have no captions in the language. asked: how many of the images are queries, which come first; the others and
    their captions only enlarge the galleries. keys: the keys of the images, then those of the distractors.
    """

    images: tuple[ImageSource, ...]
    captions: tuple[str, ...]
    image_of: Int64Array
    distractors: tuple[ImageSource, ...]
    skipped: int
    fingerprint: str
    asked: int
    keys: tuple[str, ...] = ()

    @staticmethod
    def of(
        records: Sequence[Record],
        lang: str,
        distractors: Sequence[Record] = (),
        skip_missing_language: bool = False,
        asks: str | None = None,
    ) -> "Questions":
        """Collect records; one without captions in `lang` is rejected, or skipped with `skip_missing_language`.

        Distractors contribute only images (see `protocols`). None may be among the records, because it would tie with
        itself. `asks` names the split with the queries: records of other splits only enlarge the galleries, together
        with their captions or, if they have none in `lang`, as distractors.
        """
        wanted = _of_split(records, asks) if asks is not None else records
        asked = [record for record in wanted if record.captions.get(lang)] if skip_missing_language else wanted
        if not asked:
            raise DataError(
                f"none of {len(wanted)} records has captions in {lang!r}" if records else "no records to evaluate on",
                "Choose another data set, split or language.",
            )
        others = [record for record in records if record.split != asks] if asks is not None else []
        shown = [*asked, *(record for record in others if record.captions.get(lang))]
        distractors = [*(record for record in others if not record.captions.get(lang)), *distractors]
        _refuse_repeated(shown, distractors)
        captions = [record.captions_in(lang) for record in shown]
        return Questions(
            images=tuple(record.image for record in shown),
            captions=tuple(caption for some in captions for caption in some),
            image_of=np.repeat(np.arange(len(shown)), [len(some) for some in captions]),
            distractors=tuple(record.image for record in distractors),
            skipped=len(wanted) - len(asked),
            fingerprint=_fingerprint(shown, captions),
            asked=len(asked),
            keys=tuple(record.key for record in (*shown, *distractors)),
        )

    def caption_names(self) -> list[str]:
        """Return the name of every caption in result files: its image's key, and its number for that image."""
        first = np.searchsorted(self.image_of, self.image_of)
        numbers = np.arange(len(first)) - first
        return [f"{self.keys[image]}#{number}" for image, number in zip(self.image_of, numbers, strict=True)]


def _of_split(records: Sequence[Record], split: str) -> list[Record]:
    """Return the records of a split; raises an error if there are none, or if there are no others."""
    found = [record for record in records if record.split == split]
    if not 0 < len(found) < len(records):
        which = "all" if found else "none"
        raise DataError(
            f"protocol 'full' needs records in split {split!r} and in other splits, but {which} are in {split!r}",
            "Use the data of all splits: train, val and test.",
        )
    return found


def _refuse_repeated(records: Sequence[Record], distractors: Sequence[Record]) -> None:
    for key, count in Counter(record.key for record in records).items():
        if count > 1:
            raise DataError(f"two records have the key {key!r}", "List each image once, with all its captions.")
    names = {record.image.name for record in records}
    for name, count in Counter([*names, *(record.image.name for record in distractors)]).items():
        if count > 1:
            raise DataError(
                f"{name} is in the gallery twice",
                "Remove images of the test set and repeated ones from the distractors.",
            )


def _fingerprint(records: Sequence[Record], captions: Sequence[tuple[str, ...]]) -> str:
    digest = hashlib.sha256()
    for record, some in zip(records, captions, strict=True):
        digest.update("\0".join((record.key, *some, "")).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def command_translator(command: str) -> Translator:
    """Translate with a command that reads one text per line and writes one translation per line, in UTF-8.

    `{lang}` in the command is replaced by the language of the texts. No shell is run. (Translate-test: paper 4,
    section 4.4.)
    """
    parts = shlex.split(command)
    if not parts:
        raise EvaluationError("the translator's command is empty", 'For example --translate "my-translator {lang} en".')

    def translate(texts: Sequence[str], lang: str) -> list[str]:
        called = [part.replace("{lang}", lang) for part in parts]
        name = f"the translator {shlex.join(called)}"
        lines = "".join(" ".join(text.split()) + "\n" for text in texts)
        try:
            done = subprocess.run(called, input=lines.encode(), capture_output=True, check=True)
            return done.stdout.decode().removesuffix("\n").split("\n")
        except OSError as error:
            raise EvaluationError(f"{name} cannot be run: {error}") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip().splitlines()
            reason = said[-1] if said else "no message"
            raise EvaluationError(f"{name} failed with exit code {error.returncode}: {reason}") from error
        except UnicodeDecodeError as error:
            raise EvaluationError(f"the output of {name} is not valid UTF-8: {error}") from error

    translate.__name__ = command
    return translate


def translated(texts: Sequence[str], lang: str, translate: Translator) -> tuple[str, ...]:
    """Translate texts; reject missing, extra or empty translations, because each must correspond to one text."""
    found = tuple(translate(texts, lang))
    if len(found) != len(texts):
        raise EvaluationError(
            f"the translator returned {len(found)} texts for {len(texts)}",
            "It must write one line for each line it reads, in order.",
        )
    for text, translation in zip(texts, found, strict=True):
        if not translation.strip():
            raise EvaluationError(f"the translator returned nothing for {text!r}")
    return found


def translated_ahead(texts: Mapping[str, Sequence[str]], translate: Translator) -> Translator:
    """Translate all texts, by language; returns a translator with the same name that already knows them."""
    known = {lang: translated(some, lang, translate) for lang, some in texts.items()}

    def ready(_: Sequence[str], lang: str) -> Sequence[str]:
        return known[lang]

    ready.__name__ = translator_name(translate)
    return ready


def translator_name(translate: Translator) -> str:
    """Return the name of a translator, for results."""
    return getattr(translate, "__name__", type(translate).__name__)
