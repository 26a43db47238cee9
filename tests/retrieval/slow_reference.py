"""Late interaction the slow and obvious way, number by number: a second opinion that shares no code with ours."""

import numpy as np


def maxsim(words: np.ndarray, patches: np.ndarray) -> float:
    """Equation 5 of paper 3, of the real words and patches of a pair."""
    total = 0.0
    for word in words.tolist():
        best = -np.inf
        for patch in patches.tolist():
            best = max(best, sum(a * b for a, b in zip(word, patch, strict=True)))
        total += best
    return total
