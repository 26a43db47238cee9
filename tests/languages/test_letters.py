"""Letters that are encoded in several ways."""

import pytest

from sightline.languages.letters import plain_letters


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("ｄｏｇ", "dog"),
        ("Ａ ＤＯＧ，２０２３", "A DOG，2023"),
        ("ﬁsh, ﬂower, oﬃce, ﬆone", "fish, flower, office, stone"),
        ("ｶﾞﾗｽのﾊﾞｽ", "ガラスのバス"),
        ("カﾞラス、はﾟん", "ガラス、ぱん"),
        ("ＩＭＧ＿００８０．ＪＰＧ", "IMG_0080.JPG"),
        ("３．５ｃｍ，２０２３－０８－１４．", "3.5cm，2023-08-14．"),
    ],
)
def test_other_widths_and_ligatures_are_plain_letters(text: str, plain: str) -> None:
    assert plain_letters(text) == plain


@pytest.mark.parametrize(
    "text", ["a dog", "狗，和猫！（两只）：“好”；", "「犬」、カメラ。", "½ café №5 m² µ ™ …", "e\u0301"]
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert plain_letters(text) == text
