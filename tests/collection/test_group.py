"""Several collections are searched as one."""

import shutil
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import sightline
from sightline.arrays import Float32Array
from sightline.bundle import Bundle
from sightline.collection.group import check_group, search_group
from sightline.demo import PICTURES
from sightline.errors import CollectionError, OptionError
from sightline.retrieval.costs import Costs
from sightline.retrieval.options import SearchOptions
from sightline.server.limits import Limits
from sightline.server.shared_model import SharedModel

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


def test_python_searches_several_collections_by_their_folders(folders: tuple[Path, Path, Path]) -> None:
    one, other, both = folders
    found = sightline.search("a small dog on the grass", at=[one, str(other), one], duplicates="show", rerank=3)
    wanted = sightline.search("a small dog on the grass", at=both, duplicates="show", rerank=3)
    assert [hit.path for hit in found] == [hit.path for hit in wanted]
    assert {hit.root for hit in found} == {one, other}
    with pytest.raises(OptionError, match="at names no collection"):
        sightline.search("a small dog on the grass", at=[])


@pytest.mark.parametrize("options", [{"rerank": 0}, {"rerank": 1}, {"rerank": 2}, {"late": 2, "rerank": 0}])
def test_relevance_limits_two_collections_as_it_limits_one_with_all_of_it(
    quick_bundle: Path, tmp_path: Path, options: dict[str, int]
) -> None:
    """In both, some images were encoded by the fast graph, which has a relevance of its own."""
    fast, full, all_of_it = filled(tmp_path / "fast", ONE), filled(tmp_path / "full", OTHER), tmp_path / "all"
    sightline.index(fast, model=quick_bundle, quick=True)
    sightline.index(full, model=quick_bundle)
    sightline.index(filled(all_of_it, ONE), model=quick_bundle, quick=True)
    shutil.copytree(full, all_of_it, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".sightline"))
    sightline.index(all_of_it, model=quick_bundle)
    with sightline.open(fast) as one, sightline.open(full) as other, sightline.open(all_of_it) as both:
        every = both.search("a small dog", k=50, rerank=0, duplicates="show")
        for least in (None, *(float(hit.relevance or 0) - 1e-4 for hit in every)):
            asked = SearchOptions("a small dog", min_relevance=least, duplicates="show", k=2, **options)  # type: ignore[arg-type]
            found, wanted = search_group([one, other], asked), both.run(asked)
            assert [(hit.path, hit.stage) for hit in found.flat()] == [(hit.path, hit.stage) for hit in wanted]


@pytest.mark.parametrize("rerank", [0, 3])
def test_a_query_is_encoded_once_for_all_collections(
    folders: tuple[Path, Path, Path], rerank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[str] = []
    for name in ("encode_texts", "encode_images"):
        plain = getattr(Bundle, name)
        monkeypatch.setattr(Bundle, name, lambda *given, plain=plain, name=name: encoded.append(name) or plain(*given))
    image = Image.open(PICTURES / "owl.jpg")
    with sightline.open(folders[0]) as one, sightline.open(folders[1]) as other, sightline.open(folders[2]) as both:
        search_group([one, other, both], SearchOptions("an owl", image, not_="snow", rerank=rerank))
    assert sorted(encoded) == ["encode_images", "encode_texts", "encode_texts"]


@pytest.mark.parametrize("rerank", [0, 3])
def test_a_server_encodes_a_query_in_another_language_once(
    german_bundle: Path, tmp_path: Path, rerank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [filled(tmp_path / "one", ONE), filled(tmp_path / "other", OTHER)]
    encoded, plain = list[str](), SharedModel.encode_texts
    monkeypatch.setattr(SharedModel, "encode_texts", lambda *given: encoded.extend(given[1]) or plain(*given))
    with closing(SharedModel(sightline.load(german_bundle), Limits())) as model, ExitStack() as stack:
        opened = [
            stack.enter_context(sightline.open(sightline.index(folder, model=german_bundle).at)) for folder in folders
        ]
        search_group(opened, SearchOptions("ein hund", lang="de", rerank=rerank), model)
    assert encoded == ["ein hund"]


def test_a_time_limit_is_for_all_collections_together(
    folders: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, matched = Bundle.match, list[int]()

    def slow(self: Bundle, *pairs: Any) -> Float32Array:
        time.sleep(0.02 * len(pairs[0]))
        matched.append(len(pairs[0]))
        return plain(self, *pairs)

    monkeypatch.setattr(Bundle, "match", slow)
    with sightline.open(folders[0]) as one, sightline.open(folders[1]) as other, sightline.open(folders[2]) as both:
        for each in (one, other, both):
            each.costs = Costs("slow")
        limited = SearchOptions("an owl", rerank=14, budget_ms=200, duplicates="show")
        for _ in range(4):  # the first searches measure how long matching takes
            matched.clear()
            search_group([one, other, both], limited)
    assert 0 < sum(matched) <= 10


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
