from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from training import shapes


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models gain nothing from threads, and lose much where cores are shared; sums come out the same each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty-four captioned pictures, for runs of a few steps."""
    return shapes.write(tmp_path_factory.mktemp("few") / "pictures", shapes.cards(seed=0))


@pytest.fixture(scope="package")
def teacher(few: Path) -> Path:
    """A model for those pictures that can do all three, hardly trained."""
    from sightline.training.recipe import parse_recipe
    from sightline.training.trainer import train

    data = shapes.recipe(few, hidden=16, schedule={"steps": 4}, data={"batch_size": 12}, losses=shapes.ALL)
    return train(parse_recipe(data, "teacher"), few.parent / "teacher").folder
