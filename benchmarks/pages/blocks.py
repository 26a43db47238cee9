"""Generated parts of otherwise handwritten pages in docs/, each between its markers, such as `<!-- load -->`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.markdown import MISSING, fill, machine_of, replace_block, sources, table
from benchmarks.pages.performance import PLOTS
from benchmarks.provenance import RESULTS, read_result
from sightline.languages.scripts import NAMES

TEMPLATES = Path(__file__).parent
Result = Mapping[str, Any]


def page(name: str, text: str) -> str:
    """Return the text of a page, with its generated parts updated from the result files."""
    for block, file, generate in BLOCKS[name]:
        text = replace_block(text, block, generate(read_result(RESULTS / file)))
    return text


def readme(text: str, drawn: Mapping[str, str], demo: str | None = None) -> str:
    """Return README.md with the plots (descriptions by file name) and, if given, the output of the demo."""
    images = (f"{title}:\n\n![{title}](docs/{(PLOTS / name).as_posix()})" for name, title in drawn.items())
    text = replace_block(text, "speed", "\n\n".join(images))
    return text if demo is None else replace_block(text, "demo", f"```\n$ sightline demo\n{demo.rstrip()}\n```")


def attacks(rows: Sequence[Result]) -> str:
    """Return a table of the attacks: how many were survived, the peak memory, and other clients' search times."""
    lines = []
    for row in rows:
        peak = f"{row['peak'] / 1e6:.0f}" if "peak" in row else ""
        slower = f"{row['search_ms']:.0f} ({row['usual_ms']:.0f})" if "search_ms" in row else ""
        lines.append([row["attack"], f"{row['tried']}", f"{row['survived']}", peak, slower])
    return table(["attack", "tried", "survived", "peak MB", "search by others, ms (before)"], lines)


def _load(result: Result) -> str:
    """Report on long runs of a server under load, and the gain from encoding waiting queries together."""
    rows, runs = [], result["runs"]
    most = max(run["rerank"] for run in runs)
    for run in runs:
        asked = f"rerank {run['rerank']}" if run["rerank"] else "no rerank"
        theirs = "do not rerank" if run["rerank"] else f"rerank {most}"
        others = f", while {run['other_clients']} others {theirs}" if run["other_clients"] else ""
        rows.append(run | {"asked": f"{asked} ({run['clients']}{others})"})
    values = {"result": result, "machine": machine_of(result), "runs": rows}
    gains = result["gain_of_together_over"]
    return fill(TEMPLATES / "serve.md", {**values, **gains, "rounds": len(result["blocks"]) // 3})


def _recognition(result: Result) -> str:
    """Report how often the language of a query is recognised, by language and kind of query."""
    right = result["right"]
    by_kind = [found["by_language"] for found in right.values()]
    rows = [
        [NAMES[lang], *(f"{kind[lang]:.1f}" if lang in kind else MISSING for kind in by_kind)]
        for lang in result["languages"]
    ]
    rows.append(["all", *(f"{found['percent']:.1f}" for found in right.values())])
    values = {
        "result": result,
        "queries": right["queries"]["queries"] // len(result["languages"]),
        "right": table(["language", *right], rows),
        "misspelt": table(*_misspelt(result["misspelt"])),
        "sources": sources([result], "languages.json"),
    }
    return fill(TEMPLATES / "languages.md", values)


def _misspelt(found: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Return a table, head and rows, of misspelt queries whose language is recognised, by language and length."""
    shares = {(row["lang"], row["words"]): f"{row['percent']:.1f} ({row['percent_as_written']:.1f})" for row in found}
    langs, counts = (list(dict.fromkeys(row[key] for row in found)) for key in ("lang", "words"))
    head = ["language", *(f"{count} word{'s' * (count > 1)}" for count in counts)]
    return head, [[NAMES[lang], *(shares[lang, count] for count in counts)] for lang in langs]


def _by_language(result: Result) -> str:
    """Report the recall for captions, stamps and nouns in each language."""
    langs = [row["lang"] for part in PARTS_BY_LANGUAGE for row in result[part]]
    found = {part: {row["lang"]: row for row in result[part]} for part in PARTS_BY_LANGUAGE}
    english = next(row for row in result["stamps"] if row["lang"] == "en")["R@5"]
    rows = []
    for lang in dict.fromkeys(lang for lang in langs if lang != "en"):
        captions, stamp, noun = (found[part].get(lang, {}) for part in PARTS_BY_LANGUAGE)
        cells = [_beside(captions, "mR", captions.get("english_mR")), _beside(stamp, "R@5", english)]
        rows.append([NAMES[lang], *cells, _beside(noun, "top5", noun.get("english_top5"))])
    counts = {part: [row["texts"] for row in result[part]] for part in ("stamps", "nouns")}
    values = {
        "table": table(["language", "captions, mR", "stamps, R@5", "nouns, top 5"], rows),
        "stamps": max(counts["stamps"]),
        "nouns": f"{min(counts['nouns'])} to {max(counts['nouns'])}",
        "seconds": {row["lang"]: row["seconds"] for row in result["cold"]},
        "sources": sources([result], "by-language.json"),
    }
    return fill(TEMPLATES / "by-language.md", values)


def _quick(result: Result) -> str:
    """Report how much faster `index --quick` is, and how much less accurate."""
    rows = {name: read_result(RESULTS / name / "flickr8k-test.json")["rows"][0] for name in ("fast", "default")}
    return fill(TEMPLATES / "pictures.md", {"ratios": result["ratios"], **rows})


def _beside(row: Result, key: str, english: float | None) -> str:
    """Format a number, followed in brackets by its ratio to the number for English."""
    return f"{row[key]:.1f} ({100 * row[key] / english:.0f} %)" if row and english else MISSING


PARTS_BY_LANGUAGE = ("captions", "stamps", "nouns")
BLOCKS: dict[str, tuple[tuple[str, str, Callable[[Result], str]], ...]] = {
    "pictures.md": (("quick", "indexing.json", _quick),),
    "serve.md": (("load", "serve.json", _load),),
    "security.md": (("attacks", "attack.json", lambda r: f"{attacks(r['rows'])}\n\n{sources([r], 'attack.json')}"),),
    "languages.md": (
        ("by-language", "by-language.json", _by_language),
        ("recognition", "languages.json", _recognition),
    ),
}
"""For each page, the names of its generated parts, their result files, and the functions that generate them."""
