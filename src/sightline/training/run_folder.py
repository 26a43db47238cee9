"""A run's folder: its recipe, its log, its best checkpoint and its last state.

recipe.json    the recipe of the run
provenance.json  data, initial weights, teacher, and the code and machine of each part of the run
log.jsonl      one line per step
best/          the best checkpoint on the validation data, and its result (validation.json); at the end of the run also
               the result of each trained ability by itself ("heads")
last/          the state to resume from
lock           while a run writes to the folder, so that no second one does
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sightline import settings
from sightline.bundle.layout import BEST_FOLDER
from sightline.bundle.tokenizer import Tokenizer
from sightline.errors import RecipeError, SightlineError
from sightline.files import FolderLock, write_atomic
from sightline.models import checkpoint
from sightline.training.provenance import changes_of_data
from sightline.training.recipe import Recipe, parse_recipe
from sightline.training.state import find_state, find_whole, put_in_place, saved_step
from sightline.training.validation import Validated

VALIDATION_FILE = "validation.json"
PROVENANCE_FILE = "provenance.json"
_SHOWN = 5  # differences between two recipes to show
_MAY_CHANGE = ("schedule.steps:", "schedule.epochs:", "checkpoint.", "log.")  # when a run is resumed


class RunFolder:
    """A run's folder. Only the leading process writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.best, self.last = path / BEST_FOLDER, path / "last"
        self._log, self._recipe = path / "log.jsonl", path / "recipe.json"
        self._lock_file = path / "lock"
        self._lock: FolderLock | None = None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the folder within a `with` block; a folder that does not exist yet, from `open` on."""
        try:
            if self.path.is_dir():
                self._acquire()
            yield
        finally:
            if self._lock is not None:
                with contextlib.suppress(OSError):  # Windows cannot delete a file that is open
                    self._lock_file.unlink()
                self._lock.close()
                self._lock = None

    def _acquire(self) -> None:
        """Take the lock; a file system without locks is used without one."""
        with contextlib.ExitStack() as undo, contextlib.suppress(OSError):
            lock = FolderLock(self._lock_file)
            undo.callback(lock.close)
            if not lock.acquire():
                raise SightlineError(
                    f"{self.path}: another run is writing to it", "Stop it, or choose another --out for this one."
                )
            undo.pop_all()
            self._lock = lock

    def check(self, recipe: Recipe, resume: bool) -> None:
        """Reject overwriting a run, and resuming it with another recipe; only length, saving and logging may change."""
        state = find_state(self.last)
        if not resume and (state or find_whole(self.best)):
            raise SightlineError(
                f"{self.path}: already contains a run", "Add --resume to continue it, or choose another --out."
            )
        if state:
            self._check_recipe(recipe)
        elif self._recipe.exists() and not {"model", "data", "losses"} <= self._begun().keys():
            raise SightlineError(f"{self._recipe}: is not the recipe of a run", "Choose another --out, to keep it.")

    def _begun(self) -> dict[str, Any]:
        """Return the recipe that the run was started with."""
        try:
            found = json.loads(self._recipe.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SightlineError(f"{self._recipe}: cannot be read: {error}", "Choose another --out.") from error
        return found if isinstance(found, dict) else {}

    def _check_recipe(self, recipe: Recipe) -> None:
        """Reject a recipe that differs from the run's own."""
        changed = differences(_completed(self._begun()), json.loads(_described(recipe)))
        changed = [line for line in changed if not line.startswith(_MAY_CHANGE)]
        if changed:
            shown = changed[:_SHOWN] + ([f"and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else [])
            raise RecipeError(
                f"{self.path}: was started with a different recipe. {'; '.join(shown)}",
                "Resume it with the same recipe and --set options, or choose another --out.",
            )

    def open(self, recipe: Recipe, step: int) -> None:
        """Create the folder, write the recipe, and drop log entries after `step` when resuming."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self._lock is None:
            self._acquire()
            if saved_step(self.last) != step:
                raise SightlineError(
                    f"{self.path}: another run was started there meanwhile", "Choose another --out for this one."
                )
        write_atomic(self._recipe, _described(recipe))
        best = find_whole(self.best)
        if best and best != self.best:
            best.rename(self.best)
        lines = self._log.read_text(encoding="utf-8").splitlines(keepends=True) if self._log.exists() else []
        write_atomic(self._log, "".join(lines[:step]))

    def describe(self, made_of: Mapping[str, Any], machine: Mapping[str, Any], step: int) -> list[str]:
        """Write the provenance of the run, with the code and machine used from `step` on; returns warnings."""
        before = self.provenance() or {}
        parts = [part for part in before.get("parts", []) if part["step"] < step]
        described = {**made_of, "parts": [*parts, {"step": step, **machine}]}
        write_atomic(self.path / PROVENANCE_FILE, json.dumps(described, indent=2, ensure_ascii=False) + "\n")
        return changes_of_data(before, made_of, step) if step else []

    def provenance(self) -> dict[str, Any] | None:
        """Return the provenance of the run as JSON; None before it started."""
        path = self.path / PROVENANCE_FILE
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def is_finished(self) -> bool:
        """Return whether the run has taken all of its steps."""
        made_of = self.provenance()
        return made_of is not None and saved_step(self.last) >= made_of["steps"] and self.best.exists()

    def log(self, entry: Mapping[str, Any]) -> None:
        """Append the entry of one step to the log."""
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")

    def keep_best(
        self,
        model: checkpoint.AnyRetriever,
        tokenizer: Tokenizer,
        step: int,
        evaluation: Validated | None,
    ) -> None:
        """Replace the best checkpoint and its validation result."""
        with put_in_place(self.best) as new:
            checkpoint.save(model, tokenizer, new)
            if evaluation is not None:
                found = {"step": step, **evaluation.to_json()}
                (new / VALIDATION_FILE).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    def add_to_validation(self, more: Mapping[str, Any]) -> None:
        """Add to the validation result of the best checkpoint."""
        found = {**(self.validation() or {}), **more}
        write_atomic(self.best / VALIDATION_FILE, json.dumps(found, indent=2) + "\n")

    def validation(self) -> dict[str, Any] | None:
        """Return the validation result of the best checkpoint as JSON; None without validation data."""
        path = self.best / VALIDATION_FILE
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def differences(before: Any, after: Any, key: str = "") -> list[str]:
    """List the differences between two JSON values, each as `dotted.key: before, now after`.

    >>> differences({"seed": 0, "data": {"limit": 5}}, {"seed": 0, "data": {"limit": 6, "lang": "de"}})
    ['data.lang: none, now "de"', 'data.limit: 5, now 6']
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            line
            for name in sorted({*before, *after})
            for line in differences(before.get(name), after.get(name), f"{key}.{name}" if key else name)
        ]
    if before == after:
        return []
    shown = ("none" if value is None else json.dumps(value, ensure_ascii=False) for value in (before, after))
    return [f"{key}: {', now '.join(shown)}"]


def _completed(begun: Any) -> Any:
    """Return a recipe's JSON, completed with the defaults of settings that newer versions have added."""
    try:
        return json.loads(_described(parse_recipe(begun, "recipe.json")))
    except RecipeError:
        return begun


def _described(recipe: Recipe) -> str:
    return json.dumps(settings.plain(recipe), indent=2, ensure_ascii=False) + "\n"
