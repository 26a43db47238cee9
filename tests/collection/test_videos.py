"""Videos in a collection: one item each, found by its moments, and handled like any other file."""

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from typer.testing import CliRunner

import sightline
from collection.made_up import LONG_AGO, Instant, put
from sightline import cli
from sightline.bundle import Encoded
from sightline.cli.formatting import hit_lines, report_lines
from sightline.collection import Collection
from sightline.collection.indexing import decoders
from sightline.collection.indexing.create import open_to_write
from sightline.collection.indexing.remove import remove
from sightline.collection.indexing.video_files import DecodedVideo
from sightline.collection.status import status
from sightline.media import ImageBytes, Preprocess, to_pixels, video
from sightline.packages import install_extra
from sightline.retrieval.results import SearchResult

pytest.importorskip("av", reason="the extra video is not installed")

from media.video_files import film, scene


class Colours(Instant):
    """Sees the mean colour of each quarter of an image; a text names the seed of a scene."""

    def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
        self.encoded += len(pixels)
        quarters = pixels.reshape(len(pixels), 3, 2, 4, 2, 4).mean(axis=(3, 5)).reshape(len(pixels), -1)
        length = np.maximum(np.linalg.norm(quarters, axis=1, keepdims=True), 1e-6)
        return Encoded((quarters / length).astype(np.float32), np.ones((len(pixels), 0), dtype=np.bool_))

    def encode_texts(self, texts: object) -> Encoded:
        shown = [to_pixels(_png(int(text)), self.preprocess) for text in texts]  # type: ignore[attr-defined]
        return self.encode_images(np.stack(shown))


def _png(seed: int) -> ImageBytes:
    file = io.BytesIO()
    scene(seed).save(file, "PNG")
    return ImageBytes("scene", file.getvalue())


def aged(path: Path) -> Path:
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


@pytest.fixture(scope="session")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two videos and a picture, not indexed."""
    folder = tmp_path_factory.mktemp("filmed")
    notes = {"com.apple.quicktime.creationdate": "2023-08-01T14:30:00+0200", "location": "+52.5000+013.2500/"}
    aged(film(folder / "trip" / "one.mp4", [scene(seed) for seed in (1, 2, 3)], notes=notes))
    aged(film(folder / "two.webm", [scene(seed) for seed in (4, 5)]))
    put(folder / "still.png", _png(6).data)
    return folder


@pytest.fixture(scope="session")
def indexed(filmed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, indexed; not to be changed."""
    folder = Path(shutil.copytree(filmed, tmp_path_factory.mktemp("indexed") / "photos"))
    report = sightline.index(folder, model=Colours())
    assert (report.new, report.encoded, report.broken) == (3, 6, [])
    return folder


@pytest.fixture
def photos(indexed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(indexed, tmp_path / "photos"))


def search(photos: Path, seed: int, **options: object) -> SearchResult:
    with sightline.open(photos, model=Colours()) as collection:
        return collection.search(str(seed), **options)  # type: ignore[arg-type]


def vectors(photos: Path) -> int:
    with Collection.open(photos, model=Colours()) as collection:
        assert collection.store.ids().tolist() == collection.catalog.ids()
        return len(collection.catalog.ids())


def test_a_video_is_one_item_and_is_found_at_the_right_moment(indexed: Path) -> None:
    with sightline.open(indexed, model=Colours()) as collection:
        assert len(collection) == 3
        for seed, path, second in (
            (1, "trip/one.mp4", 0),
            (2, "trip/one.mp4", 3),
            (3, "trip/one.mp4", 6),
            (5, "two.webm", 3),
        ):
            found = collection.search(str(seed))
            assert [hit.path for hit in found][:1] == [path]
            assert sorted(hit.path for hit in found) == ["still.png", "trip/one.mp4", "two.webm"]
            assert found[0].moments[0] == pytest.approx(second, abs=0.25)
            assert len(found[0].moments) == (3 if seed < 4 else 2)
            assert found[0].score == pytest.approx(1, abs=0.05)
        still = collection.search("6")[0]
        assert (still.path, still.moments, still.duration) == ("still.png", (), None)


def test_every_way_to_search_has_one_hit_for_a_video(indexed: Path) -> None:
    with sightline.open(indexed, model=Colours()) as collection:
        together = collection.search_together(["2", "5"], k=3)
        assert [result[0].moments[0] for result in together] == pytest.approx([3, 3], abs=0.25)
        assert [len(result) for result in together] == [3, 3]
        assert len(collection.search("2", duplicates="show")) == 3
        assert len(collection.search("2", k=1)) == 1
        by_image = collection.search(image=scene(3))
        assert by_image[0].moments[0] == pytest.approx(6, abs=0.25)
        without = collection.search("2", not_="5")
        assert sorted(hit.path for hit in without) == ["still.png", "trip/one.mp4", "two.webm"]


def test_filters_dates_and_places_apply(indexed: Path) -> None:
    found = search(indexed, 2, where="folder = 'trip' and taken = '2023-08-01'")
    assert [hit.path for hit in found] == ["trip/one.mp4"]
    assert found[0].taken == "2023-08-01T14:30:00+02:00"
    assert len(found[0].moments) == 3
    assert {hit.path for hit in search(indexed, 2, where="duration > 5")} == {"trip/one.mp4", "two.webm"}
    assert [hit.path for hit in search(indexed, 2, where="duration is null")] == ["still.png"]
    with sightline.open(indexed, model=Colours()) as collection:
        assert [item.files[0].path for item in collection.browse(where="latitude > 52")] == ["trip/one.mp4"]
        assert len(collection.timeline()) == 3
        collection.add_to_album("Films", [search(indexed, 2)[0].id])
    assert [hit.path for hit in search(indexed, 5, where="album = 'Films'")] == ["trip/one.mp4"]


def test_indexing_again_reads_nothing_and_copies_and_moves_are_recognised(photos: Path) -> None:
    sightline.index(photos, model=Colours())
    assert sightline.index(photos, model=Colours()).counts == "3 unchanged"
    shutil.copy2(photos / "two.webm", photos / "copy.webm")
    model = Colours()
    report = sightline.index(photos, model=model)
    assert (report.new, report.duplicates, model.encoded) == (1, 1, 0)
    (photos / "trip" / "one.mp4").rename(photos / "moved.mp4")
    assert sightline.index(photos, model=Colours()).moved == 1
    assert search(photos, 2)[0].path == "moved.mp4"
    assert vectors(photos) == 6


def test_a_video_that_changes_or_goes_takes_all_its_moments_along(photos: Path) -> None:
    aged(film(photos / "two.webm", [scene(7)]))
    (photos / "trip" / "one.mp4").unlink()
    report = sightline.index(photos, model=Colours())
    assert (report.changed, report.deleted) == (1, 1)
    assert vectors(photos) == 2
    assert search(photos, 7)[0].path == "two.webm"


def test_removing_a_video_keeps_its_file(photos: Path) -> None:
    assert remove([photos / "trip"], photos, model=Colours()) == 1
    assert vectors(photos) == 3
    assert (photos / "trip" / "one.mp4").exists()


def test_a_video_that_lost_a_vector_is_read_again_as_a_whole(photos: Path) -> None:
    with open_to_write(photos / ".sightline", "images", Colours(), named=(), wait=True, notify=None) as (
        catalog,
        store,
    ):
        moments = catalog.moments()
        assert moments is not None
        found = search(photos, 2)[0].id
        store.delete(np.array([list(moments.of([found])[found])[-1]], dtype=np.int64))
        store.flush()
    report = sightline.index(photos, model=Colours())
    assert (report.new, report.unchanged, report.encoded) == (1, 2, 3)
    assert vectors(photos) == 6
    assert search(photos, 3)[0].path == "trip/one.mp4"


def test_hostile_and_broken_videos_get_a_line_and_cost_nothing_else(photos: Path) -> None:
    put(photos / "cut.mp4", (photos / "trip" / "one.mp4").read_bytes()[:400])
    put(photos / "list.mov", b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n")
    put(photos / "empty.mkv", b"")
    os.mkfifo(photos / "pipe.avi")
    report = sightline.index(photos, model=Colours())
    assert report.unchanged == 3
    reasons = {Path(one.path).name: one.reason for one in (*report.broken, *report.skipped)}
    assert "damaged or of an unsupported type" in reasons["cut.mp4"]
    assert reasons["list.mov"] == "is not a known kind of video"
    assert reasons["empty.mkv"] == "is not a known kind of video"
    assert set(reasons) <= {"cut.mp4", "list.mov", "empty.mkv", "pipe.avi"}
    assert len(status(photos).broken) == 3
    assert sightline.index(photos, model=Colours()).unchanged == 3


def test_a_decoder_that_dies_costs_one_file(filmed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = Path(shutil.copytree(filmed, tmp_path / "photos"))
    monkeypatch.setattr(decoders, "_CPU_SECONDS", 0.01)
    monkeypatch.setattr(decoders, "_VIDEO_SECONDS", 20.0)
    report = sightline.index(photos, model=Colours())
    assert report.new == 1
    assert {Path(one.path).name for one in report.broken} == {"one.mp4", "two.webm"}
    assert all("takes longer than" in one.reason for one in report.broken)


def test_a_video_that_is_replaced_while_it_is_read_is_not_taken_for_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    film(photos / "a.mp4", [scene(1)], 1)
    film(tmp_path / "other.mp4", [scene(2)], 1)
    put(photos / "b.mp4", (photos / "a.mp4").read_bytes())
    moments = decoders.FileDecoders.moments

    def replaced(self: decoders.FileDecoders, path: Path, *arguments: Any) -> DecodedVideo:
        if path.name == "a.mp4" and (tmp_path / "other.mp4").exists():
            (tmp_path / "other.mp4").replace(path)
        return moments(self, path, *arguments)

    monkeypatch.setattr(decoders.FileDecoders, "moments", replaced)
    report = sightline.index(photos, model=Colours())
    assert [one.reason for one in report.broken] == ["changed while it was read"]
    sightline.index(photos, model=Colours())
    with Collection.open(photos, Colours()) as collection:
        assert [collection.search(seed)[0].path for seed in ("1", "2")] == ["b.mp4", "a.mp4"]


def test_without_the_extra_videos_are_counted_and_what_was_indexed_stays(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy2(photos / "two.webm", photos / "new.webm")
    monkeypatch.setattr(video, "is_installed", lambda: False)
    report = sightline.index(photos, model=Colours())
    assert (report.unchanged, report.deleted) == (3, 0)
    told = f"Not indexed: 1 video (.webm). To index them: {install_extra('video')}"
    assert told in [*report_lines(report)]
    assert search(photos, 2)[0].path == "trip/one.mp4"


def test_a_model_that_fails_on_one_moment_leaves_out_the_whole_video(filmed: Path, tmp_path: Path) -> None:
    photos = Path(shutil.copytree(filmed, tmp_path / "photos"))

    class Failing(Colours):
        def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
            found = super().encode_images(pixels)
            if len(found.embedding) > 1:
                found.embedding[-1] = np.nan
            return found

    report = sightline.index(photos / "trip", model=Failing())
    assert [one.reason for one in report.broken] == ["the model returned NaN or infinite numbers for it"]
    with Collection.open(photos / "trip", model=Failing()) as collection:
        assert collection.catalog.ids() == collection.store.ids().tolist() == []


def test_the_command_shows_moments(indexed: Path) -> None:
    result = search(indexed, 2)
    shown = result.to_json()["hits"][0]
    assert shown["moments"] == list(result[0].moments)
    assert shown["duration"] == pytest.approx(9, abs=0.3)
    assert "at 0:03, " in hit_lines(result.hits)[0]
    listed = CliRunner().invoke(cli.app, ["search", "--where", "duration > 5", "--at", str(indexed), "--json"])
    assert {item["path"] for item in json.loads(listed.stdout)["items"]} == {"trip/one.mp4", "two.webm"}


def test_a_run_that_ends_within_a_video_leaves_none_of_its_moments(tmp_path: Path) -> None:
    class Ending(Colours):
        def encode_images(self, pixels: npt.NDArray[np.float32]) -> Encoded:
            if self.encoded > 3:
                raise RuntimeError("the end")
            return super().encode_images(pixels)

    aged(film(tmp_path / "long.mp4", [scene(seed) for seed in range(10, 16)]))
    with pytest.raises(RuntimeError, match="the end"):
        sightline.index(tmp_path, model=Ending())
    assert vectors(tmp_path) == 0
    assert sightline.index(tmp_path, model=Colours()).new == 1
    assert vectors(tmp_path) == 6
    assert search(tmp_path, 14)[0].moments[0] == pytest.approx(12, abs=0.25)


def stored(at: Path) -> dict[tuple[str, float | None], bytes]:
    """The embedding of every content, by its file and moment."""
    with Collection.open(at) as collection:
        ids = collection.catalog.ids()
        assert collection.store.ids().tolist() == ids
        items, fetch = collection.items(ids), collection.store.fetch
        keys = {id: (items[id].files[0].path, items[id].moment) for id in ids}
        return {keys[id]: fetch(np.array([id]), "embedding").values.tobytes() for id in ids}


@pytest.mark.parametrize("left_out", [0, 1])
def test_a_video_of_the_fast_graph_is_refined_as_a_whole(
    filmed: Path, quick_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_out: int
) -> None:
    moments = decoders.FileDecoders.moments

    def fewer(self: decoders.FileDecoders, path: Path, name: str, preprocess: Preprocess) -> DecodedVideo:
        """Frames of another size may be split into other moments."""
        found, seen = moments(self, path, name, preprocess), left_out if preprocess.size == 32 else 0
        most = len(found.moments.seconds) - seen
        return DecodedVideo(found.about, video.Moments(*(part[:most] for part in found.moments)))

    monkeypatch.setattr(decoders.FileDecoders, "moments", fewer)
    at, full = tmp_path / "quick", tmp_path / "full"
    assert sightline.index(filmed, at=at, model=quick_bundle, quick=True).to_refine == 3
    sightline.index(filmed, at=full, model=quick_bundle)
    assert stored(at) != stored(full)
    report = sightline.index(filmed, at=at, model=quick_bundle, refine=True)
    assert (report.refined, report.to_refine) == (3, 0)
    assert stored(at) == stored(full)
    assert sightline.index(filmed, at=at, model=quick_bundle).unchanged == 3
