"""An HTML page with the queries on which one of two models did better or worse, and the top pictures from each."""

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from sightline.datasets import Record
from sightline.errors import MediaError
from sightline.evaluation.comparison import Change, Comparison, described
from sightline.evaluation.metrics import DIRECTIONS
from sightline.evaluation.rank_files import RankedQuery, shown
from sightline.media import open_image

_SIDE = 160  # pixels
_RESULTS = 3
_STYLE = """
body { font: 16px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .3rem .8rem; text-align: right }
td:first-child, th:first-child { text-align: left } tr { border-bottom: 1px solid #ddd }
section { border-top: 1px solid #ddd; padding: .5rem 0 } h3 { margin: .3rem 0; font-size: 1rem }
.row { display: flex; flex-wrap: wrap; gap: 1.5rem } figure { margin: 0 } figcaption { font-size: .85rem; color: #555 }
img { height: 7rem; border-radius: 4px; margin-right: 4px } img.right { outline: 4px solid #2a8 }
"""


def write_page(found: Comparison, records: Sequence[Record], path: Path, most: int = 24) -> None:
    """Write the page: the table, then up to `most` captions on which b is better, and as many on which it is worse.

    The largest changes come first. All pictures are embedded in the page, so it can be sent and kept as one file.
    """
    pictures = {record.key: record for record in records}
    ours = [one for one in found.changes if one.a.direction == "text_to_image"]
    won = [one for one in ours if one.gain > 0][:most]
    lost = [one for one in reversed(ours) if one.gain < 0][:most]
    names = found.a.model, found.b.model
    title = escape(f"{names[0]} and {names[1]}")
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>",
        f"<h1>{title}</h1><p>{found.a.captions:,} captions and {found.a.images:,} images from "
        f"{escape(found.a.data or 'unnamed data')}.</p>",
        _table(found),
    ]
    for heading, some in ((f"{names[1]} is better", won), (f"{names[1]} is worse", lost)):
        parts.append(f"<h2>{escape(heading)}</h2>")
        parts += [_section(one, names, pictures) for one in some] or ["<p>No caption.</p>"]
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")


def _table(found: Comparison) -> str:
    heads = "".join(f"<th>{name}" for name in found.gains["text_to_image"])
    rows = []
    for way, words in DIRECTIONS.items():
        for one in (found.a, found.b):
            recalls = one.text_to_image if way == "text_to_image" else one.image_to_text
            cells = "".join(f"<td>{recalls[name]:.1f}" for name in found.gains[way])
            rows.append(f"<tr><td>{words}, {escape(one.model)}{cells}")
        gains = "".join(f"<td>{described(gain)}" for gain in found.gains[way].values())
        rows.append(f"<tr><td>difference (95 % interval; * excludes zero){gains}")
    return f"<table><tr><th>{heads}{''.join(rows)}</table>"


def _section(one: Change, names: tuple[str, str], pictures: Mapping[str, Record]) -> str:
    own = next(iter(one.a.right))
    shown_pictures = [_figure("the right image", [own], frozenset(), pictures)]
    for name, side in zip(names, (one.a, one.b), strict=True):
        shown_pictures.append(_figure(_said(name, side), list(side.results[:_RESULTS]), side.right, pictures))
    return f"<section><h3>{escape(one.a.text)}</h3><div class=row>{''.join(shown_pictures)}</div></section>"


def _said(name: str, side: RankedQuery) -> str:
    return f"{name}: rank {shown(side.rank) or 'none'}"


def _figure(caption: str, keys: list[str], right: frozenset[str], pictures: Mapping[str, Record]) -> str:
    images = "".join(_image(key, key in right, pictures.get(key)) for key in keys)
    return f"<figure><figcaption>{escape(caption)}</figcaption>{images}</figure>"


def _image(key: str, is_right: bool, record: Record | None) -> str:
    """Return a thumbnail, or only the picture's name if it cannot be opened or was a distractor."""
    name = escape(key, quote=True)
    try:
        if record is None:
            return f"<span>{name}</span>"
        picture = open_image(record.image, at_least=_SIDE)
    except MediaError:
        return f"<span>{name}</span>"
    picture.thumbnail((_SIDE, _SIDE))
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=80)
    source = base64.b64encode(data.getvalue()).decode()
    kind = " class=right" if is_right else ""
    return f'<img{kind} alt="{name}" title="{name}" src="data:image/jpeg;base64,{source}">'
