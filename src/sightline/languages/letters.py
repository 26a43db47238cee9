"""Letters that Unicode encodes in several ways: full-width ones, half-width kana, and ligatures."""

import re
import unicodedata

_VARIANTS = re.compile(r"[０-９Ａ-Ｚａ-ｚｦ-ﾟﬀ-ﬆ]+")


def plain_letters(text: str) -> str:
    """Return a text with full-width letters and digits, half-width kana and Latin ligatures replaced by plain letters.

    Any other text is returned as it is: full-width punctuation belongs to Chinese and Japanese.

    >>> plain_letters("ｄｏｇ，ﬁsh"), plain_letters("ｶﾞﾗｽ")
    ('dog，fish', 'ガラス')
    """
    return _VARIANTS.sub(lambda found: unicodedata.normalize("NFKC", found.group()), text)
