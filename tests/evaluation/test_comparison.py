"""Two models on the same queries, and the ranks of every query in files."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sightline
from evaluation.made_up import COUNTS, IMAGE_OF, MadeUp, record
from sightline.cli import app
from sightline.cli.comparison_page import write_page
from sightline.datasets import Record
from sightline.demo.shapes import shapes, write
from sightline.errors import EvaluationError, SightlineError
from sightline.evaluation import Evaluation, evaluate
from sightline.evaluation.comparison import Comparison
from sightline.evaluation.rank_files import ranked_queries, write_ranks

RECORDS = [
    record(number, [f"{caption} of <{number}>" for caption in np.flatnonzero(number == IMAGE_OF)])
    for number in range(len(COUNTS))
]


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def model(name: str, noise: float, seed: int = 0, **more: Any) -> MadeUp:
    """Embeddings that find the right answer the more often, the less noise they have."""
    random = np.random.default_rng(seed)
    images = random.normal(size=(len(COUNTS), 6))
    texts = images[IMAGE_OF] + noise * random.normal(size=(len(IMAGE_OF), 6))
    return MadeUp(unit(texts).astype(np.float32), unit(images).astype(np.float32), name=name, **more)


def evaluated(name: str, noise: float, records: list[Record] = RECORDS, **options: Any) -> Evaluation:
    return evaluate(model(name, noise), records, data="made up", top=5, **options)


def test_the_first_right_answer_of_a_list_is_at_its_rank() -> None:
    for rerank in (0, 3):
        logits = np.random.default_rng(1).normal(size=(len(IMAGE_OF), len(COUNTS))).astype(np.float32)
        found = evaluate(model("it", 1.0, logits=logits), RECORDS, top=5, rerank=rerank)
        plain = evaluate(model("it", 1.0, logits=logits), RECORDS, rerank=rerank)
        np.testing.assert_array_equal(found.ranks()[0], plain.ranks()[0])
        np.testing.assert_array_equal(found.ranks()[2], plain.ranks()[2])
        for one in ranked_queries(found):
            places = [place for place, name in enumerate(one.results, start=1) if name in one.right]
            assert (places[0] if places else None) == (one.rank if one.rank <= 5 else None)


def test_ties_count_against_the_model_in_lists_too() -> None:
    same = MadeUp(np.ones((len(IMAGE_OF), 2), np.float32), np.ones((len(COUNTS), 2), np.float32))
    found = evaluate(same, RECORDS, top=len(IMAGE_OF))
    for one in ranked_queries(found):
        assert not one.right.intersection(one.results[: int(one.rank) - 1])


def test_an_evaluation_without_results_says_what_to_do() -> None:
    with pytest.raises(EvaluationError, match=r"did not keep its results\nEvaluate with `top=100`"):
        list(ranked_queries(evaluate(model("it", 1.0), RECORDS)))


def test_trec_files_give_the_same_recalls_in_ranx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # compiling takes longer than all tests
    ranx = pytest.importorskip("ranx")
    records = [
        Record(f"{one.key} with spaces", one.image, one.captions)
        for one in (*RECORDS[:-1], record(7, ["23 it", "24 it"], broken=True))
    ]
    found = evaluate(model("my model", 1.0), records, top=len(IMAGE_OF))
    written = write_ranks(found, tmp_path / "out.run")
    assert [path.name for path in written] == [
        "out.text_to_image.run", "out.text_to_image.qrels", "out.image_to_text.run", "out.image_to_text.qrels",
    ]  # fmt: skip
    for (run, qrels), ours in zip((written[:2], written[2:]), (found.text_to_image, found.image_to_text), strict=True):
        truth = ranx.Qrels.from_file(str(qrels), kind="trec")
        answers = ranx.Run.from_file(str(run), kind="trec")
        missing = {query: {"none": 0.0} for query in truth.keys() - answers.keys()}
        answers = ranx.Run({**answers.to_dict(), **missing})
        theirs = ranx.evaluate(truth, answers, ["hit_rate@1", "hit_rate@5", "hit_rate@10"])
        for cut in (1, 5, 10):
            assert 100 * float(theirs[f"hit_rate@{cut}"]) == pytest.approx(ours[f"R@{cut}"]), cut


def test_a_csv_has_the_rank_of_every_query(tmp_path: Path) -> None:
    found = evaluated("it", 1.0)
    write_ranks(found, tmp_path / "ranks.csv")
    rows = list(csv.DictReader((tmp_path / "ranks.csv").read_text().splitlines()))
    assert len(rows) == len(IMAGE_OF) + len(COUNTS)
    assert [float(row["rank"]) for row in rows] == [*found.ranks()[0], *found.ranks()[2]]
    assert rows[1]["query"] == "picture-1#0"
    assert rows[1]["text"] == "1 of <1>"
    with pytest.raises(EvaluationError, match="unknown file format for ranks"):
        write_ranks(found, tmp_path / "ranks.txt")


@pytest.mark.parametrize("name", ["no/ranks.csv", "no/out.run", "folder.csv", "taken.run"])
def test_where_ranks_cannot_be_written_nothing_is_evaluated(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "taken.image_to_text.qrels").mkdir()
    useless = MadeUp(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32))  # encoding would fail
    with pytest.raises(SightlineError, match=r"its folder does not exist|is a folder, not a file"):
        sightline.evaluate(useless, RECORDS, ranks=tmp_path / name)


def test_every_row_of_a_csv_has_all_columns(tmp_path: Path) -> None:
    found = evaluated("it", 1.0, [*RECORDS[:-1], record(7, ["23 it", "24 it"], broken=True)])
    write_ranks(found, tmp_path / "ranks.csv")
    header, *rows = csv.reader((tmp_path / "ranks.csv").read_text().splitlines())
    assert {len(row) for row in rows} == {len(header)}
    assert [row[3:] for row in rows if row[1] == found.questions.keys[-1]] == [["", ""]]


def test_a_comparison_counts_what_was_won_and_lost(tmp_path: Path) -> None:
    found = Comparison(evaluated("worse", 2.0), evaluated("better", 0.5))
    gain = found.gains["text_to_image"]["R@1"]
    assert gain.value == pytest.approx(found.b.text_to_image["R@1"] - found.a.text_to_image["R@1"])
    won, lost = (found.count("text_to_image", kind) for kind in ("won", "lost"))
    assert 100 * (won - lost) / len(IMAGE_OF) == pytest.approx(gain.value)
    assert won > lost
    assert found.to_json()["first"]["text_to_image"] == {"won": won, "lost": lost}
    found.write_csv(tmp_path / "all.csv")
    rows = list(csv.DictReader((tmp_path / "all.csv").read_text().splitlines()))
    assert sum(row["outcome"] == "won" and row["direction"] == "text_to_image" for row in rows) == won
    assert float(rows[0]["rank_a"]) > float(rows[0]["rank_b"])


def test_the_page_shows_pictures_and_escapes_captions(tmp_path: Path) -> None:
    found = Comparison(evaluated("worse", 2.0), evaluated("better", 0.5))
    write_page(found, RECORDS, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "data:image/jpeg;base64," in page
    assert "of &lt;" in page
    assert "of <" not in page.partition("</h1>")[2].replace("of <p>", "")
    assert "better is worse" in page


def test_the_command_compares_two_models(tiny_bundle: Path, tmp_path: Path) -> None:
    captions = write(tmp_path / "photos", list(shapes(seed=0))[:8])
    files = {name: tmp_path / f"out.{name}" for name in ("csv", "html", "json")}
    asked = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    done = CliRunner().invoke(app, ["compare", str(tiny_bundle), str(tiny_bundle), str(captions), *asked])
    assert done.exit_code == 0, done.output
    assert "+0.0 (-32.4 to +32.4)" in done.output, "eight images without a difference show little"
    result = json.loads(files["json"].read_text())
    difference = result["differences"]["text_to_image"]["R@1"]
    assert difference == {"value": 0.0, "ci95": [pytest.approx(-32.44, abs=0.01), pytest.approx(32.44, abs=0.01)]}
    assert all(path.stat().st_size for path in files.values())
    ranks = tmp_path / "ranks.csv"
    done = CliRunner().invoke(app, ["eval", str(tiny_bundle), str(captions), "--ranks", str(ranks)])
    assert done.exit_code == 0, done.output
    assert len(ranks.read_text().splitlines()) == 1 + result["a"]["images"] + result["a"]["captions"]


def test_the_command_opens_both_models_before_it_evaluates_one(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions = write(tmp_path / "photos", list(shapes(seed=0))[:2])
    monkeypatch.setattr("sightline.evaluate", None)
    done = CliRunner().invoke(app, ["compare", str(tiny_bundle), "nowhere", str(captions)])
    assert "nowhere" in str(done.exception)


def test_the_command_leaves_out_images_without_captions_in_the_language(tiny_bundle: Path, tmp_path: Path) -> None:
    captions = write(tmp_path / "photos", list(shapes(seed=0))[:4])
    lines = [json.loads(line) for line in captions.read_text().splitlines()]
    lines[0]["captions"] = {"de": ["ein Quadrat"]}
    captions.write_text("\n".join(map(json.dumps, lines)))
    asked = ["compare", str(tiny_bundle), str(tiny_bundle), str(captions)]
    assert CliRunner().invoke(app, asked).exit_code != 0
    done = CliRunner().invoke(app, [*asked, "--skip-missing-language"])
    assert done.exit_code == 0, done.output
    assert "3 images" in done.output
