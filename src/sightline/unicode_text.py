"""File names as valid Unicode.

Python represents the bytes of a name that are not UTF-8 as lone surrogates, which other programs refuse in JSON.
"""

import re
from pathlib import Path

_LONE = re.compile("[\ud800-\udfff]")


def as_unicode(text: str | Path) -> str:
    r"""Return a name or path with every byte that is not UTF-8 replaced by U+FFFD.

    >>> as_unicode("caf\udce9.png")
    'caf�.png'
    """
    return _LONE.sub("\ufffd", str(text))
