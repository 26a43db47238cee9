"""Several collections are searched as one."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import sightline
from sightline.collection.group import check_group, search_group
from sightline.demo import PICTURES
from sightline.errors import CollectionError
from sightline.retrieval.options import SearchOptions

ONE, OTHER = ("dog", "owl", "coffee", "horses"), ("cat-face", "great-wall", "flower")


def filled(folder: Path, names: tuple[str, ...]) -> Path:
    folder.mkdir()
    for name in names:
        shutil.copy(PICTURES / f"{name}.jpg", folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, tiny_bundle: Path) -> tuple[Path, Path, Path]:
    """Two folders of pictures, and one with all of them; indexed."""
    base = tmp_path_factory.mktemp("group")
    made = filled(base / "one", ONE), filled(base / "other", OTHER), filled(base / "all", ONE + OTHER)
    for folder in made:
        sightline.index(folder, model=tiny_bundle)
    return made


@pytest.mark.parametrize("options", [{"rerank": 0}, {"rerank": 3}, {}, {"k": 3}, {"k": 2, "start": 2}, {"late": 4}])
def test_two_collections_answer_like_one_with_all_of_it(
    folders: tuple[Path, Path, Path], options: dict[str, int]
) -> None:
    asked = SearchOptions("a small dog on the grass", duplicates="show", **options)  # type: ignore[arg-type]
    with sightline.open(folders[0]) as one, sightline.open(folders[1]) as other, sightline.open(folders[2]) as both:
        found, wanted = search_group([one, other], asked).flat(), both.run(asked)
    assert [(hit.path, hit.stage, hit.rank) for hit in found] == [(hit.path, hit.stage, hit.rank) for hit in wanted]
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in wanted], abs=1e-4)


def test_only_collections_of_one_model_and_kind_are_searched_together(folders: tuple[Path, Path, Path]) -> None:
    with sightline.open(folders[0]) as one, sightline.open(folders[1]) as two:
        check_group([one, two])
        same = two.manifest
        two.manifest = replace(same, sha256="0" * 64, model="other")
        with pytest.raises(CollectionError, match="indexed with other"):
            check_group([one, two])
        two.manifest = replace(same, kind="texts")
        with pytest.raises(CollectionError, match="contains texts"):
            check_group([one, two])
