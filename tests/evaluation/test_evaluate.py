import json

import numpy as np
import pytest

from evaluation import slow_reference
from evaluation.made_up import COUNTS, IMAGE_OF, MadeUp, made_up, record, records
from sightline.errors import EvaluationError
from sightline.evaluation import Evaluation, evaluate
from sightline.evaluation.protocols import PROTOCOLS, Protocol
from sightline.retrieval.fusion import sigmoid


def cosines(model: MadeUp) -> np.ndarray:
    return model.texts @ model.images.T


def late_scores(model: MadeUp) -> np.ndarray:
    assert model.text_fragments
    assert model.image_fragments
    pairs = [
        [(t.astype(float) @ i.astype(float).T).max(1).sum() for i in model.image_fragments]
        for t in model.text_fragments
    ]
    return np.array(pairs)


def simulated(first: np.ndarray, stages: list[tuple[int, np.ndarray]]) -> tuple[list[float], list[float]]:
    """Ranks of both directions by building every list."""
    to_image = [
        slow_reference.cascade(row, [(k, scores[caption]) for k, scores in stages], {IMAGE_OF[caption]})
        for caption, row in enumerate(first)
    ]
    to_text = [
        slow_reference.cascade(
            first[:, image], [(k, scores[:, image]) for k, scores in stages], set(np.flatnonzero(image == IMAGE_OF))
        )
        for image in range(len(COUNTS))
    ]
    return to_image, to_text


def assert_ranks(result: Evaluation, expected: tuple[list[float], list[float]]) -> None:
    to_image, _, to_text, _ = result.ranks()
    assert to_image.tolist() == expected[0]
    assert to_text.tolist() == expected[1]


def test_embeddings_alone_give_the_ranks_of_their_cosines() -> None:
    model = made_up()
    result = evaluate(model, records())
    assert result.stages == ("embed",)
    assert_ranks(result, simulated(cosines(model), []))
    assert result.text_to_image["R@5"] == slow_reference.recall(result.ranks()[0], 5)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_every_stage_reranks_what_the_one_before_left(batch_size: int) -> None:
    model = made_up(1)
    result = evaluate(model, records(), late=5, rerank=3, batch_size=batch_size)
    assert result.stages == ("embed", "late@5", "match@3")
    assert_ranks(result, simulated(cosines(model), [(5, late_scores(model)), (3, model.logits)]))


def test_late_interaction_alone() -> None:
    model = made_up(2)
    assert_ranks(evaluate(model, records(), late=4), simulated(cosines(model), [(4, late_scores(model))]))


def test_more_candidates_than_images_are_all_images() -> None:
    model = made_up(3)
    assert_ranks(evaluate(model, records(), rerank=500), simulated(cosines(model), [(500, model.logits)]))


@pytest.mark.parametrize("late", [None, 6])
@pytest.mark.parametrize("fusion", ["ce", "add", "logit_add"])
def test_fusions_join_the_logit_with_the_cosine_of_the_embeddings(fusion, late: int | None) -> None:  # type: ignore[no-untyped-def]
    model = made_up(4)
    logits, cosine = model.logits.astype(float), cosines(model).astype(float)
    fused = {"ce": logits, "add": 0.4 * cosine + 0.6 * sigmoid(logits), "logit_add": logits + 0.4 * cosine}[fusion]
    stages = [(late, late_scores(model))] if late else []
    result = evaluate(model, records(), late=late, rerank=5, fusion=fusion, weight=0.4)
    assert_ranks(result, simulated(cosine, [*stages, (5, fused)]))
    assert (result.fusion, result.weight) == (fusion, None if fusion == "ce" else 0.4)


def test_norm_add_over_all_candidates_is_the_same_as_normalising_each_query() -> None:
    model = made_up(5)
    result = evaluate(model, records(), rerank=len(COUNTS), fusion="norm_add", weight=0.5)
    parts = [cosines(model).astype(float), sigmoid(model.logits)]
    low, high = [p.min(1, keepdims=True) for p in parts], [p.max(1, keepdims=True) for p in parts]
    fused = sum((p - a) / (b - a) for p, a, b in zip(parts, low, high, strict=True)) / 2
    assert result.ranks()[0].tolist() == simulated(cosines(model), [(len(COUNTS), fused)])[0]


def test_a_pair_that_both_directions_want_is_matched_once() -> None:
    model = made_up(6)
    evaluate(model, records(), rerank=4)
    assert len(model.matched) == len(set(model.matched))
    assert len(model.matched) < 4 * (len(COUNTS) + len(IMAGE_OF))


def test_distractors_join_the_gallery_of_images_and_nothing_else() -> None:
    model = made_up(8, images=len(COUNTS) + 6)
    others = [record(image, ["0 a caption that must not count"]) for image in range(len(COUNTS), len(COUNTS) + 6)]
    alone, among = evaluate(model, records()), evaluate(model, records(), distractors=others)
    assert (among.distractors, among.images, among.captions) == (6, alone.images, alone.captions)
    assert among.ranks()[0].tolist() == slow_reference.text_to_image(cosines(model), IMAGE_OF.tolist())
    np.testing.assert_array_equal(among.ranks()[2], alone.ranks()[2])


def test_distractors_are_reranked_with_the_rest() -> None:
    model = made_up(9, images=len(COUNTS) + 6)
    others = [record(image, []) for image in range(len(COUNTS), len(COUNTS) + 6)]
    result = evaluate(model, records(), rerank=5, distractors=others)
    assert_ranks(result, simulated(cosines(model), [(5, model.logits)]))


@pytest.mark.parametrize("options", [{}, {"late": 2, "rerank": 2}], ids=["embed", "stages"])
def test_folds_are_evaluated_one_by_one_and_averaged(monkeypatch: pytest.MonkeyPatch, options: dict[str, int]) -> None:
    monkeypatch.setitem(PROTOCOLS, "halves", Protocol("halves", folds=2, images=8))
    model, photos = made_up(10), records()
    whole = evaluate(model, photos, protocol="halves", **options)
    parts = [evaluate(model, part, **options) for part in (photos[:4], photos[4:])]
    for direction in ("text_to_image", "image_to_text"):
        summaries = [getattr(part, direction) for part in parts]
        expected = {name: np.mean([one[name] for one in summaries]) for name in summaries[0]}
        assert getattr(whole, direction) == pytest.approx(expected)
    assert (whole.images, whole.captions) == (len(COUNTS), len(IMAGE_OF))
    np.testing.assert_array_equal(whole.ranks()[1], IMAGE_OF)


def test_the_json_is_the_published_contract() -> None:
    result = evaluate(made_up(), records(), data="made up", late=5, rerank=3, seed=4).to_json()
    assert json.loads(json.dumps(result)) == result
    contract = ["model", "data", "lang", "protocol", "stages", "images", "captions", "text_to_image", "image_to_text"]
    contract += ["rSum", "mR", "ci95", "seconds", "seed"]
    assert set(contract) <= set(result)
    assert set(result) - set(contract) == {"problems", "unreadable", "distractors", "fusion", "weight"}
    assert result["unreadable"] == []
    assert result["stages"] == ["embed", "late@5", "match@3"]
    assert list(result["text_to_image"]) == list(result["image_to_text"]) == ["R@1", "R@5", "R@10", "medR"]
    assert set(result["ci95"]) == {"text_to_image", "image_to_text", "rSum", "mR"}
    assert set(result["seconds"]) == {"encode_images", "encode_texts", "rank", "late", "match"}
    assert (result["model"], result["data"], result["lang"], result["seed"]) == ("made-up", "made up", "en", 4)
    recalls = [result[d][f"R@{k}"] for d in ("text_to_image", "image_to_text") for k in (1, 5, 10)]
    assert result["rSum"] == pytest.approx(sum(recalls), abs=0.01)
    assert result["mR"] == pytest.approx(sum(recalls) / 6, abs=0.01)


def test_two_models_on_the_same_queries_are_compared_in_pairs() -> None:
    good, bad = MadeUp(texts=np.eye(6), images=np.eye(6)), MadeUp(texts=np.eye(6), images=np.roll(np.eye(6), 1, 0))
    photos = [record(number, [f"{number}"]) for number in range(6)]
    gain = evaluate(bad, photos).gain_of(evaluate(good, photos))
    assert gain["text_to_image"]["R@1"].value == 100
    assert gain["image_to_text"]["R@1"].significant
    with pytest.raises(EvaluationError, match="evaluated on different queries"):
        evaluate(good, photos).gain_of(evaluate(good, photos[:5]))


def test_progress_is_told_of_every_part_to_its_end() -> None:
    told: dict[str, tuple[int, int]] = {}
    evaluate(made_up(), records(), late=3, rerank=2, progress=lambda part, done, of: told.update({part: (done, of)}))
    assert set(told) == {"encode_images", "encode_texts", "late", "match"}
    assert all(done == of for done, of in told.values())
    assert told["encode_texts"] == (len(IMAGE_OF), len(IMAGE_OF))
