"""Ranks the slow and obvious way, by walking through sorted lists: a second opinion that shares no code with ours."""

from collections.abc import Sequence

import numpy as np


def ordered(scores: Sequence[float], right: set[int]) -> list[int]:
    """The list that a search would show, best first; among equals the wrong ones first."""
    return sorted(range(len(scores)), key=lambda item: (-scores[item], item in right))


def text_to_image(scores: np.ndarray, image_of: Sequence[int]) -> list[float]:
    ranks = []
    for row, image in zip(scores.tolist(), image_of, strict=True):
        ranks.append(ordered(row, {image}).index(image) + 1 if image >= 0 else float("inf"))
    return ranks


def image_to_text(scores: np.ndarray, image_of: Sequence[int]) -> list[float]:
    """Any-hit: how many wrong captions stand before the first right one, plus one."""
    ranks = []
    for image in sorted({image for image in image_of if image >= 0}):
        own = {caption for caption, other in enumerate(image_of) if other == image}
        wrong_before = 0
        for caption in ordered(scores[:, image].tolist(), own):
            if caption in own:
                break
            wrong_before += 1
        ranks.append(wrong_before + 1)
    return ranks


def recall(ranks: Sequence[float], k: int) -> float:
    return 100 * sum(rank <= k for rank in ranks) / len(ranks)


def cascade(first: Sequence[float], stages: Sequence[tuple[int, Sequence[float]]], right: set[int]) -> float:
    """Simulate one query's whole list: each stage takes the first k and sorts them by its own scores, highest first.

    Between equals of the first stage the lower index goes first, as it does in a search; the rank at the end is
    pessimistic about equals of the last stage that judged the item.
    """
    order = sorted(range(len(first)), key=lambda item: (-first[item], item))
    judged_by = dict.fromkeys(order, -1)
    for number, (k, scores) in enumerate(stages):
        head = sorted(order[:k], key=lambda item: -scores[item])
        judged_by.update(dict.fromkeys(head, number))
        order = head + order[k:]

    def final(item: int) -> tuple[int, float]:
        stage = judged_by[item]
        return stage, first[item] if stage < 0 else stages[stage][1][item]

    best = max(final(item) for item in right)
    return 1 + sum(final(item) >= best for item in range(len(first)) if item not in right)
