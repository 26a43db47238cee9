"""Evaluate a model on a test set in several languages: mR by language, and the mean (papers 1 and 4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sightline.bundle.model import Model
from sightline.datasets import Problem, Record
from sightline.errors import EvaluationError
from sightline.evaluation.encodings import Needs, Progress, SharedImages, usual_batch
from sightline.evaluation.evaluator import evaluate
from sightline.evaluation.protocols import protocol_named
from sightline.evaluation.result import Evaluation, Recalls
from sightline.evaluation.test_set import Questions, translated_ahead


@dataclass(frozen=True, slots=True)
class Languages(Recalls):
    """The evaluations in each of several languages. The combined numbers are means over the languages.

    If a language has captions for only some of the images, it is evaluated on those. Galleries then differ in size: see
    `images` of each evaluation.
    """

    evaluations: Mapping[str, Evaluation]

    def parts(self) -> list[tuple[dict[str, float], dict[str, float]]]:
        """Return the recall summaries of each language."""
        return [(found.text_to_image, found.image_to_text) for found in self.evaluations.values()]

    @property
    def unreadable(self) -> tuple[Problem, ...]:
        """The unreadable images, without repetition."""
        return tuple(dict.fromkeys(one for found in self.evaluations.values() for one in found.unreadable))

    def to_json(self) -> dict[str, Any]:
        """Return the means, named as in a single result, the mR of each language, and every full result."""
        results = {lang: found.to_json() for lang, found in self.evaluations.items()}
        first = next(iter(results.values()))
        return {
            **{name: first[name] for name in ("model", "data", "protocol", "stages")},
            "lang": list(results),
            **self.numbers(),
            "mR_by_language": {lang: result["mR"] for lang, result in results.items()},
            "languages": results,
        }


def evaluate_languages(
    model: Model,
    records: Sequence[Record],
    languages: Sequence[str],
    *,
    late: int | None = None,
    rerank: int | None = None,
    distractors: Sequence[Record] = (),
    batch_size: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Languages:
    """Evaluate in several languages; the images are encoded once.

    options: as for `evaluate`. Records without captions in a language are skipped, and counted, for that language.
    """
    if not languages or len(set(languages)) < len(languages):
        raise EvaluationError(f"invalid languages: {list(languages)}", "Specify at least one, and each only once.")
    asks = protocol_named(options.get("protocol", "karpathy")).asks
    asked = {  # before any image is encoded, because data or a translator may fail
        lang: Questions.of(records, lang, distractors, skip_missing_language=True, asks=asks) for lang in languages
    }
    if (translate := options.get("translate")) is not None:
        options["translate"] = translated_ahead({lang: one.captions for lang, one in asked.items()}, translate)
    sources = [record.image for record in (*records, *distractors)]
    needs = Needs(fragments=bool(late), states=bool(rerank) and options.get("matcher") is None)
    batch_size = usual_batch(model) if batch_size is None else batch_size
    shared = SharedImages(model, sources, needs, batch_size, progress)
    options |= {"late": late, "rerank": rerank, "distractors": distractors, "batch_size": batch_size}
    options |= {"progress": progress, "skip_missing_language": True, "shared": shared}
    return Languages({lang: evaluate(model, records, lang=lang, **options) for lang in languages})
