"""Find and open a model by the name or folder that the user gives."""

import json
from pathlib import Path, PurePosixPath

from sightline.bundle import Bundle, Model
from sightline.bundle.layout import (
    BEST_FOLDER,
    CHECKPOINT_FILE,
    HUB_PREFIX,
    MODULES_FILE,
    OPEN_CLIP_FILE,
    PUBLISHED_FILE,
    SPEC_FILE,
    name_of,
)
from sightline.errors import ModelError, SightlineError
from sightline.registry.hub import download

FAST = "fast"
"""Names the default model with its fast image graph; for other bundles, use `FOLDER:fast` or `hf:NAME:fast`."""

_WEIGHTS = (".pt", ".pth", ".bin", ".ckpt", ".safetensors")


def load(model: str | Path = "default", *, prefer_gpu: bool = False) -> Model:
    """Open a model, ready to encode and match.

    model: `default` (the one that ships with Sightline), `fast` (the same with a smaller, faster image graph), a
    bundle's folder, the folder of a checkpoint or of a published model such as CLIP (both need the extra `train`), or
    `hf:NAME` (any of these on the hub, downloaded once). A bundle's folder or `hf:NAME` may end in `:fast`.
    prefer_gpu: run a bundle on the GPU, if there is one and torch is installed; worthwhile for jobs that take minutes.

    >>> model = load(tiny_bundle)
    >>> sorted(model.abilities)
    ['embed', 'fragments', 'match']
    """
    folder, is_fast = locate(model), without_fast(model) != model
    if (folder / SPEC_FILE).is_file():
        opened = Bundle.open(folder, fast=is_fast)
        return opened.prefer_gpu() if prefer_gpu else opened
    if is_fast:
        raise ModelError(f"{model}: only bundles have a fast image graph, and this is not a bundle", "Leave out :fast.")
    if any((folder / name).is_file() for name in (CHECKPOINT_FILE, PUBLISHED_FILE, OPEN_CLIP_FILE)):
        return _under_torch(folder, str(model).removeprefix(HUB_PREFIX))
    raise ModelError(
        f"{model}: neither a bundle (no {SPEC_FILE}), nor a checkpoint (no {CHECKPOINT_FILE}), nor a published "
        f"model (no {PUBLISHED_FILE})",
        "Use default, the folder of a bundle, of a checkpoint or of a published model, or hf:NAME.",
    )


def locate(model: str | Path) -> Path:
    """Return the folder of a model, given its name or folder as in `load`."""
    model = without_fast(model)
    if model == "default":
        return _bundled()
    if str(model).startswith(HUB_PREFIX):
        return _clip_inside(download(str(model).removeprefix(HUB_PREFIX)))
    folder = Path(model)
    if folder.is_file() and folder.suffix in _WEIGHTS:
        raise ModelError(
            f"{model}: contains only weights, without a configuration or a tokenizer",
            f"Put them into a folder with {OPEN_CLIP_FILE} and tokenizer.json of their architecture, as open_clip's "
            "push_to_hf_hub does, and use that folder.",
        )
    if not folder.is_dir():
        raise ModelError(f"{model}: no such folder", "Use default, the folder of a bundle or checkpoint, or hf:NAME.")
    best = folder / BEST_FOLDER
    if (best / CHECKPOINT_FILE).is_file() and not (folder / SPEC_FILE).is_file():
        raise ModelError(f"{model}: a training run, not a model", f"Use its best checkpoint: {best}")
    return _clip_inside(folder)


def without_fast(model: str | Path) -> str | Path:
    """Return the name or folder of a model without the suffix that selects its fast image graph.

    >>> without_fast("fast"), without_fast("bundles/mine:fast"), without_fast("bundles/mine")
    ('default', 'bundles/mine', 'bundles/mine')
    """
    if model == FAST:
        return "default"
    is_fast = str(model).endswith(f":{FAST}") and not Path(model).exists()
    return str(model).removesuffix(f":{FAST}") if is_fast else model


def _clip_inside(folder: Path) -> Path:
    """Return the folder of the CLIP model in a sentence-transformers folder; any other folder is returned unchanged."""
    path = folder / MODULES_FILE
    if not path.is_file() or (folder / CHECKPOINT_FILE).is_file():
        return folder
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        kinds = {str(module["type"]).rpartition(".")[2]: str(module["path"]) for module in modules}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if "CLIPModel" not in kinds:
        raise ModelError(
            f"{folder}: a sentence-transformers model of {', '.join(kinds)}, which only reads texts",
            "Use one with a CLIPModel, or train image and text encoders with this one as model.text.source.",
        )
    inside = PurePosixPath(kinds["CLIPModel"])
    if inside.is_absolute() or ".." in inside.parts:
        raise ModelError(f"{path}: the path {str(inside)!r} leads outside the folder")
    return folder / inside


def _bundled() -> Path:
    """Return the bundled model: inside an installed package, or in the root of a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "bundles" / "default", package.parents[1] / "bundles" / "default"):
        if (folder / SPEC_FILE).is_file():
            return folder
    raise ModelError("this installation has no bundled model", "Use the folder of a bundle or checkpoint, or hf:NAME.")


def _under_torch(folder: Path, called: str) -> Model:
    """Open a checkpoint or a published model; only these make a search command import torch."""
    try:
        from sightline.models.torch_model import TorchModel
    except ImportError as error:
        raise SightlineError(
            f"{folder} is not a bundle, so running it needs torch: {error}",
            "pip install 'sightline-search[train]', or export it to a bundle first.",
        ) from error
    return TorchModel.open(folder, name=name_of(called))
