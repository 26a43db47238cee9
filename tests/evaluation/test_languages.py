"""Several languages, and translate-test with a small dictionary for a translator."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from evaluation.made_up import COUNTS, IMAGE_OF, MadeUp, made_up, records
from sightline.bundle import Bundle
from sightline.cli import app
from sightline.datasets import Record
from sightline.demo.shapes import shapes
from sightline.errors import DataError, EvaluationError
from sightline.evaluation import command_translator, evaluate, evaluate_languages, table
from sightline.media import image_source

NUMBERS = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
TRANSLATOR = """
import sys
numbers = {numbers!r}
for line in sys.stdin:
    first, *rest = line.split()
    print("".join(str(numbers.index(digit)) for digit in first.split("-")), *rest)
"""


def german(caption: str) -> str:
    """The caption with its number in words: what the model cannot read."""
    number, *rest = caption.split()
    return " ".join(["-".join(NUMBERS[int(digit)] for digit in number), *rest])


def dictionary(texts: Sequence[str], lang: str) -> list[str]:
    """The translator: German numbers, word by word."""
    assert lang == "de"
    found = []
    for first, *rest in (text.split() for text in texts):
        found.append(" ".join(["".join(str(NUMBERS.index(word)) for word in first.split("-")), *rest]))
    return found


@pytest.fixture
def bilingual() -> list[Record]:
    """English for all pictures; German, one caption each, for all but the first two."""
    return [
        dataclasses.replace(
            one, captions={**one.captions, **({"de": (german(one.captions_in("en")[0]),)} if number > 1 else {})}
        )
        for number, one in enumerate(records())
    ]


def test_translated_captions_rank_as_the_originals_do(bilingual: list[Record]) -> None:
    in_english = [dataclasses.replace(one, captions={"en": one.captions["en"][:1]}) for one in bilingual[2:]]
    expected = evaluate(made_up(), in_english)
    found = evaluate(made_up(), bilingual[2:], lang="de", translate=dictionary)
    for one, other in zip(found.ranks(), expected.ranks(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.to_json()["translated_by"] == "dictionary"
    assert found.lang == "de"
    assert "translated_by" not in expected.to_json()


def test_captions_are_translated_before_an_image_is_encoded(bilingual: list[Record]) -> None:
    done: list[str] = []

    def watched(texts: Sequence[str], lang: str) -> Sequence[str]:
        done.append(f"translate {lang}")
        return dictionary(texts, lang) if lang == "de" else texts

    def progress(part: str, *_: int) -> None:
        done.append(part)

    found = evaluate(made_up(), bilingual[2:], lang="de", translate=watched, progress=progress)
    assert done[:2] == ["translate de", "encode_images"]
    done.clear()
    several = evaluate_languages(made_up(), bilingual, ["en", "de"], translate=watched, progress=progress)
    assert done[:3] == ["translate en", "translate de", "encode_images"]
    assert done.count("translate de") == 1
    assert several.evaluations["de"].translated_by == found.translated_by == "watched"
    np.testing.assert_array_equal(several.evaluations["de"].ranks()[0], found.ranks()[0])


def test_a_command_translates_line_by_line(tmp_path: Path, bilingual: list[Record]) -> None:
    script = tmp_path / "translate.py"
    script.write_text(TRANSLATOR.format(numbers=NUMBERS), encoding="utf-8")
    command = f"{sys.executable} -X utf8 {script} {{lang}} en"
    translate = command_translator(command)
    assert translate(["drei about\n 0", "eins-zwei x"], "de") == ["3 about 0", "12 x"]
    by_command, by_function = (
        evaluate(made_up(), bilingual[2:], lang="de", translate=how) for how in (translate, dictionary)
    )
    np.testing.assert_array_equal(by_command.ranks()[0], by_function.ranks()[0])
    assert by_command.translated_by == command


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('one line')", "returned 1 texts for 2"),
        ("[print(line) for line in 'abc']", "returned 3 texts for 2"),
        ("print('a\\n')", "returned nothing for 'two'"),
        ("import sys; print('no such language', file=sys.stderr); sys.exit(3)", "exit code 3: no such language"),
        ("import sys; sys.stdout.buffer.write(bytes([255, 10, 255, 10]))", "is not valid UTF-8"),
    ],
)
def test_a_translator_that_does_not_give_a_text_for_each_is_refused(code: str, said: str) -> None:
    from sightline.evaluation.test_set import translated

    with pytest.raises(EvaluationError, match=said):
        translated(["one", "two"], "de", command_translator(f'{sys.executable} -c "{code}"'))


def test_a_translator_that_is_not_there_is_named() -> None:
    with pytest.raises(EvaluationError, match="the translator no-such-program de cannot be run"):
        command_translator("no-such-program {lang}")(["a"], "de")
    with pytest.raises(EvaluationError, match="is empty"):
        command_translator(" ")


class Polyglot(MadeUp):
    """Reads German numbers too, badly: it takes each for the next."""

    looked = 0

    def encode_images(self, pixels: np.ndarray) -> object:  # type: ignore[override]
        self.looked += len(pixels)
        return super().encode_images(pixels)

    def encode_texts(self, texts: Sequence[str]) -> object:  # type: ignore[override]
        plain = [text if text[0].isdigit() else dictionary([text], "de")[0] for text in texts]
        turned = [f"{(int(p.split()[0]) + (p != t)) % len(IMAGE_OF)} x" for p, t in zip(plain, texts, strict=True)]
        return super().encode_texts(turned)


def polyglot() -> Polyglot:
    return Polyglot(**{field.name: getattr(made_up(), field.name) for field in dataclasses.fields(MadeUp)})


def test_languages_are_each_evaluated_as_alone_and_pictures_are_encoded_once(bilingual: list[Record]) -> None:
    model = polyglot()
    found = evaluate_languages(model, bilingual, ["en", "de"], late=3)
    assert model.looked == len(COUNTS)
    for lang in ("en", "de"):
        alone = evaluate(polyglot(), bilingual, lang=lang, late=3, skip_missing_language=True)
        for one, other in zip(found.evaluations[lang].ranks(), alone.ranks(), strict=True):
            np.testing.assert_array_equal(one, other)
    assert found.evaluations["de"].images == len(COUNTS) - 2
    assert found.evaluations["de"].problems["records_without_language"] == 2
    english, in_german = (found.evaluations[lang].mean_recall for lang in ("en", "de"))
    assert english != in_german
    assert found.mean_recall == pytest.approx((english + in_german) / 2)
    result = found.to_json()
    assert result["mR_by_language"] == {"en": round(english, 3), "de": round(in_german, 3)}
    assert result["mR"] == round(found.mean_recall, 3)
    assert result["lang"] == ["en", "de"]
    shown = table(found)
    assert shown.row_count == 3
    low, high = found.evaluations["en"].ci95["text_to_image"]["R@1"]
    first = f"{found.evaluations['en'].text_to_image['R@1']:.1f} ± {(high - low) / 2:.1f}"
    assert next(iter(shown.columns[2].cells)) == first


def test_images_of_one_name_are_still_different_images() -> None:
    same_name = [
        dataclasses.replace(
            one,
            image=dataclasses.replace(one.image, name="photo.png"),  # type: ignore[type-var]
            captions={"en": one.captions["en"], "xx": one.captions["en"]},
        )
        for one in records()
    ]
    found = evaluate_languages(made_up(), same_name, ["en", "xx"])
    for one in found.evaluations.values():
        for ranks, expected in zip(one.ranks(), evaluate(made_up(), records()).ranks(), strict=True):
            np.testing.assert_array_equal(ranks, expected)


def test_a_picture_that_cannot_be_read_is_missed_in_every_language() -> None:
    broken = [
        dataclasses.replace(one, captions={"en": one.captions["en"], "xx": one.captions["en"]})
        for one in records(broken=frozenset({2}))
    ]
    found = evaluate_languages(made_up(), broken, ["en", "xx"])
    alone = evaluate(made_up(), broken)
    for one in found.evaluations.values():
        assert one.problems["images_unreadable"] == 1
        assert one.unreadable == alone.unreadable
        for ranks, expected in zip(one.ranks(), alone.ranks(), strict=True):
            np.testing.assert_array_equal(ranks, expected)
    assert [problem.place for problem in found.unreadable] == ["2.png"], "once, not in every language again"


def test_a_picture_that_a_language_does_not_ask_about_is_not_named_for_it() -> None:
    photos = [
        dataclasses.replace(one, captions={("xx" if number == 2 else "en"): one.captions["en"]})
        for number, one in enumerate(records(broken=frozenset({2})))
    ]
    photos[3] = dataclasses.replace(photos[3], captions={"en": ("9 a",), "xx": ("9 a",)})
    found = evaluate_languages(made_up(), photos, ["en", "xx"])
    assert found.evaluations["en"].unreadable == ()
    assert [problem.place for problem in found.evaluations["xx"].unreadable] == ["2.png"]


def test_languages_must_be_some_and_each_once(bilingual: list[Record]) -> None:
    for languages in ([], ["en", "en"]):
        with pytest.raises(EvaluationError, match="each only once"):
            evaluate_languages(made_up(), bilingual, languages)


def test_the_command_measures_several_languages_and_translates(tmp_path: Path, tiny_bundle: Path) -> None:
    lines = []
    for number, drawn in enumerate(list(shapes(seed=0))[:6]):
        drawn.picture.save(tmp_path / drawn.name)
        split = "test" if number < 4 else "train"
        captions = {"en": drawn.captions[:1], "de": [f"{number} auf Deutsch"]}
        lines.append(json.dumps({"image": drawn.name, "captions": captions, "split": split}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines))
    base = ["eval", str(tiny_bundle), str(tmp_path / "captions.jsonl"), "--json", str(tmp_path / "out.json")]
    shout = f'{sys.executable} -c "import sys; [print(line.upper(), end=str()) for line in sys.stdin]"'
    done = CliRunner().invoke(app, [*base, "--lang", "en, de", "--protocol", "full", "--translate", shout])
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["mR"] == pytest.approx(np.mean(list(result["mR_by_language"].values())), abs=2e-3)
    german_result = result["languages"]["de"]
    assert (german_result["images"], german_result["distractors"], german_result["translated_by"]) == (4, 2, shout)
    assert "mean" in done.output


def test_a_language_that_is_lacking_is_refused_before_a_picture_is_opened(bilingual: list[Record]) -> None:
    model = polyglot()
    with pytest.raises(DataError, match="has captions in 'fr'"):
        evaluate_languages(model, bilingual, ["en", "fr"])
    assert model.looked == 0


def test_captions_in_a_language_of_an_add_on_are_read_by_its_graph(german_bundle: Path) -> None:
    words = [f"{one} am {other}" for one in ("hund", "katze", "kind", "mann") for other in ("strand", "ball", "boot")]
    drawn = [image_source(Image.effect_noise((32, 32), 90).convert("RGB")) for _ in words]
    captioned = [Record(text, image, {"en": (text,), "de": (text,)}) for text, image in zip(words, drawn, strict=True)]
    bundle = Bundle.open(german_bundle)
    german, english = (evaluate(bundle, captioned, lang=lang) for lang in ("de", "en"))
    expected = evaluate(bundle.for_language("de"), captioned, lang="de")
    np.testing.assert_array_equal(german.folds[0].text_to_image, expected.folds[0].text_to_image)
    assert not np.array_equal(german.folds[0].text_to_image, english.folds[0].text_to_image)
    assert evaluate(bundle, [dataclasses.replace(one, captions={"fr": (one.key,)}) for one in captioned], lang="fr")
    translated = evaluate(bundle, captioned, lang="de", translate=lambda texts, lang: texts)
    np.testing.assert_array_equal(translated.folds[0].text_to_image, english.folds[0].text_to_image)
