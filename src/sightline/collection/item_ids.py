"""Check the ids of items that callers pass."""

from collections.abc import Iterable
from numbers import Integral

from sightline.errors import OptionError

_BEYOND = 2**63  # the catalog stores ids in 64 bits, with a sign


def check_id(id: object, option: str = "id") -> int:
    """Return an id as an int; it may be one of NumPy's integers, and everything else is refused.

    >>> import numpy as np
    >>> check_id(np.int64(3))
    3
    """
    if isinstance(id, bool) or not isinstance(id, Integral):
        raise OptionError(option, f"must be {_KINDS[option]}, not {id!r}", "Pass the `id` of a hit or of an item.")
    if not -_BEYOND <= int(id) < _BEYOND:
        raise OptionError(option, "must be less than 2**63", "Pass the `id` of a hit or of an item.")
    return int(id)


def check_ids(ids: Iterable[object]) -> list[int]:
    """Return several ids as ints; see `check_id`."""
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise OptionError("ids", f"must be {_KINDS['ids']}, not {ids!r}", "For one item, pass [id].")
    return [check_id(id, "ids") for id in ids]


_KINDS = {"id": "a whole number", "ids": "several whole numbers"}
