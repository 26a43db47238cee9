"""Indexing a folder again and again: only what is new is encoded, and nothing is lost that may still be there."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from collection.made_up import LONG_AGO, Instant, contents, digest, picture, put, vectors
from sightline.bundle import Bundle, Encoded
from sightline.collection import Collection, FileProblem, index
from sightline.collection.indexing import changed_files
from sightline.collection.locks import write_lock
from sightline.errors import CollectionError
from sightline.media import ImageFile, open, to_pixels
from sightline.media.file_types import FileType

LATER = LONG_AGO + 10**9


def paths(report: list[FileProblem]) -> list[str]:
    return [Path(problem.path).name for problem in report]


def at_of(photos: Path) -> Path:
    return photos / ".sightline"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    names: list[str] = []
    read = ImageFile.read

    def noted(source: ImageFile) -> bytes:
        names.append(source.path.name)
        return read(source)

    monkeypatch.setattr(ImageFile, "read", noted)
    return names


def test_every_picture_of_a_folder_is_indexed(photos: Path, model: Instant) -> None:
    report = index(photos, model=model)
    assert (report.new, report.encoded, report.read, report.at) == (6, 6, 6, at_of(photos))
    assert contents(at_of(photos)) == {
        f"{'beach' if number % 2 else 'town'}/{number}.png": digest(picture(number)) for number in range(6)
    }


def test_each_item_has_the_vector_of_its_own_picture(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    for path in photos.rglob("*.png"):
        alone = path.parent.parent.parent / path.stem
        shutil.copytree(path.parent, alone, ignore=lambda _, names, keep=path.name: [n for n in names if n != keep])
        index(alone, model=model)
        hash = digest(path.read_bytes())
        assert np.array_equal(vectors(at_of(alone))[hash], vectors(at_of(photos))[hash])


def test_unchanged_files_are_not_read(photos: Path, model: Instant, reads: list[str]) -> None:
    index(photos, model=model)
    reads.clear()
    report = index(photos, model=model)
    assert (report.unchanged, report.read, reads) == (6, 0, [])


def test_a_file_with_another_time_but_the_same_content_is_read_but_not_encoded(
    photos: Path, model: Instant, reads: list[str]
) -> None:
    index(photos, model=model)
    put(photos / "town" / "0.png", picture(0), LATER)
    reads.clear()
    report = index(photos, model=model)
    assert (report.unchanged, report.changed, report.encoded, reads) == (6, 0, 0, ["0.png"])
    reads.clear()
    index(photos, model=model)
    assert reads == []


def test_a_file_written_a_moment_ago_is_read_again_since_a_second_change_may_leave_no_trace(
    photos: Path, model: Instant
) -> None:
    data, other = picture(10, format="BMP"), picture(11, format="BMP")
    assert len(data) == len(other)
    (photos / "new.bmp").write_bytes(data)
    stat = (photos / "new.bmp").stat()
    index(photos, model=model)
    put(photos / "new.bmp", other, stat.st_mtime_ns)
    report = index(photos, model=model)
    assert report.changed == 1
    assert contents(at_of(photos))["new.bmp"] == digest(other)


def test_every_file_is_read_once(photos: Path, model: Instant, reads: list[str]) -> None:
    index(photos, model=model)
    assert sorted(reads) == [f"{number}.png" for number in range(6)]


def test_copies_are_encoded_once(photos: Path, model: Instant) -> None:
    for name in ("a.png", "b.png", "town/c.png"):
        put(photos / name, picture(3))
    report = index(photos, model=model)
    assert (report.new, report.encoded, report.duplicates) == (9, 6, 3)
    with Collection.open(at_of(photos)) as collection:
        assert len(collection) == 6
        item = next(item for item in collection.items(collection.catalog.ids()).values() if len(item.files) > 1)
    assert [file.path for file in item.files] == ["a.png", "b.png", "beach/3.png", "town/c.png"]


def test_a_copy_stays_when_the_other_is_deleted(photos: Path, model: Instant) -> None:
    put(photos / "a.png", picture(3))
    index(photos, model=model)
    (photos / "beach" / "3.png").unlink()
    report = index(photos, model=model)
    assert (report.deleted, report.duplicates) == (1, 0)
    assert contents(at_of(photos))["a.png"] == digest(picture(3))


def test_moved_files_are_not_encoded_again(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    before = vectors(at_of(photos))
    (photos / "beach").rename(photos / "sea")
    report = index(photos, model=model)
    assert (report.moved, report.new, report.deleted, report.encoded, report.unchanged) == (3, 0, 0, 0, 3)
    assert set(contents(at_of(photos))) == {f"{'sea' if n % 2 else 'town'}/{n}.png" for n in range(6)}
    assert vectors(at_of(photos)).keys() == before.keys()


def test_a_picture_that_is_known_is_not_even_decoded(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(photos, model=model)
    (photos / "beach").rename(photos / "sea")
    monkeypatch.delattr("sightline.collection.indexing.readers.open_for_model")
    assert index(photos, model=model).moved == 3


def test_files_that_swap_their_names_are_not_encoded_again(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    put(photos / "town" / "0.png", picture(1), LATER)
    put(photos / "beach" / "1.png", picture(0), LATER)
    report = index(photos, model=model)
    assert (report.changed, report.encoded) == (2, 0)
    assert contents(at_of(photos))["town/0.png"] == digest(picture(1))


def test_a_changed_file_gets_a_new_vector_and_loses_the_old(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    put(photos / "town" / "0.png", picture(99), LATER)
    report = index(photos, model=model)
    assert (report.changed, report.encoded, report.unchanged) == (1, 1, 5)
    assert digest(picture(0)) not in vectors(at_of(photos))
    assert digest(picture(99)) in vectors(at_of(photos))


def test_deleted_files_lose_their_vectors(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    (photos / "town" / "0.png").unlink()
    report = index(photos, model=model)
    assert (report.deleted, report.unchanged) == (1, 5)
    assert len(contents(at_of(photos))) == 5


def test_ids_are_never_given_twice(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    with Collection.open(at_of(photos)) as collection:
        last = collection.catalog.ids()[-1]
    for path in list(photos.rglob("*.png")):
        path.unlink()
    index(photos, model=model, prune=True)
    put(photos / "new.png", picture(50))
    index(photos, model=model)
    with Collection.open(at_of(photos)) as collection:
        assert collection.catalog.ids() == [last + 1]


def test_a_broken_file_is_listed_with_its_reason_and_read_again_once_it_changes(
    photos: Path, model: Instant, reads: list[str]
) -> None:
    put(photos / "broken.png", picture(9)[:60])
    first = index(photos, model=model)
    assert (first.new, paths(first.broken)) == (6, ["broken.png"])
    assert "truncated" in first.broken[0].reason
    reads.clear()
    second = index(photos, model=model)
    assert (second.broken, reads, second.unchanged) == (first.broken, [], 6)
    with Collection.open(at_of(photos)) as collection:
        assert [(file.path, file.reason) for file in collection.broken()] == [("broken.png", first.broken[0].reason)]
    assert index(photos, model=model, retry=True).read == 1
    put(photos / "broken.png", picture(9), LATER)
    mended = index(photos, model=model)
    assert (mended.changed, mended.broken) == (1, [])


def test_a_picture_that_breaks_is_no_longer_found(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    put(photos / "town" / "0.png", b"no picture", LATER)
    assert paths(index(photos, model=model).broken) == ["0.png"]
    assert len(contents(at_of(photos))) == 5


def test_a_file_that_could_not_be_read_is_tried_at_every_run(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def denied(path: object, *options: int) -> int:
        if str(path).endswith("0.png"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", denied)
        report = index(photos, model=model)
    assert [problem.reason for problem in report.broken] == ["cannot be read: permission denied"]
    assert (index(photos, model=model).broken, len(contents(at_of(photos)))) == ([], 6)


def test_a_picture_that_lacked_a_decoder_is_tried_at_every_run(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(open, "detect_type", lambda _: FileType("a PNG picture", "PNG", "nowhere"))
        assert len(index(photos, model=model).broken) == 6
    assert index(photos, model=model).broken == []


def test_a_picture_of_which_the_model_makes_no_numbers_is_broken_and_its_copies_too(photos: Path) -> None:
    class Overflowing(Instant):
        def encode_images(self, pixels: np.ndarray) -> Encoded:
            encoded = super().encode_images(pixels)
            encoded.embedding[pixels[:, 0, 0, 0] == 1] = np.nan
            return encoded

    Image.new("RGB", (8, 8), "white").save(photos / "white.png")
    shutil.copy(photos / "white.png", photos / "white too.png")
    report = index(photos, model=Overflowing())
    assert sorted(paths(report.broken)) == ["white too.png", "white.png"]
    assert (report.new, len(contents(at_of(photos)))) == (6, 6)


def test_a_folder_that_is_gone_is_refused_and_keeps_its_items(photos: Path, model: Instant, tmp_path: Path) -> None:
    at = tmp_path / "at"
    index(photos, at=at, model=model)
    photos.rename(tmp_path / "elsewhere")
    with pytest.raises(CollectionError, match="no such folder") as caught:
        index(photos, at=at, model=model)
    assert "--prune" in caught.value.way_out
    report = index(at=at, model=model)
    assert (report.deleted, [problem.path for problem in report.skipped]) == (0, [str(photos)])
    assert len(contents(at)) == 6


def test_a_folder_that_is_suddenly_empty_keeps_its_items_unless_pruned(
    photos: Path, model: Instant, tmp_path: Path
) -> None:
    at = tmp_path / "at"
    index(photos, at=at, model=model)
    shutil.rmtree(photos)
    photos.mkdir()
    report = index(photos, at=at, model=model)
    assert (report.deleted, len(report.skipped), len(contents(at))) == (0, 1, 6)
    assert "--prune" in report.skipped[0].reason
    report = index(photos, at=at, model=model, prune=True)
    assert (report.deleted, report.skipped, contents(at)) == (6, [], {})


def test_a_folder_that_is_gone_is_forgotten_when_pruned(photos: Path, model: Instant, tmp_path: Path) -> None:
    at = tmp_path / "at"
    put(tmp_path / "other" / "x.png", picture(70))
    index([photos, tmp_path / "other"], at=at, model=model)
    shutil.rmtree(photos)
    assert index(photos, at=at, model=model, prune=True).deleted == 6
    report = index(at=at, model=model)
    assert (report.skipped, list(contents(at))) == ([], ["x.png"])


def test_files_below_a_folder_that_cannot_be_listed_are_kept(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(photos, model=model)
    scandir = os.scandir

    def guarded(path: Path) -> object:
        if Path(path) == photos / "beach":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", guarded)
        report = index(photos, model=model)
    assert (report.deleted, report.unchanged, paths(report.skipped)) == (0, 3, ["beach"])
    assert len(contents(at_of(photos))) == 6


def test_files_behind_a_link_that_leads_nowhere_now_are_kept(photos: Path, model: Instant, tmp_path: Path) -> None:
    put(tmp_path / "disk" / "x.png", picture(80))
    (photos / "disk").symlink_to(tmp_path / "disk")
    index(photos, model=model)
    (tmp_path / "disk").rename(tmp_path / "unplugged")
    report = index(photos, model=model)
    assert (report.deleted, len(contents(at_of(photos)))) == (0, 7)


def test_a_file_that_vanishes_before_it_is_read_is_told_of(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ImageFile.read

    def late(source: ImageFile) -> bytes:
        if source.path.name == "2.png":
            source.path.unlink()
        return read(source)

    monkeypatch.setattr(ImageFile, "read", late)
    report = index(photos, model=model)
    assert (report.new, report.broken, paths(report.skipped)) == (5, [], ["2.png"])


def test_a_part_of_a_root_is_brought_up_to_date_alone(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    (photos / "beach" / "1.png").unlink()
    (photos / "town" / "0.png").unlink()
    put(photos / "beach" / "new.png", picture(60))
    report = index(photos / "beach", at=at_of(photos), model=model)
    assert (report.new, report.deleted, report.unchanged) == (1, 1, 2)
    found = contents(at_of(photos))
    assert {"beach/new.png", "town/0.png"} <= found.keys()
    assert "beach/1.png" not in found


def test_a_folder_around_a_root_takes_it_over_without_encoding_again(
    photos: Path, model: Instant, tmp_path: Path
) -> None:
    at = tmp_path / "at"
    index([photos / "beach", photos / "town"], at=at, model=model)
    report = index(photos, at=at, model=model)
    assert (report.unchanged, report.new, report.read) == (6, 0, 0)
    assert "beach/1.png" in contents(at)
    with Collection.open(at) as collection:
        assert list(collection.catalog.roots().values()) == [photos]


def test_several_folders_need_a_place(photos: Path, model: Instant) -> None:
    with pytest.raises(CollectionError, match="several folders") as caught:
        index([photos / "beach", photos / "town"], model=model)
    assert "--at" in caught.value.way_out


def test_a_folder_inside_another_is_indexed_once(photos: Path, model: Instant, tmp_path: Path) -> None:
    report = index([photos / "beach", photos], at=tmp_path / "at", model=model)
    assert (report.new, report.duplicates) == (6, 0)


def test_photos_that_move_together_with_their_collection_are_still_known(
    photos: Path, model: Instant, tmp_path: Path
) -> None:
    index(photos, model=model)
    moved = photos.rename(tmp_path / "other disk")
    report = index(moved, model=model)
    assert (report.unchanged, report.read) == (6, 0)
    with Collection.open(at_of(moved)) as collection:
        assert all(file.where.is_file() for file in collection.files())


def test_another_model_is_refused_and_nothing_is_lost(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    before = vectors(at_of(photos))
    with pytest.raises(CollectionError, match="indexed with the model instant") as caught:
        index(photos, model=Instant("b" * 64))
    assert "--at" in caught.value.way_out
    assert vectors(at_of(photos)).keys() == before.keys()
    with Collection.open(at_of(photos)) as collection:
        collection.check_model(Instant("a" * 64))
        with pytest.raises(CollectionError):
            collection.check_model(Instant("b" * 64))


def test_a_mistyped_folder_leaves_nothing_behind(tmp_path: Path, model: Instant) -> None:
    with pytest.raises(CollectionError, match="no such folder"):
        index(tmp_path / "fotos", model=model)
    with pytest.raises(CollectionError, match="not a collection"):
        index(at=tmp_path / "nothing", model=model)
    assert list(tmp_path.iterdir()) == []


def test_progress_runs_from_few_to_all(photos: Path, model: Instant) -> None:
    heard: list[tuple[int, int]] = []
    index(photos, model=model, progress=lambda done, total: heard.append((done, total)))
    assert heard == sorted(heard)
    assert {total for _, total in heard} == {6}
    assert heard[-1] == (6, 6)


def test_a_report_tells_itself_in_a_line(photos: Path, model: Instant) -> None:
    put(photos / "broken.png", b"x")
    put(photos / "copy.png", picture(1))
    told = str(index(photos, model=model))
    assert told.startswith("7 new, 1 broken; 1 exact copy; ")
    assert told.endswith(" images/s")


def test_a_bundle_encodes_with_one_thread_a_batch_and_one_that_does_so_already_is_not_loaded_again(
    tiny_bundle: Path,
) -> None:
    several = Bundle.open(tiny_bundle, threads=2)
    one = several.with_threads(1)
    assert isinstance(one, Bundle)
    assert (one.threads, one.sha256) == (1, several.sha256)
    assert one.with_threads(1) is one


def test_a_tiny_bundle_indexes_with_all_its_parts(photos: Path, tiny_bundle: Path) -> None:
    index(photos, model=tiny_bundle)
    bundle = Bundle.open(tiny_bundle)
    with Collection.open(at_of(photos)) as collection:
        shape, ids = collection.manifest.shape, collection.store.ids()
        assert (shape.embedding, shape.fragments) == (16, 8)
        assert shape.states > 0
        for id, item in collection.items(ids.tolist()).items():
            encoded = bundle.encode_images(to_pixels(ImageFile(item.files[0].where), bundle.preprocess)[None])
            for part in ("embedding", "fragments", "states"):
                found = collection.store.fetch(np.array([id]), part)
                expected = getattr(encoded, part).reshape(found.values.shape)
                assert np.abs(found.values - expected).max() < 0.02 * np.abs(expected).max()


def test_a_file_that_was_changed_without_a_trace_in_size_and_time_is_read_again(photos: Path, model: Instant) -> None:
    path = photos / "town" / "0.png"
    index(photos, model=model)
    before = path.stat()
    data = bytearray(picture(0, format="BMP"))
    put(path, bytes(data), before.st_mtime_ns)
    index(photos, model=model)
    data[-1] ^= 0xFF
    put(path, bytes(data), before.st_mtime_ns)
    assert index(photos, model=model).changed == 1


def test_an_image_that_becomes_a_pipe_does_not_stop_a_run(
    photos: Path, model: Instant, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = changed_files.find_images

    def replaced(*arguments: object, **options: object) -> object:
        paths = list(found(*arguments, **options))
        paths[0].unlink()
        os.mkfifo(paths[0])
        return iter(paths)

    monkeypatch.setattr(changed_files, "find_images", replaced)
    report = index(photos, model=model)
    assert report.new == 5
    assert "not a regular file" in report.broken[0].reason


def test_a_lock_file_that_is_deleted_keeps_nobody_out_and_lets_nobody_in(photos: Path, model: Instant) -> None:
    index(photos, model=model)
    at = photos / ".sightline"
    with write_lock(at):
        (at / "lock").unlink()
        with pytest.raises(CollectionError, match="is being written to"):
            index(photos, model=model, wait=False)
    assert index(photos, model=model, wait=False).unchanged == 6
