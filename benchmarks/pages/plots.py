"""The speed plots in README.md and docs/performance.md, as reproducible SVG files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]
OURS, PEER = "#0072b2", "#b0b0b0"
_STAGES = {"encode": "#0072b2", "retrieve": "#009e73", "match": "#e69f00", "http": "#cc79a7"}
# Okabe and Ito's colours, which colour-blind readers can distinguish. A white background, so that dark pages work too.
_STYLE: dict[Any, Any] = {"svg.hashsalt": "sightline", "svg.fonttype": "none"}  # the same file every time
_STYLE |= {"font.family": "sans-serif", "font.size": 10, "figure.facecolor": "white", "legend.frameon": False}
_STYLE |= {f"axes.spines.{side}": False for side in ("top", "right", "left")}
_STYLE |= {"axes.titlesize": 10, "axes.titlelocation": "left", "ytick.major.size": 0}


def draw(results: Mapping[str, Result], folder: Path) -> dict[str, str]:
    """Draw all plots; returns their descriptions, by file name."""
    for name, (plot, _) in PLOTS.items():
        save(lambda plot=plot, name=name: plot(results[name]), folder / f"{name}.svg")  # type: ignore[misc]
    return {f"{name}.svg": title for name, (_, title) in PLOTS.items()}


def save(plot: Callable[[], Any], path: Path) -> None:
    """Draw a figure in the common style of all plots, and save it reproducibly."""
    import matplotlib as mpl

    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        plot().savefig(path, metadata={"Date": None, "Creator": None})


def _figure(columns: int = 1, bars: int = 3) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 0.9 + 0.38 * bars), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def _bars(axes: Any, title: str, values: Mapping[str, float], form: str) -> None:
    """Draw one bar per value, the first on top, with its number next to it; only Sightline's bars are coloured."""
    colours = [OURS if name.startswith("Sightline") else PEER for name in values]
    drawn = axes.barh(list(values), list(values.values()), color=colours, height=0.62)
    axes.bar_label(drawn, [form.format(value) for value in values.values()], padding=4)
    _tidied(axes, title)


def _tidied(axes: Any, title: str) -> None:
    axes.invert_yaxis()
    axes.set_title(title)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=0.16)


def _indexing(result: Result) -> Any:
    names = {"index": "Sightline", "one core": "Sightline, one core", "loop": "plain loop of transformers"}
    rates = {shown: result["ways"][way]["photos_per_second"] for way, shown in names.items() if way in result["ways"]}
    figure, (axes,) = _figure(bars=len(rates))
    _bars(axes, f"photos a second, {result['cores']} cores", rates, "{:.1f}")
    return figure


def _matching(result: Result) -> Any:
    figure, both = _figure(len(result["rows"]), 2)
    names = {"sightline": "Sightline", "cross_encoder": "CrossEncoder"}
    for place, (axes, row) in enumerate(zip(both, result["rows"], strict=True)):
        rates = {shown: row[way]["pairs_per_second"] for way, shown in names.items() if isinstance(row[way], dict)}
        _bars(axes, f"pairs a second, {row['pairs']} at once", rates, "{:.0f}")
        if place:
            axes.set_yticks([])
    return figure


def _end_to_end(result: Result) -> Any:
    figure, (cold, warm) = _figure(2, 4)
    rows = {start: [row for row in result["rows"] if row["start"] == start] for start in ("cold", "warm")}
    seconds = {row["way"].replace("sightline", "Sightline"): row["p50_seconds"] for row in rows["cold"]}
    _bars(cold, f"cold, seconds, {result['items']:,} items", seconds, "{:.2f}")
    _stacked(warm, rows["warm"])
    figure.legend(loc="outside lower right", ncols=len(_STAGES), fontsize=9, handlelength=1)
    return figure


def _stacked(axes: Any, rows: Sequence[Result]) -> None:
    """Draw bars with the stages stacked, or a plain bar where the stages are unknown."""
    for place, row in enumerate(rows):
        left = 0.0
        for stage, colour in _STAGES.items():
            took = row.get("stages_ms", {}).get(stage, 0.0)
            axes.barh(place, took, left=left, color=colour, height=0.62, label=stage if not place else None)
            left += took
        if not left:
            axes.barh(place, row["p50_ms"], color=PEER, height=0.62)
        beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{row['p50_ms']:.0f}", (left or row["p50_ms"], place), **beside)
    axes.set_yticks([])
    _tidied(axes, "warm, milliseconds by stage")


def _retrieval(result: Result) -> Any:
    """Plot the time per query of every index at Sightline's recall, on all cores, for the largest collection."""
    asked = [row for row in result["rows"] if "cores" in row]
    peers = [row["items"] for row in asked if not row["way"].startswith("Sightline")]
    items = max(peers or [row["items"] for row in asked])
    own = {row["way"]: row["cores"] for row in asked if row["items"] == items}
    took = {way: cores[max(cores, key=int)]["finding as much as Sightline"]["p50_ms"] for way, cores in own.items()}
    figure, (axes,) = _figure(bars=len(took))
    _bars(axes, f"milliseconds a query over {items:,} vectors", took, "{:.1f}")
    return figure


PLOTS: dict[str, tuple[Callable[[Result], Any], str]] = {
    "indexing": (_indexing, "Indexing, compared with a plain transformers loop and an image tower of the same shape"),
    "retrieval": (_retrieval, "Retrieval, compared with FAISS and usearch at the same recall"),
    "matching": (_matching, "Matching, compared with a sentence-transformers CrossEncoder of the same shape"),
    "end_to_end": (_end_to_end, "An end-to-end search, compared with a script that uses transformers and NumPy"),
}
