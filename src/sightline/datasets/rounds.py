"""Rounds without repeats: every image appears as often as it has captions, but at most once in a round.

A round is a batch. With purely random choice, a few images with many captions each could be left at the end, and the
last rounds would be small. One rule prevents this: an image with as many captions left as there are rounds left is due,
and must be in each of them; all other places are filled at random. Suppose that at the start no image has more captions
than there are rounds, and that there are no more captions than places. Then this still holds after each round:

- an image with c captions left and R rounds to go either is due and loses one, or has c <= R - 1 already;
- a full round takes as many captions as it has places; a round that is not full took every image that was left,
  and these are too few to fill any later round either.

So the due images always fit, and exactly R rounds place every caption.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]


def rounds_needed(counts: _Ints, size: int) -> int:
    """Return how many rounds of at most `size` images are needed to place every caption."""
    return max(-(-int(counts.sum()) // size), int(counts.max(initial=0)))


def full_rounds(counts: _Ints, size: int) -> int:
    """Return the largest possible number of rounds of exactly `size` images.

    R full rounds exist if and only if the captions that R rounds can use, at most R per image, fill R * size
    places. The number of usable captions is concave in R, so bisection finds the largest R.
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
    """Yield the images of each round, [at most size], without repeats within a round.

    counts: [images], how often each image must appear. `full` drops as few captions as possible, at random, to make all
        rounds full.
    """
    rounds = full_rounds(counts, size) if full else rounds_needed(counts, size)
    left = _trimmed(counts, rounds, size, random) if full else counts.copy()
    tallest = int(left.max(initial=0))
    queue = iter(random.permutation(np.repeat(np.arange(len(left)), left)).tolist())
    waiting: dict[int, int] = {}  # images drawn a second time within a round, and how often
    for remaining in range(rounds, 0, -1):
        due = np.flatnonzero(left == remaining).tolist() if remaining <= tallest else []
        chosen = _fill(due, size, queue, waiting, left)
        left[chosen] -= 1
        yield chosen[random.permutation(len(chosen))]


def _fill(due: list[int], size: int, queue: Iterator[int], waiting: dict[int, int], left: _Ints) -> _Ints:
    """Fill a round with the images that are due, then those postponed, then the next ones in the queue.

    An image may be taken ahead of its place in the queue; its surplus entries there are skipped.
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
    """Drop captions that cannot or need not be placed: those above `rounds` per image, then random ones."""
    usable = np.minimum(counts, rounds)
    images = random.permutation(np.repeat(np.arange(len(usable)), usable))
    return np.bincount(images[: rounds * size], minlength=len(counts))
