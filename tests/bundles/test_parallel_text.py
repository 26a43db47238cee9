"""Parallel text from made-up dictionaries, stamps and captions: what is kept, and that nothing held out is in it."""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from bundles.text import __main__ as make
from bundles.text import held_out, japanese
from bundles.text.held_out import HeldOut, english_forms, form, is_held_noun
from bundles.text.sources import GITHUB, TATOEBA, Line, fetch
from bundles.text.words import WordNet, chosen, right_script, variants
from tar_files import write_tar

HELD = next(word for word in ("bee", "banana", "hat", "goose", "drum") if is_held_noun(word))
NOUNS = {"dog": 5, "rose": 20, "idea": 9, HELD: 5}  # with WordNet's file of each


def write_wordnet(folder: Path) -> None:
    folder.mkdir(parents=True)
    data, index = ["  1 a licence"], ["  1 a licence"]
    for number, (word, file) in enumerate(NOUNS.items(), 1):
        data.append(f"{number:08} {file:02} n 01 {word} 0 000 | a gloss")
        index.append(f"{word} n 1 0 1 0 {number:08}")
    for name in ("noun", "verb", "adj"):
        (folder / f"data.{name}").write_text("\n".join(data if name == "noun" else data[:1]) + "\n")
        (folder / f"index.{name}").write_text("\n".join(index if name == "noun" else index[:1]) + "\n")


def code(number: int) -> str:
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return (code(number // 64) if number > 63 else "") + digits[number % 64]


def write_dictionary(folder: Path, entries: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    content, index = b"", []
    for word, translation in entries.items():
        entry = f"{word} <n>\n{translation}\n".encode()
        index.append(f"{word}\t{code(len(content))}\t{code(len(entry))}")
        content += entry
    (folder / "freedict-eng-deu.index").write_text("\n".join(index) + "\n")
    (folder / "freedict-eng-deu.dict.dz").write_bytes(gzip.compress(content))


def write_shard(path: Path, facts: dict[str, dict[str, object]]) -> None:
    write_tar(path, [(f"{key}.json", some) for key, some in facts.items()])


@pytest.fixture
def fetched(tmp_path: Path) -> Path:
    share, github = tmp_path / "from/debian/usr/share", tmp_path / "from/github"
    write_wordnet(share / "wordnet")
    write_dictionary(share / "dictd", {"dog": "Hund; Köter", HELD: "Immerwort", "rose": "Rose", "idea": "Immerwort"})
    (share / "edict").mkdir()
    (share / "edict/edict").write_text("犬 [いぬ] /(n) dog/(P)/\n", encoding="euc-jp")
    for name, text in (("a", "A dog.\nde.utf8=Ein Hund.\n"), ("b", "A rose garden.\nde.utf8=Ein Rosengarten.\n")):
        (share / "tuxpaint/stamps").mkdir(parents=True, exist_ok=True)
        (share / f"tuxpaint/stamps/{name}.txt").write_text(text)
        Image.new("RGB", (4, 4)).save(share / f"tuxpaint/stamps/{name}.png")
    for name in GITHUB:
        (github / name).mkdir(parents=True)
    task = github / "multi30k/data/task1"
    (task / "image_splits").mkdir(parents=True)
    (task / "raw").mkdir()
    (task / "image_splits/train.txt").write_text("11.jpg\n22.jpg\n33.jpg\n")
    for lang, rows in (
        ("en", ("A dog runs .", "A cat .", "A house .")),
        ("de", ("Ein Hund rennt .", "Katze .", "Haus .")),
    ):
        (task / f"raw/train.{lang}.gz").write_bytes(gzip.compress(("\n".join(rows) + "\n").encode()))
    (tmp_path / "from/tatoeba").mkdir()
    for language in TATOEBA:
        (tmp_path / f"from/tatoeba/{language}.txt").write_text(
            "A dog sleeps.\t犬が寝る。\n" if language == "jpn" else ""
        )
    data = tmp_path / "data"
    data.mkdir()
    captions = {"en": ["A dog runs ."], "de": ["Ein Hund rennt ."], "zh": ["狗。"]}
    write_shard(data / "flickr8k-train-000.tar", {"11_a": {"captions": captions}})
    write_shard(data / "flickr8k-val.tar", {"22_b": {"captions": captions}})
    write_shard(data / "names-train.tar", {"photo": {"label": "rose"}})
    write_shard(data / "names-val.tar", {"other": {"label": HELD}})
    return tmp_path


class Tagger:
    """Knows one sentence."""

    def __call__(self, text: str) -> list[SimpleNamespace]:
        parts = {"犬": ("イヌ", "名詞"), "が": ("ガ", "助詞"), "寝る": ("ネル", "動詞"), "。": ("", "補助記号")}
        found = [(word, *parts[word]) for word in parts if word in text]
        return [
            SimpleNamespace(surface=word, feature=SimpleNamespace(kana=kana, pos1=kind)) for word, kana, kind in found
        ]


def read(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture
def lines(fetched: Path, monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, ...]]:
    """The lines that are made, with the first stamp, the dog, held out."""
    monkeypatch.setattr(held_out, "_STAMPS", 1)
    monkeypatch.setattr(held_out, "_SEED", 0)  # leaves two stamps in their order
    monkeypatch.setattr(japanese, "_tagger", Tagger)
    monkeypatch.setattr(make, "read_spec", lambda folder: SimpleNamespace(words="dog rose idea"))
    out = fetched / "text"
    make.main(["--bundle", "b", "--from", f"{fetched}/from", "--out", str(out), "--data", f"{fetched}/data"])
    found = [line for path in out.glob("*.jsonl.gz") if not path.name.startswith("held-") for line in read(path)]
    return {(line["en"], line["lang"], line["text"], line["source"], line["image"]) for line in found}


def test_captions_words_and_sentences_are_written(lines: set[tuple[str, ...]]) -> None:
    assert ("rose", "de", "Rose", "freedict", "flickr8k/photo") in lines
    assert ("A dog runs .", "de", "Ein Hund rennt .", "multi30k", "flickr8k/11_a") in lines
    assert ("A house .", "de", "Haus .", "multi30k", "") in lines
    assert ("A dog sleeps.", "ja", "いぬが ねる", "tatoeba", "") in lines
    assert ("A rose garden.", "de", "Ein Rosengarten.", "tuxpaint", "") in lines


def test_nothing_held_out_is_written(lines: set[tuple[str, ...]], fetched: Path) -> None:
    (stamp,) = read(fetched / "text/held-stamps.jsonl.gz")
    assert stamp["texts"] == {"en": "A dog.", "de": "Ein Hund."}
    assert (fetched / "text" / stamp["picture"]).exists()
    (noun,) = read(fetched / "text/held-nouns.jsonl.gz")
    assert noun == {"en": HELD, "texts": {"de": ["Immerwort"]}}
    english, texts = {line[0] for line in lines}, {line[2] for line in lines}
    assert not english & {"dog", HELD, "A dog.", "A cat ."}
    assert not texts & {"Hund", "Köter", "Immerwort", "犬", "いぬ", "Katze ."}


def test_forms_ignore_articles_case_accents_and_kana() -> None:
    assert form("Une Abeille !", "fr") == form("abeille", "fr")
    assert form("ヒツジ", "ja") == form("ひ つじ", "ja")
    assert form("النّحلة", "ar") == form("نحلة", "ar")
    assert english_forms("The Bees.") >= {"bee"}
    assert english_forms("blueberries") >= {"blueberry"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (Line("bees", "de", "Bienen", "omw"), True),
        (Line("honeybee", "de", "die Biene", "omw"), True),
        (Line("bee, insect", "de", "Insekt", "cldr"), True),
        (Line("honeybee", "fr", "Biene", "omw"), False),
        (Line("a bee on a flower", "de", "eine Biene auf einer Blume", "flickr8k"), False),
        (Line("a dog", "de", "ein Hund", "flickr8k", "flickr8k/22_b"), True),
    ],
)
def test_a_line_is_held_out_by_its_english_its_text_or_its_photo(line: Line, expected: bool) -> None:
    held = HeldOut(["flickr8k/22_b"])
    held.add("bee", {"de": ["Biene"]})
    assert held.has(line) is expected


def test_rare_meanings_and_the_wrong_script_are_left_out(tmp_path: Path) -> None:
    write_wordnet(tmp_path / "wordnet")
    wordnet = WordNet(tmp_path / "wordnet")
    many = [Line("dog", "de", f"Wort {number}", "omw") for number in range(10)]
    kept = {line.text for line in chosen([*many, many[8]], wordnet, len)}
    assert kept == {f"Wort {number}" for number in (0, 1, 2, 3, 4, 5, 8)}
    assert right_script("собака", "ru")
    assert not right_script("sobaka", "ru")
    assert {line.text for line in variants(Line("dog", "ar", "كَلب", "omw"), wordnet)} == {"كَلب", "كلب", "الكلب"}


def test_what_is_there_is_not_fetched_again(fetched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError(args)

    monkeypatch.setattr("subprocess.run", refuse)
    monkeypatch.setattr("urllib.request.urlopen", refuse)
    fetch(fetched / "from")
    (fetched / "from/tatoeba/swe.txt").unlink()
    with pytest.raises(AssertionError):
        fetch(fetched / "from")
