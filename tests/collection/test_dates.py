"""Dates in queries: eighty phrases, and what is no date."""

from datetime import date

import pytest

from sightline.collection.query_text.dates import find_dates, year_alone

TODAY = date(2026, 11, 16)  # a Monday

PHRASES = {
    "August 2023": ("2023-08-01", "2023-08-31"),
    "in August 2023": ("2023-08-01", "2023-08-31"),
    "Aug 2023": ("2023-08-01", "2023-08-31"),
    "Aug. 2023": ("2023-08-01", "2023-08-31"),
    "august of 2023": ("2023-08-01", "2023-08-31"),
    "from February 2024": ("2024-02-01", "2024-02-29"),
    "sept 2021": ("2021-09-01", "2021-09-30"),
    "December 1999": ("1999-12-01", "1999-12-31"),
    "may 2020": ("2020-05-01", "2020-05-31"),
    "taken in March 2022": ("2022-03-01", "2022-03-31"),
    "2023-08": ("2023-08-01", "2023-08-31"),
    "in 2023-08": ("2023-08-01", "2023-08-31"),
    "2023-08-14": ("2023-08-14", "2023-08-14"),
    "on 2023-08-14": ("2023-08-14", "2023-08-14"),
    "14 August 2023": ("2023-08-14", "2023-08-14"),
    "on 14 August 2023": ("2023-08-14", "2023-08-14"),
    "14th of August 2023": ("2023-08-14", "2023-08-14"),
    "on the 1st of May 2020": ("2020-05-01", "2020-05-01"),
    "August 14, 2023": ("2023-08-14", "2023-08-14"),
    "August 14th 2023": ("2023-08-14", "2023-08-14"),
    "on August 3, 2023": ("2023-08-03", "2023-08-03"),
    "14.8.2023": ("2023-08-14", "2023-08-14"),
    "on 01.02.2021": ("2021-02-01", "2021-02-01"),
    "in 2023": ("2023-01-01", "2023-12-31"),
    "from 1998": ("1998-01-01", "1998-12-31"),
    "during 2020": ("2020-01-01", "2020-12-31"),
    "taken in 2015": ("2015-01-01", "2015-12-31"),
    "between 2019 and 2021": ("2019-01-01", "2021-12-31"),
    "from 2019 to 2021": ("2019-01-01", "2021-12-31"),
    "from May 2020 to June 2021": ("2020-05-01", "2021-06-30"),
    "between March 2020 and 2021": ("2020-03-01", "2021-12-31"),
    "2019-2021": ("2019-01-01", "2021-12-31"),
    "2019 – 2021": ("2019-01-01", "2021-12-31"),
    "before 2015": (None, "2014-12-31"),
    "before May 2020": (None, "2020-04-30"),
    "after 2020": ("2021-01-01", None),
    "after June 2020": ("2020-07-01", None),
    "since 2022": ("2022-01-01", None),
    "since March 2022": ("2022-03-01", None),
    "until 2018": (None, "2018-12-31"),
    "until July 2018": (None, "2018-07-31"),
    "summer 2023": ("2023-06-01", "2023-08-31"),
    "in the summer of 2023": ("2023-06-01", "2023-08-31"),
    "spring 2020": ("2020-03-01", "2020-05-31"),
    "autumn 2019": ("2019-09-01", "2019-11-30"),
    "fall 2019": ("2019-09-01", "2019-11-30"),
    "winter 2022": ("2022-12-01", "2023-02-28"),
    "winter 2023/24": ("2023-12-01", "2024-02-29"),
    "last summer": ("2026-06-01", "2026-08-31"),
    "from last summer": ("2026-06-01", "2026-08-31"),
    "last winter": ("2025-12-01", "2026-02-28"),
    "last autumn": ("2025-09-01", "2025-11-30"),
    "last spring": ("2026-03-01", "2026-05-31"),
    "this autumn": ("2026-09-01", "2026-11-30"),
    "this summer": ("2026-06-01", "2026-08-31"),
    "today": ("2026-11-16", "2026-11-16"),
    "yesterday": ("2026-11-15", "2026-11-15"),
    "from yesterday": ("2026-11-15", "2026-11-15"),
    "last week": ("2026-11-09", "2026-11-15"),
    "this week": ("2026-11-16", "2026-11-22"),
    "last month": ("2026-10-01", "2026-10-31"),
    "this month": ("2026-11-01", "2026-11-30"),
    "last year": ("2025-01-01", "2025-12-31"),
    "this year": ("2026-01-01", "2026-12-31"),
    "last weekend": ("2026-11-14", "2026-11-15"),
    "this weekend": ("2026-11-21", "2026-11-22"),
    "last 3 days": ("2026-11-13", "2026-11-16"),
    "in the last two weeks": ("2026-11-02", "2026-11-16"),
    "past 6 months": ("2026-05-16", "2026-11-16"),
    "the last ten years": ("2016-11-16", "2026-11-16"),
    "three years ago": ("2023-01-01", "2023-12-31"),
    "2 months ago": ("2026-09-01", "2026-09-30"),
    "a week ago": ("2026-11-09", "2026-11-15"),
    "five days ago": ("2026-11-11", "2026-11-11"),
    "last August": ("2026-08-01", "2026-08-31"),
    "last December": ("2025-12-01", "2025-12-31"),
    "last November": ("2025-11-01", "2025-11-30"),
    "this March": ("2026-03-01", "2026-03-31"),
    "Christmas 2022": ("2022-12-24", "2022-12-26"),
    "last Christmas": ("2025-12-24", "2025-12-26"),
    "at Christmas 2020": ("2020-12-24", "2020-12-26"),
    "last Halloween": ("2026-10-31", "2026-10-31"),
    "New Year's Eve 2021": ("2021-12-31", "2021-12-31"),
    "in the 1990s": ("1990-01-01", "1999-12-31"),
    "in the 90s": ("1990-01-01", "1999-12-31"),
    "the 2010s": ("2010-01-01", "2019-12-31"),
}

NO_DATES = [
    "May",
    "a girl called May",
    "may I",
    "summer",
    "a summer dress",
    "snow in winter",
    "people on a march",
    "soldiers in march",
    "2023",  # beside other words it may be a number on a house
    "house number 2023",
    "a bus with 1984 on it",
    "Christmas",
    "a christmas tree",
    "fall",
    "the last supper",
    "this is a dog",
    "the last dog",
    "2023-13",
    "a couple of dogs",
    "three dogs",
    "phone 555-2019-2021",
    "IMG_2023-08",
    "a decade",
    "before the storm",
    "after dinner",
    "a date",
]


@pytest.mark.parametrize(("phrase", "span"), PHRASES.items())
@pytest.mark.parametrize("around", ["{}", "dogs {}", "{} at the beach"])
def test_a_phrase_is_a_span_of_days(phrase: str, span: tuple[str | None, str | None], around: str) -> None:
    text = around.format(phrase)
    (found,) = find_dates(text, TODAY)
    assert text[found.start : found.end] == phrase
    assert tuple(day and day.isoformat() for day in (found.span.first, found.span.last)) == span


def test_there_are_eighty_phrases() -> None:
    assert len(PHRASES) >= 80


@pytest.mark.parametrize("text", NO_DATES)
def test_what_a_picture_shows_is_no_date(text: str) -> None:
    assert find_dates(text, TODAY) == []


def test_a_month_of_any_year_needs_its_capital() -> None:
    (found,) = find_dates("dogs in August", TODAY)
    assert found.span.where == "taken like '____-08-%'"
    assert find_dates("dogs in august", TODAY) == []


def test_a_year_alone_is_one() -> None:
    found = year_alone(" 2023 ")
    assert found is not None
    assert found.where == "taken >= '2023-01-01' and taken <= '2023-12-31'"
    assert year_alone("2023 dogs") is None


def test_several_dates_are_found_once_each() -> None:
    spans = [found.span.first for found in find_dates("dogs in May 2020 or cats in June 2021", TODAY)]
    assert spans == [date(2020, 5, 1), date(2021, 6, 1)]
