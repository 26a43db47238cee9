"""Moments of videos: where something new comes into view, upright, and whatever the file is like."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.errors import MediaError, MissingDecoderError
from sightline.media import Preprocess, fit
from sightline.media.scenes import choose
from sightline.media.video import MOST_MOMENTS, Moments, VideoFacts, frame_at, read_moments

pytest.importorskip("av", reason="the extra video is not installed")

from media.video_files import film, scene

SQUARE = Preprocess(16, resize="squash", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
SCENES = [scene(seed) for seed in (1, 2, 3)]


def read(path: Path, cpu_seconds: float = 60) -> tuple[VideoFacts, Moments]:
    return read_moments(path, path.name, SQUARE, max_pixels=10**6, cpu_seconds=cpu_seconds)


def looks_like(pixels: object, wanted: Image.Image) -> bool:
    """Whether pixels show a picture, as well as a video of few pixels can."""
    return bool(np.abs(np.asarray(pixels, dtype=np.float32) - fit(wanted, SQUARE)).mean() < 24)


@pytest.mark.parametrize("name", ["a.mp4", "a.mov", "a.webm", "a.avi", "a.mkv"])
def test_each_scene_is_a_moment(name: str, tmp_path: Path) -> None:
    facts, moments = read(film(tmp_path / name, SCENES))
    assert (facts.width, facts.height) == (64, 48)
    assert facts.duration == pytest.approx(9, abs=0.3)
    assert moments.seconds == pytest.approx([0, 3, 6], abs=0.25)
    assert moments.blank == [False] * 3
    for pixels, wanted in zip(moments.pixels, SCENES, strict=True):
        assert looks_like(pixels, wanted)
    shown = frame_at(tmp_path / name, name, moments.seconds[1], max_pixels=10**6)
    assert looks_like(fit(shown, SQUARE), SCENES[1])


def test_a_video_with_a_single_key_frame_has_all_its_scenes(tmp_path: Path) -> None:
    _, moments = read(film(tmp_path / "a.mp4", SCENES, keys=600))
    assert moments.seconds == pytest.approx([0, 4, 6], abs=0.25)  # every other second is looked at
    assert looks_like(moments.pixels[1], SCENES[1])


def test_a_long_video_has_moments_of_all_its_parts(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mp4", [scene(1), scene(2), scene(1), scene(3)], 330, fps=1, keys=5)
    facts, moments = read(path)
    assert facts.duration == pytest.approx(1320, abs=2)
    assert moments.seconds == pytest.approx([0, 330, 660, 990], abs=6)
    assert looks_like(moments.pixels[3], SCENES[2])
    assert looks_like(fit(frame_at(path, "a", 700, max_pixels=10**6), SQUARE), SCENES[0])


def test_what_stays_the_same_is_one_moment_and_fades_are_none(tmp_path: Path) -> None:
    black = Image.new("RGB", (64, 48))
    _, moments = read(film(tmp_path / "a.mp4", [black, SCENES[0], SCENES[0], black, SCENES[1]]))
    assert moments.seconds == pytest.approx([3, 12], abs=0.25)
    _, moments = read(film(tmp_path / "b.mp4", [black, black]))
    assert (moments.seconds, moments.blank) == ([0], [True])


def test_a_video_that_was_filmed_upright_is_shown_upright(tmp_path: Path) -> None:
    facts, moments = read(film(tmp_path / "a.mp4", SCENES[:1], rotation=90))
    assert (facts.width, facts.height) == (48, 64)
    turned = SCENES[0].rotate(90, expand=True)
    assert looks_like(moments.pixels[0], turned)
    assert frame_at(tmp_path / "a.mp4", "a", 0, max_pixels=10**6).size == (48, 64)


@pytest.mark.parametrize(
    ("notes", "taken", "place"),
    [
        ({"com.apple.quicktime.creationdate": "2023-08-01T14:30:00+0200"}, "2023-08-01T14:30:00+02:00", None),
        ({"location": "+52.5000+013.2500/"}, None, (52.5, 13.25)),
        ({"creation_time": "1970-01-01T00:00:00Z"}, None, None),
    ],
)
def test_time_and_place_are_those_that_the_camera_wrote(
    notes: dict[str, str], taken: str | None, place: tuple[float, float] | None, tmp_path: Path
) -> None:
    facts, _ = read(film(tmp_path / "a.mov", SCENES[:1], 1, notes=notes))
    assert facts.taken == taken
    assert (facts.latitude, facts.longitude) == (place or (None, None))


def test_a_time_in_utc_becomes_the_time_of_this_machine(tmp_path: Path) -> None:
    facts, _ = read(film(tmp_path / "a.mp4", SCENES[:1], 1, notes={"creation_time": "2023-08-01T12:30:00Z"}))
    assert facts.taken == datetime(2023, 8, 1, 12, 30, tzinfo=UTC).astimezone().isoformat()


def test_damage_in_the_middle_costs_only_what_is_damaged(tmp_path: Path) -> None:
    data = bytearray(film(tmp_path / "a.avi", SCENES).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 200] = bytes(200)
    (tmp_path / "a.avi").write_bytes(data)
    _, moments = read(tmp_path / "a.avi")
    assert looks_like(moments.pixels[0], SCENES[0])
    assert looks_like(moments.pixels[-1], SCENES[2])


def test_when_time_is_up_what_was_found_has_to_do(tmp_path: Path) -> None:
    _, moments = read(film(tmp_path / "a.mp4", SCENES), cpu_seconds=0)
    assert moments.seconds == [0]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"#EXTM3U\n#EXTINF:1,\n/etc/passwd\n", "is not a known kind of video"),
        (b"\0\0\0\x18ftypisom" + bytes(300), "is a video that is damaged or of an unsupported type"),
        (b"\x1a\x45\xdf\xa3" + bytes(300), "is a video that is damaged or of an unsupported type"),
        (b"", "is not a known kind of video"),
    ],
)
def test_what_is_no_video_says_so(data: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(data)
    with pytest.raises(MediaError, match=says):
        read(tmp_path / "a.mp4")


def test_too_many_pixels_are_refused(tmp_path: Path) -> None:
    film(tmp_path / "a.mp4", SCENES[:1], 1)
    with pytest.raises(MediaError, match="too many pixels: 64 x 48"):
        read_moments(tmp_path / "a.mp4", "a", SQUARE, max_pixels=3000, cpu_seconds=9)


def test_without_the_package_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    film(tmp_path / "a.mp4", SCENES[:1], 1)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingDecoderError, match=r"needs another package: .*pip install 'sightline-search\[video\]'"):
        read(tmp_path / "a.mp4")


def test_a_long_video_has_no_more_moments_than_allowed_and_they_are_spread() -> None:
    greys = np.random.default_rng(0).integers(0, 256, (600, 18, 32), dtype=np.uint8)
    chosen = choose([10.0 * place for place in range(600)], greys, [False] * 600, MOST_MOMENTS)
    assert len(chosen) == MOST_MOMENTS
    assert (chosen[0], chosen[-1]) == (0, 599)
    assert max(np.diff(chosen)) < 12
