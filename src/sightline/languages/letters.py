"""Letters that Unicode encodes in several ways: full-width ones, half-width kana, and ligatures."""

import re
import unicodedata

_VARIANTS = re.compile(
    r"(?:[０-９Ａ-Ｚａ-ｚ＿ｦ-ﾟﬀ-ﬆ]"
    r"|[ぁ-ヿ](?=[ﾞﾟ])"  # with a half-width voicing mark
    r"|(?<=[０-９Ａ-Ｚａ-ｚ])[．－](?=[０-９Ａ-Ｚａ-ｚ]))+"  # in a number or a file name
)


def plain_letters(text: str) -> str:
    """Return a text with full-width letters and digits, half-width kana and Latin ligatures replaced by plain letters.

    Any other text is returned as it is: full-width punctuation belongs to Chinese and Japanese, except for what joins
    letters or digits in file names and numbers.

    >>> plain_letters("ｄｏｇ，ﬁsh"), plain_letters("ｶﾞﾗｽ"), plain_letters("ＩＭＧ＿８０．ｊｐｇ")
    ('dog，fish', 'ガラス', 'IMG_80.jpg')
    """
    return _VARIANTS.sub(lambda found: unicodedata.normalize("NFKC", found.group()), text)
