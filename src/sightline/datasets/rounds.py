"""Rounds without repeats: every image has to come as often as it has captions, but never twice in a round.

A round is a batch. With purely random choice, a few images with many captions each could be left at the end, and rounds
would get small. One rule prevents this. An image with as many captions left as there are
rounds left is due, and must be in each of them; all other places are filled at random. If at the start no image has
more captions than there are rounds, and no more captions are there than places, then this stays so after each round:

- an image with c captions left of R rounds either is due and loses one, or has c <= R - 1 already;
- a full round takes as many captions as it has places; a round that is not full took every image that was left,
  and these are too few to fill any later round either.

So the due images always fit, and every caption is placed in exactly R rounds.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]


def rounds_needed(counts: _Ints, size: int) -> int:
    """Count the rounds of at most `size` images that place every caption."""
    return max(-(-int(counts.sum()) // size), int(counts.max(initial=0)))


def full_rounds(counts: _Ints, size: int) -> int:
    """Count the most rounds of exactly `size` images that can be made.

    R full rounds exist if and only if the captions that R rounds can use, at most R of each image, fill R * size
    places. Their number grows ever more slowly with R, so the largest R is found by halving.
    """
    low, high = 0, int(counts.sum()) // size
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(counts, middle).sum()) >= middle * size:
            low = middle
        else:
            high = middle - 1
    return low


def schedule(counts: _Ints, size: int, random: np.random.Generator, *, full: bool) -> Iterator[_Ints]:
    """Give the images of each round, [at most size], every round without repeats.

    counts: [images], how often each must come. `full` leaves out as few captions as make all rounds full, at random.
    """
    rounds = full_rounds(counts, size) if full else rounds_needed(counts, size)
    left = _trimmed(counts, rounds, size, random) if full else counts.copy()
    tallest = int(left.max(initial=0))
    queue = iter(random.permutation(np.repeat(np.arange(len(left)), left)).tolist())
    waiting: dict[int, int] = {}  # images that were drawn again within a round, and how often
    for remaining in range(rounds, 0, -1):
        due = np.flatnonzero(left == remaining).tolist() if remaining <= tallest else []
        chosen = _fill(due, size, queue, waiting, left)
        left[chosen] -= 1
        yield chosen[random.permutation(len(chosen))]


def _fill(due: list[int], size: int, queue: Iterator[int], waiting: dict[int, int], left: _Ints) -> _Ints:
    """Fill a round: those due, then those that had to wait, then the next of the queue.

    An image may be taken before its turn, so the queue can hold more of it than is left; these are passed over.
    """
    chosen = dict.fromkeys(due)
    served = []
    for image in waiting:
        if len(chosen) == size:
            break
        if image not in chosen:
            served.append(image)
            if left[image]:
                chosen[image] = None
    for image in served:
        waiting[image] -= 1
        if not waiting[image] or not left[image]:
            del waiting[image]
    while len(chosen) < size:
        image = next(queue, -1)
        if image < 0:
            break
        if image in chosen:
            waiting[image] = waiting.get(image, 0) + 1
        elif left[image]:
            chosen[image] = None
    return np.fromiter(chosen, dtype=np.int64, count=len(chosen))


def _trimmed(counts: _Ints, rounds: int, size: int, random: np.random.Generator) -> _Ints:
    """Take away captions that cannot or need not be placed: above `rounds` of one image, then any at random."""
    usable = np.minimum(counts, rounds)
    images = random.permutation(np.repeat(np.arange(len(usable)), usable))
    return np.bincount(images[: rounds * size], minlength=len(counts))
