"""Sightline from end to end in about a minute: draw captioned pictures, train a tiny model, export it, search."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sightline.bundle import Bundle, Model
from sightline.demo.drawing import shapes, write
from sightline.errors import SightlineError
from sightline.media import ImageFile, find_images, load_pixels

RECIPE = Path(__file__).parent / "recipe.toml"
QUERIES = ("a red square at the top left", "bottom right: one cross that is yellow", "a blue frame")


def run(folder: Path) -> Iterator[str]:
    """Do everything in `folder`, and tell what is done and found, line by line."""
    try:
        from sightline.models import checkpoint
        from sightline.training.export import export
        from sightline.training.recipe import read_recipe
        from sightline.training.trainer import train
    except ImportError as error:
        raise SightlineError(
            f"the demo trains a model, and needs torch: {error}", "pip install 'sightline[train]'"
        ) from error

    learned, unseen = write(folder / "train", shapes(seed=0, copies=12)), write(folder / "val", shapes(seed=1))
    yield "Drew 864 pictures to learn from and 72 to be tested on, with two captions each:"
    yield f"  {next(shapes(seed=1)).captions[0]!r}, and so on.\n"
    recipe = read_recipe(RECIPE)
    data = dataclasses.replace(recipe.data, train=(str(learned),), val=(str(unseen),))
    yield f"Training a tiny model from random weights, {recipe.schedule.steps} steps …"
    trained = train(dataclasses.replace(recipe, data=data), folder / "run")
    if trained.evaluation is not None:
        found = trained.evaluation.text_to_image["R@1"]
        yield f"  of the pictures it never saw, it finds the one that a caption means in {found:.0f} of 100 cases.\n"
    retriever, tokenizer = checkpoint.load(trained.folder)
    export(retriever, tokenizer, folder / "bundle", name="demo")
    yield "Exported it to a bundle, which runs without torch. Asking the bundle:"
    yield from _search(Bundle.open(folder / "bundle"), folder / "val")


def _search(model: Model, folder: Path) -> Iterator[str]:
    """Rank a folder's pictures for each query by the cosine of their embeddings."""
    paths = list(find_images(folder))
    pixels = [
        loaded.pixels for loaded in load_pixels(map(ImageFile, paths), model.preprocess) if loaded.pixels is not None
    ]
    images = model.encode_images(np.stack(pixels)).embedding
    for query in QUERIES:
        scores = images @ model.encode_texts([query]).embedding[0]
        yield f"\n  {query}"
        yield from (f"    {scores[i]:.2f}  {paths[i].name}" for i in np.argsort(-scores)[:3])
