"""Collections with images of a fast graph: searched as one, and refined to what the full graph gives."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sightline
import tiny
from collection.made_up import LONG_AGO, Instant, put, scene
from sightline import cli
from sightline.bundle import Model
from sightline.bundle.languages import read_languages, write_languages
from sightline.bundle.relevance_formula import PairRelevance
from sightline.collection import Collection, IndexingInterrupted, index
from sightline.collection.indexing import batches, commits
from sightline.collection.indexing.refine import Refiner
from sightline.collection.indexing.remove import remove
from sightline.collection.indexing.writer import EncodedBatch
from sightline.collection.manifest import read_manifest
from sightline.collection.status import status
from sightline.errors import BundleError, CollectionError, OptionError
from sightline.explanations.explain import image_encoder
from sightline.registry.loader import load
from sightline.stores.base import Part

PARTS: tuple[Part, ...] = ("embedding", "fragments", "states")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six different images in two folders, written long ago, none of them blank."""
    folder = tmp_path / "photos"
    for number in range(6):
        put(folder / ("beach" if number % 2 else "town") / f"{number}.png", scene(number))
    return folder


@pytest.fixture
def full(quick_bundle: Path) -> Model:
    return load(quick_bundle)


@pytest.fixture
def mixed(photos: Path, full: Model) -> Path:
    """Six images of the full graph, and then six of the fast one."""
    index(photos, model=full)
    for number in range(6, 12):
        put(photos / "new" / f"{number}.png", scene(number), LONG_AGO + number * 10**9)
    report = index(photos, model=full, quick=True)
    assert (report.new, report.encoded, report.to_refine) == (6, 6, 6)
    return photos


def fast_paths(at: Path) -> set[str]:
    with Collection.open(at) as collection:
        items = collection.items(collection.store.fast_ids().tolist())  # type: ignore[attr-defined]
        return {item.files[0].path for item in items.values()}


def everything(at: Path) -> dict[str, list[bytes]]:
    """The vectors of every item, bit for bit, by path."""
    with Collection.open(at) as collection:
        ids = collection.catalog.ids()
        assert collection.store.ids().tolist() == ids
        fetch = collection.store.fetch
        return {
            path: [fetch(np.array([id]), part).values.tobytes() for part in PARTS] for id, path in ids_of(at).items()
        }


def ids_of(at: Path) -> dict[int, str]:
    with Collection.open(at) as collection:
        return {id: item.files[0].path for id, item in collection.items(collection.catalog.ids()).items()}


def hits(at: Path, model: Model, text: str = "a red dog", **options: object) -> dict[str, tuple[float, float | None]]:
    with Collection.open(at, model) as collection:
        found = collection.search(text, k=50, duplicates="show", **options)  # type: ignore[arg-type]
    return {hit.path: (hit.score, hit.relevance) for hit in found}


def test_a_mixed_collection_finds_what_each_model_would_find(mixed: Path, full: Model, tmp_path: Path) -> None:
    fast = full.fast_variant()
    assert fast is not None
    old, new = ({path.name for path in (mixed / name).glob("*.png")} for name in ("town", "new"))
    for options in ({"rerank": 0}, {}, {"late": 20, "rerank": 0}):
        found = hits(mixed, full, **options)
        for model, names in ((full, old), (fast, new)):
            at = tmp_path / model.name
            index(mixed, at=at, model=model)
            alone = hits(at, model, **options)
            for path in (path for path in alone if Path(path).name in names):
                np.testing.assert_allclose(found[path][0], alone[path][0], rtol=1e-6)
                np.testing.assert_allclose(found[path][1], alone[path][1], rtol=1e-6)  # type: ignore[arg-type]
                assert found[path][1], "not blank"
        assert list(found) == sorted(found, key=lambda path: -found[path][0])
    assert {hit.path for hit in Collection.open(mixed).search("a dog", k=50) if hit.encoded_by == "fast"} == {
        f"new/{name}" for name in new
    }


def test_unwanted_content_counts_by_the_graph_s_own_relevance(mixed: Path, full: Model, tmp_path: Path) -> None:
    fast = full.fast_variant()
    assert fast is not None
    index(mixed, at=tmp_path / "fast", model=fast)
    found, alone = (hits(at, model, rerank=0, not_="a cat") for at, model in ((mixed, full), (tmp_path / "fast", fast)))
    assert found["new/7.png"][1] == pytest.approx(alone["new/7.png"][1])


def test_relevant_images_are_found_below_less_relevant_ones_of_the_other_graph(mixed: Path, full: Model) -> None:
    """An image of the full graph is more relevant than one of the fast graph with the same cosine."""
    with Collection.open(mixed, full) as collection:
        for text in ("a red dog", "a cat", "two birds", "blue water"):
            ranked = collection.search(text, k=50, rerank=0, duplicates="show")
            if ranked[0].encoded_by == "fast":
                break
        best = next(hit for hit in ranked if not hit.encoded_by)
        assert best.relevance is not None
        assert ranked[0].relevance is not None
        least = best.relevance - 1e-3
        assert ranked[0].relevance < least
        for found in (
            collection.search(text, k=1, rerank=0, duplicates="show", min_relevance=least),
            collection.search_together([text, "snow"], k=1, duplicates="show", min_relevance=least)[0],
        ):
            assert [hit.path for hit in found] == [best.path]


def test_texts_in_other_languages_have_the_relevance_of_their_language(
    mixed: Path, quick_bundle: Path, german_bundle: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(quick_bundle, tmp_path / "both"))
    shutil.copytree(german_bundle / "languages", bundle / "languages")
    add_on = read_languages(bundle, load(bundle).sha256)
    assert add_on is not None
    write_languages(bundle / "languages", dataclasses.replace(add_on, relevance=PairRelevance({"cosine": 3.0})))
    model = load(bundle)
    german = model.for_language("de")
    assert german.relevance is not None
    with Collection.open(mixed, model) as collection:
        for text, lang, fitted in (("ein hund", "de", german.relevance), ("a dog", "en", model.fast_relevance)):
            found = [hit for hit in collection.search(text, lang=lang, k=50, rerank=0) if hit.encoded_by]
            assert found
            assert fitted is not None
            words = model.for_language(lang).words
            expected = fitted.of(text, np.array([hit.score for hit in found]), words)
            np.testing.assert_allclose([hit.relevance for hit in found], expected)  # type: ignore[arg-type]


def test_refining_gives_what_the_full_model_gives(mixed: Path, full: Model, tmp_path: Path) -> None:
    index(mixed, at=tmp_path / "full", model=full)
    assert everything(mixed) != everything(tmp_path / "full")
    before = ids_of(mixed)
    calls: list[tuple[int, int]] = []
    report = index(mixed, model=full, refine=True, progress=lambda done, total: calls.append((done, total)))
    assert (report.refined, report.to_refine, report.unchanged, report.encoded) == (6, 0, 12, 0)
    assert calls[-1] == (6, 6)
    assert everything(mixed) == everything(tmp_path / "full")
    assert hits(mixed, full) == hits(tmp_path / "full", full)
    assert ids_of(mixed) == before
    assert read_manifest(mixed / ".sightline").fast is None
    assert index(mixed, model=full, refine=True).refined == 0


def test_a_new_collection_can_be_quick_and_then_refined_in_one_go(photos: Path, full: Model, tmp_path: Path) -> None:
    report = index(photos, model=full, quick=True, refine=True)
    assert (report.new, report.refined, report.to_refine) == (6, 6, 0)
    index(photos, at=tmp_path / "full", model=full)
    assert everything(photos) == everything(tmp_path / "full")


def test_new_images_are_encoded_by_the_full_graph_unless_quick_is_given_again(mixed: Path, full: Model) -> None:
    put(mixed / "later.png", scene(50))
    report = index(mixed, model=full)
    assert (report.new, report.to_refine, report.refined) == (1, 6, 0)
    assert fast_paths(mixed) == {f"new/{number}.png" for number in range(6, 12)}
    manifest = read_manifest(mixed / ".sightline")
    assert manifest.sha256 == full.sha256
    assert manifest.fast is not None
    assert manifest.fast.sha256 not in ("", full.sha256)


def test_the_newest_are_refined_first_and_finished_ones_are_kept(
    mixed: Path, full: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(batches.AT_ONCE["cpu"], "images", 1)
    monkeypatch.setattr(commits, "_COMMIT_SECONDS", 0.0)
    write = Refiner.write

    def stop_after_two(self: Refiner, batch: EncodedBatch) -> None:
        write(self, EncodedBatch(batch.contents[:2], batch.files[:2]))
        raise KeyboardInterrupt

    monkeypatch.setattr(Refiner, "write", stop_after_two)
    with pytest.raises(IndexingInterrupted) as error:
        index(mixed, model=full, refine=True)
    left = fast_paths(mixed)
    assert error.value.report.to_refine == 6 - error.value.report.refined == len(left) < 6
    assert left == {f"new/{number}.png" for number in range(6, 6 + len(left))}
    monkeypatch.setattr(Refiner, "write", write)
    assert index(mixed, model=full, refine=True).refined == len(left)


def change(path: Path) -> None:
    put(path, scene(99), LONG_AGO + 99 * 10**9)


@pytest.mark.parametrize("disturb", [Path.unlink, change, lambda path: path.rename(path.with_name("moved.png"))])
def test_a_file_changed_while_refining_keeps_its_old_vectors_until_the_next_run(
    mixed: Path, full: Model, disturb: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    work = Refiner.work

    def disturbed(self: Refiner) -> object:
        found = work(self)
        disturb(mixed / "new" / "8.png")
        return found

    before = everything(mixed)
    monkeypatch.setattr(Refiner, "work", disturbed)
    report = index(mixed, model=full, refine=True)
    assert (report.refined, report.to_refine) == (5, 1)
    assert everything(mixed)["new/8.png"] == before["new/8.png"]
    assert fast_paths(mixed) == {"new/8.png"}
    monkeypatch.setattr(Refiner, "work", work)
    index(mixed, model=full, refine=True)
    index(mixed, at=tmp_path / "full", model=full)
    assert everything(mixed) == everything(tmp_path / "full")


def test_changed_moved_and_removed_images_keep_their_kind(mixed: Path, full: Model) -> None:
    (mixed / "new" / "6.png").rename(mixed / "new" / "moved.png")
    change(mixed / "new" / "7.png")
    (mixed / "new" / "8.png").unlink()
    remove([mixed / "new" / "9.png"], mixed, model=full)
    put(mixed / "copy.png", (mixed / "new" / "10.png").read_bytes())
    index(mixed, model=full)
    # 7.png has a new content, of the full graph; so has 9.png, which was forgotten; a copy shares its content
    assert {Path(path).name for path in fast_paths(mixed)} == {"moved.png", "copy.png", "11.png"}
    assert index(mixed, model=full, refine=True).refined == 3


def test_filters_see_both_kinds(mixed: Path, full: Model) -> None:
    assert set(hits(mixed, full, where="folder = 'new'")) == {f"new/{number}.png" for number in range(6, 12)}
    assert set(hits(mixed, full, where="name in ('0.png', '9.png')")) == {"town/0.png", "new/9.png"}


def test_an_image_of_the_fast_graph_is_explained_by_what_that_saw(mixed: Path, full: Model) -> None:
    fast = full.fast_variant()
    assert fast is not None
    with Collection.open(mixed, full) as collection:
        (id,) = collection.catalog.ids_where("name = '7.png'").tolist()
        (other,) = collection.catalog.ids_where("name = '0.png'").tolist()
        assert image_encoder(collection.store, id, full).name == fast.name
        assert image_encoder(collection.store, other, full) is full
    stored = sightline.explain("a dog", id, at=mixed, model=full)
    again = sightline.explain("a dog", mixed / "new" / "7.png", model=fast)
    np.testing.assert_allclose(stored.words[1].grid, again.words[1].grid, atol=0.05)


def test_of_several_copies_one_that_is_there_is_read(mixed: Path, full: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    put(mixed / "new" / "other.png", (mixed / "new" / "7.png").read_bytes())
    index(mixed, model=full)
    work = Refiner.work

    def without_first(self: Refiner) -> object:
        (mixed / "new" / "7.png").unlink()
        return work(self)

    monkeypatch.setattr(Refiner, "work", without_first)
    assert index(mixed, model=full, refine=True).to_refine == 0


def test_an_open_collection_sees_what_others_index_and_refine(photos: Path, full: Model) -> None:
    index(photos, model=full)
    with Collection.open(photos, full) as collection:
        put(photos / "9.png", scene(9))
        index(photos, model=full, quick=True)
        assert collection.refresh()
        assert collection.to_refine() == 1
        (quick,) = (hit for hit in collection.search("a dog", k=20, rerank=0) if hit.encoded_by)
        fast = full.fast_variant()
        assert fast is not None
        assert fast.relevance is not None
        assert quick.relevance == pytest.approx(fast.relevance.of("a dog", np.array([quick.score]), full.words)[0])
        index(photos, model=full, refine=True)
        assert not [hit for hit in collection.search("a dog", k=20) if hit.path == "9.png" and not hit.encoded_by]
        assert collection.refresh()
        assert collection.to_refine() == 0
        assert not [hit for hit in collection.search("a dog", k=20) if hit.encoded_by]


def test_a_model_without_a_fast_graph_cannot_be_quick(photos: Path, tiny_bundle: Path, model: Instant) -> None:
    for given in (tiny_bundle, model):
        with pytest.raises(OptionError, match="no fast image graph"):
            index(photos, model=given, quick=True)
    assert not (photos / ".sightline").exists()


def test_texts_cannot_be_quick(tmp_path: Path, full: Model) -> None:
    (tmp_path / "notes.txt").write_text("a dog\n")
    with pytest.raises(OptionError, match="is only for images"):
        index(tmp_path / "notes.txt", model=full, quick=True)


@pytest.mark.parametrize("url", ["milvus://localhost:1/photos", "postgresql://me@localhost:1/photos/photos"])
def test_a_store_on_a_server_cannot_be_quick(photos: Path, full: Model, url: str) -> None:
    with pytest.raises(CollectionError, match="on a server"):
        index(photos, model=full, store=url, quick=True)
    assert not (photos / ".sightline" / "manifest.json").exists()


def test_a_missing_or_damaged_fast_graph_leaves_a_mixed_collection_usable(
    quick_bundle: Path, photos: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(quick_bundle, tmp_path / "bundle"))
    index(photos, model=bundle, quick=True)
    expected = hits(photos, load(bundle))
    (bundle / "image-fast.onnx").unlink()
    with pytest.raises(BundleError, match=r"image-fast\.onnx"):
        index(photos, model=bundle, quick=True)
    assert hits(photos, load(bundle)) == expected
    assert index(photos, model=bundle, refine=True).refined == 6


def test_items_of_an_earlier_fast_graph_are_refined_before_another_adds_its_own(
    quick_bundle: Path, photos: Path, tmp_path: Path
) -> None:
    from sightline.onnx_export.fast_image import add_fast_image

    bundle = Path(shutil.copytree(quick_bundle, tmp_path / "bundle"))
    index(photos, model=bundle, quick=True)
    expected = hits(photos, load(bundle))
    add_fast_image(bundle, bundle / "image.onnx", tiny.PREPROCESS, PairRelevance({"cosine": 9.0}))
    assert hits(photos, load(bundle)) == expected, "by the relevance of the graph that encoded them"
    put(photos / "9.png", scene(9))
    with pytest.raises(CollectionError, match="a different fast image graph") as error:
        index(photos, model=bundle, quick=True)
    assert "Leave out --quick, or" in error.value.way_out
    assert f"sightline index --refine --at {photos / '.sightline'}" in error.value.way_out
    report = index(photos, model=bundle)
    assert (report.new, report.to_refine) == (1, 6), "without --quick, new images can be added at once"
    assert index(photos, model=bundle, refine=True).to_refine == 0
    put(photos / "10.png", scene(10))
    assert index(photos, model=bundle, quick=True).to_refine == 1


def test_a_collection_of_the_fast_model_finds_it_again(quick_bundle: Path, photos: Path) -> None:
    index(photos, model=f"{quick_bundle}:fast")
    with Collection.open(photos) as collection:
        assert collection.model.name == "tiny-fast"
        assert collection.to_refine() == 0
        assert len(collection.search("a dog")) == 6
    with pytest.raises(CollectionError, match="indexed with the model tiny-fast"):
        index(photos, model=quick_bundle)


def test_commands_say_what_is_left_to_refine(photos: Path, quick_bundle: Path) -> None:
    def run(*arguments: object) -> str:
        result = CliRunner().invoke(cli.app, [*map(str, arguments)])
        assert result.exit_code == 0, result.output
        return result.output

    done = run("index", photos, "--model", quick_bundle, "--quick")
    assert "6 to refine" in done
    assert "sightline index --refine --at" in done.splitlines()[-1]
    assert "Encoded by the fast model: 6" in run("status", "--at", photos)
    assert '"to_refine": 6' in run("status", "--at", photos, "--json")
    assert '"encoded_by": "fast"' in run("search", "a dog", "--at", photos, "--json")
    assert "6 refined" in run("index", "--refine", "--at", photos)
    assert "refine" not in run("status", "--at", photos)
    assert status(photos).to_refine == 0
    assert '"encoded_by"' not in run("search", "a dog", "--at", photos, "--json")
    refused = CliRunner().invoke(cli.app, ["index", str(photos), "--model", f"{quick_bundle}:fast", "--quick"])
    assert "--quick is unavailable: tiny-fast has no fast image graph" in str(refused.exception)
