"""From what a user calls a model to the model itself."""

from pathlib import Path

from sightline.bundle import Bundle, Model
from sightline.bundle.spec import SPEC_FILE
from sightline.errors import ModelError, SightlineError

CHECKPOINT_FILE = "retriever.json"
HUB_PREFIX = "hf:"


def load(model: str | Path = "default") -> Model:
    """Open a model, ready to encode and match.

    model: `default` (the one that ships with Sightline), a bundle's folder, a checkpoint's folder (needs
    `sightline[train]`), or `hf:NAME` (a bundle or checkpoint on the hub, downloaded once).

    >>> model = load(tiny_bundle)
    >>> sorted(model.abilities)
    ['embed', 'fragments', 'match']
    """
    folder = locate(model)
    if (folder / SPEC_FILE).is_file():
        return Bundle.open(folder)
    if (folder / CHECKPOINT_FILE).is_file():
        return _checkpoint(folder)
    raise ModelError(
        f"{model}: neither a bundle (no {SPEC_FILE}) nor a checkpoint (no {CHECKPOINT_FILE})",
        "Give default, the folder of a bundle or of a checkpoint, or hf:NAME.",
    )


def locate(model: str | Path) -> Path:
    """The folder that a model's name stands for."""
    if model == "default":
        return _bundled()
    if str(model).startswith(HUB_PREFIX):
        return _from_hub(str(model).removeprefix(HUB_PREFIX))
    folder = Path(model)
    if not folder.is_dir():
        raise ModelError(f"{model}: no such folder", "Give default, the folder of a bundle or checkpoint, or hf:NAME.")
    return folder


def _bundled() -> Path:
    """The bundled model: inside an installed package, or in the root of a checkout."""
    here = Path(__file__).parent
    for folder in (here / "bundles" / "default", here.parents[1] / "bundles" / "default"):
        if (folder / SPEC_FILE).is_file():
            return folder
    raise ModelError("this installation has no bundled model", "Give the folder of a bundle or checkpoint, or hf:NAME.")


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelError("models on the hub need huggingface_hub", "pip install 'sightline[train]'") from error
    try:
        return Path(snapshot_download(name))
    except Exception as error:  # offline, unknown, private: the library's reasons share no base
        raise ModelError(f"{HUB_PREFIX}{name}: cannot be had from the hub: {error}") from error


def _checkpoint(folder: Path) -> Model:
    """Only here does a search command reach for torch: when it is handed a checkpoint."""
    try:
        from sightline.models.engine import TorchModel
    except ImportError as error:
        raise SightlineError(
            f"{folder} is a checkpoint, and running one needs torch: {error}",
            "pip install 'sightline[train]', or export it to a bundle first.",
        ) from error
    return TorchModel.open(folder)
