"""Puts the bundled model into the wheel, where there is one: a checkout may leave it out for its size."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLE = "bundles/default"


class BundledModel(BuildHookInterface[Any]):
    """Adds `bundles/default` as `sightline/bundles/default`; an editable install finds it in the checkout instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it gathers the files."""
        folder = Path(self.root, BUNDLE)
        if version == "editable":
            return
        if (folder / "sightline.json").is_file():
            build_data["force_include"][str(folder)] = f"sightline/{BUNDLE}"
        else:
            self.app.display_warning(f"{BUNDLE} is not there: this wheel has no model, and needs one named by --model")
