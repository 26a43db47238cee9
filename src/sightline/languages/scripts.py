"""Languages by code: their English names, and the scripts that they are written in."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache

LATIN = "LATIN"
_UNSPACED = re.compile(r"[぀-ヿ㐀-鿿豈-﫿฀-๿]")
NAMES: Mapping[str, str] = {
    "ar": "Arabic", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech",
    "da": "Danish", "de": "German", "el": "Greek", "en": "English", "es": "Spanish", "et": "Estonian",
    "fa": "Persian", "fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian",
    "lv": "Latvian", "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "sk": "Slovak", "sl": "Slovenian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili",
    "ta": "Tamil", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "vi": "Vietnamese",
    "zh": "Chinese",
}  # fmt: skip
ACCENTED: Mapping[str, str] = {
    "ca": "àçèéíïòóúü", "cs": "áčďéěíňóřšťúůýž", "da": "æøåé", "de": "äöüß", "es": "áéíñóúü", "fi": "äöåšž",
    "fr": "àâæçéèêëîïôœùûüÿ", "hr": "čćđšž", "hu": "áéíóöőúüű", "id": "é", "it": "àèéìíîòóùú", "nl": "áèéêëíïóöúü",
    "no": "æøåéòôê", "pl": "ąćęłńóśźż", "pt": "áâãàçéêíóôõúü", "ro": "ăâîșşțţ", "sk": "áäčďéíĺľňóôŕšťúýž",
    "sv": "åäöéà", "tr": "çğıöşüâîû",
}  # fmt: skip
"""The letters of languages in Latin script besides a to z. Other letters occur only in loanwords and names."""

INFLECTED = frozenset(
    (
        *("ar", "be", "bg", "cs", "da", "el", "et", "fi", "he", "hr", "hu", "ko", "lt", "lv", "no", "pl", "ro", "ru"),
        *("sk", "sl", "sr", "sv", "sw", "ta", "tr", "uk"),
    )
)
"""Languages whose words have many forms, by case or with articles attached: a list of words lacks many correct ones."""

_SCRIPTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("ar", "fa", "ur"), ("ARABIC",)),
    **dict.fromkeys(("be", "bg", "ru", "uk"), ("CYRILLIC",)),
    "sr": ("CYRILLIC", LATIN),
    "bn": ("BENGALI",),
    "el": ("GREEK",),
    "he": ("HEBREW",),
    "hi": ("DEVANAGARI",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"),
    "ko": ("HANGUL", "CJK"),
    "ta": ("TAMIL",),
    "th": ("THAI",),
    "zh": ("CJK",),
}


def scripts_of(lang: str) -> tuple[str, ...]:
    """Return the scripts that a language is written in.

    >>> scripts_of("ru"), scripts_of("de")
    (('CYRILLIC',), ('LATIN',))
    """
    return _SCRIPTS.get(lang, (LATIN,))


def foreign_letters(text: str, lang: str) -> int:
    """Return how many letters of a text a language does not use; 0 if its letters are not listed.

    >>> foreign_letters("niño", "es"), foreign_letters("niño", "pt")
    (0, 1)
    """
    own = ACCENTED.get(lang)
    if own is None:
        return 0
    return sum(letter.isalpha() and not letter.isascii() and letter not in own for letter in text.lower())


def is_unspaced(text: str) -> bool:
    """Return whether a text contains Chinese, Japanese or Thai, which are written without spaces between words."""
    return _UNSPACED.search(text) is not None


def script_counts(text: str) -> Counter[str]:
    """Return the number of letters of each script in a text."""
    return Counter(script(letter) for letter in text if letter.isalpha())


@cache
def script(letter: str) -> str:
    """Return the script of a letter."""
    return unicodedata.name(letter, "UNKNOWN").split()[0]
