"""Generates docs/recipe-reference.md: every key of a recipe with its default and meaning, from the dataclasses.

python -m sightline.training.reference > docs/recipe-reference.md
"""

import dataclasses
import inspect
import re
from collections.abc import Iterator

from sightline.losses import LOSSES
from sightline.media import Preprocess, RegionConfig
from sightline.models.dual_config import DualStreamConfig
from sightline.models.relations import RelationConfig
from sightline.models.retriever import TextInput
from sightline.models.single_stream import SingleStreamConfig
from sightline.models.towers import TowerConfig
from sightline.training.augment import Augment
from sightline.training.data_tables import DataRecipe, NeighbourRecipe, SourceRecipe, ValidationSetRecipe
from sightline.training.recipe import Recipe
from sightline.training.tables import (
    AverageRecipe,
    BlendRecipe,
    CheckpointRecipe,
    LogRecipe,
    LoraRecipe,
    OptimizerRecipe,
    ScheduleRecipe,
    TeacherRecipe,
    ValidationRecipe,
)

TABLES: dict[str, type] = {
    "The recipe": Recipe,
    '`[model]` with `kind = "dual_stream"`': DualStreamConfig,
    '`[model]` with `kind = "single_stream"`': SingleStreamConfig,
    "`[model.image]`, `[model.text]` and other encoders": TowerConfig,
    "`[model.preprocess]`": Preprocess,
    "`[model.text_input]`": TextInput,
    "`[model.regions]`": RegionConfig,
    "`[model.relations]`": RelationConfig,
    "`[data]`": DataRecipe,
    "`[[data.sources]]`": SourceRecipe,
    "`[[data.val]]`": ValidationSetRecipe,
    "`[data.neighbours]`": NeighbourRecipe,
    "`[schedule]`": ScheduleRecipe,
    "`[optimizer]`": OptimizerRecipe,
    "`[validation]`": ValidationRecipe,
    "`[checkpoint]`": CheckpointRecipe,
    "`[log]`": LogRecipe,
    "`[augment]`": Augment,
    "`[average]`": AverageRecipe,
    "`[lora]`": LoraRecipe,
    "`[teacher]`": TeacherRecipe,
    "`[blend]`": BlendRecipe,
}
_INTRODUCTION = """# Recipe reference

This page lists every key of a recipe, with its default and its meaning. It is generated from the code by
`python -m sightline.training.reference`. For an introduction with examples, see [fine-tune.md](fine-tune.md). On the
command line, `--set table.key=value` overrides a key. Papers 1 to 4 are numbered in the order of
[results.md](results.md#the-papers-at-our-scale).
"""
_KEYS = re.compile(r"^ *((?:[a-z_]+)(?:, [a-z_]+)*): ", re.MULTILINE)
_HEAD = ["| key | default | meaning |", "|---|---|---|"]


def reference() -> str:
    """Return the page, as Markdown."""
    parts = [_INTRODUCTION, *(_table(name, kind) for name, kind in TABLES.items())]
    parts.append("## Losses\n\nBesides the keys `loss`, `weight`, `begin`, `end` and `sources`, a loss has these:\n")
    parts += [_loss(name, kind) for name, kind in LOSSES.items()]
    return "\n".join(parts)


def described(text: str) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of a docstring, and the meaning of every key that it explains as `key: meaning`."""
    summary, _, rest = text.partition("\n\n")
    return " ".join(summary.split()), dict(_meanings(rest))


def _meanings(text: str) -> Iterator[tuple[str, str]]:
    found = list(_KEYS.finditer(text))
    for place, key in enumerate(found):
        end = found[place + 1].start() if place + 1 < len(found) else len(text)
        meaning = text[key.end() : end].partition("\n\n")[0]
        for name in key[1].split(", "):
            yield name, " ".join(meaning.split())


def _table(name: str, kind: type) -> str:
    summary, meanings = described(inspect.getdoc(kind) or "")
    rows = [_row(field.name, _default(field), meanings) for field in dataclasses.fields(kind)]
    return "\n".join([f"## {name}", "", summary, "", *_HEAD, *rows, ""])


def _loss(name: str, kind: type) -> str:
    summary, meanings = described(inspect.getdoc(kind) or "")
    known = inspect.signature(kind).parameters.values()
    rows = [_row(one.name, _shown(one.default), meanings) for one in known]
    return "\n".join([f"### `{name}`", "", summary, "", *(_HEAD + rows if rows else ["It has no settings."]), ""])


def _row(key: str, default: str, meanings: dict[str, str]) -> str:
    return f"| `{key}` | {_cell(default)} | {_cell(meanings.get(key, ''))} |"


def _default(field: "dataclasses.Field[object]") -> str:
    if field.default_factory is not dataclasses.MISSING:
        return "see its table" if dataclasses.is_dataclass(field.default_factory) else "empty"
    return _shown(inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default)


def _shown(value: object) -> str:
    """Return a default value, written as in TOML."""
    if value is inspect.Parameter.empty:
        return "required"
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return f"`{list(value)}`" if value else "empty"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
