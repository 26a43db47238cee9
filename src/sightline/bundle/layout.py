"""File names that show what kind of model a folder contains, and the name of a model in results."""

from pathlib import Path

SPEC_FILE = "sightline.json"
IMAGE_FILE = "image.onnx"
FAST_IMAGE_FILE = "image-fast.onnx"
CHECKPOINT_FILE = "retriever.json"
PUBLISHED_FILE = "config.json"
OPEN_CLIP_FILE = "open_clip_config.json"
MODULES_FILE = "modules.json"  # in sentence-transformers models
BEST_FOLDER = "best"
HUB_PREFIX = "hf:"


def name_of(folder: str | Path) -> str:
    """Return the name of a model in results: its folder's name or, for the best checkpoint of a run, the run's name.

    >>> name_of("openai/clip-vit-base-patch32"), name_of("runs/mine/best")
    ('clip-vit-base-patch32', 'mine')
    """
    folder = Path(folder)
    return folder.resolve().parent.name if folder.name == BEST_FOLDER else folder.name
