"""Region features are read from each format as their publishers write it, and a broken row costs only itself."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets import region_files as files
from sightline.datasets import Problem
from sightline.datasets.regions import Found, read_regions
from sightline.errors import DataError

Write = Callable[[Path, Sequence[files.Picture]], Path]
FORMATS: dict[str, Write] = {
    "bottom-up": files.bottom_up,
    "oscar": files.oscar_lines,
    "vinvl": files.vinvl,
    "oscar-tensors": files.oscar_tensors,
    "npz": files.npz,
    "uniter": files.uniter_msgpack,
    "uniter-compressed": files.uniter_compressed,
    "m3p": files.m3p,
    "precomputed": files.precomputed,
}
HALF = {"uniter", "uniter-compressed"}


def read_on(path: Path) -> tuple[list[Found], list[Problem]]:
    problems: list[Problem] = []
    return list(read_regions(path, problems.append)), problems


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_written_is_read(name: str, tmp_path: Path) -> None:
    some = files.pictures((4, 4, 4) if name == "precomputed" else (3, 1, 4))
    found, problems = read_on(FORMATS[name](tmp_path, some))
    assert problems == []
    assert [one.name for one in found] == ["1", "2", "3"]
    for one, picture in zip(found, some, strict=True):
        kind = np.float16 if name in HALF else np.float32
        assert one.features.dtype == kind
        np.testing.assert_array_equal(one.features, picture.features.astype(kind))
        if name == "precomputed":
            assert one.boxes is None
        else:
            assert one.boxes is not None
            np.testing.assert_allclose(one.boxes, picture.corners, atol=1e-3 if name in HALF else 1e-6)
        assert (one.confidence is not None) == (name in HALF)


def test_pictures_of_precomputed_features_come_with_their_five_captions_and_their_split(tmp_path: Path) -> None:
    found, _ = read_on(files.precomputed(tmp_path, files.pictures((2, 2))))
    assert found[1].captions == {"en": tuple(f"{text} 2" for text in files.CAPTIONS)}
    assert {one.split for one in found} == {"test"}


@pytest.mark.parametrize("times", [1, 5])
def test_precomputed_features_may_be_there_once_or_five_times_and_without_names(tmp_path: Path, times: int) -> None:
    some = files.pictures((2, 2, 2))
    found, problems = read_on(files.precomputed(tmp_path, some, times=times, ids=False))
    assert (problems, [one.name for one in found]) == ([], ["test-000000", "test-000001", "test-000002"])
    for one, picture in zip(found, some, strict=True):
        np.testing.assert_array_equal(one.features, picture.features)


def test_a_picture_of_one_vector_has_one_region(tmp_path: Path) -> None:
    np.save(tmp_path / "dev_ims.npy", np.ones((2, 7), dtype=np.float32))
    found, _ = read_on(tmp_path)
    assert [one.features.shape for one in found] == [(1, 7), (1, 7)]
    assert {one.split for one in found} == {"val"}


def test_oscars_tensors_come_with_the_captions_beside_them(tmp_path: Path) -> None:
    found, _ = read_on(files.oscar_tensors(tmp_path, files.pictures()))
    assert found[2].captions == {"en": tuple(files.CAPTIONS)}
    assert found[2].split == "test"


def test_features_that_are_turned_round_are_turned_back(tmp_path: Path) -> None:
    picture = files.pictures((3,))[0]
    np.savez(tmp_path / "1.npz", x=picture.features.T, bbox=picture.boxes, image_w=640, image_h=480)
    (found,) = read_regions(tmp_path)
    np.testing.assert_array_equal(found.features, picture.features)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"bbox": np.zeros(8), "image_w": 640, "image_h": 480}, "bbox has shape [8], not [regions, 4]"),
        ({"bbox": np.zeros((2, 4)), "image_w": 640}, "has bbox, but no image_h"),
        ({"bbox": np.zeros((2, 4))}, "has bbox, but no image_h or image_w"),
    ],
)
def test_boxes_that_cannot_be_used_are_told(tmp_path: Path, arrays: dict[str, Any], says: str) -> None:
    np.savez(tmp_path / "1.npz", x=np.zeros((2, 8), dtype=np.float32), **arrays)
    _, (problem,) = read_on(tmp_path)
    assert problem.reason == says


def spoil_bottom_up(path: Path) -> str:
    lines = path.read_text().splitlines()
    lines[1] = lines[1][:-9]
    path.write_text("\n".join(lines))
    return f"{path}:2"


def spoil_oscar(path: Path) -> str:
    lines = (path / "features.tsv").read_text().splitlines()
    lines[1] = lines[1].replace("\t1\t", "\tnone\t")
    (path / "features.tsv").write_text("\n".join(lines))
    return f"{path / 'features.tsv'}:2"


def spoil_vinvl(path: Path) -> str:
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "2\t{", lines[2]]))
    return f"{path}:2"


def spoil_tensors(path: Path) -> str:
    import torch

    tensors = torch.load(path, weights_only=True)
    tensors[2][0, 0] = float("nan")
    torch.save(tensors, path)
    return f"{path}:2"


def spoil_npz(path: Path) -> str:
    whole = (path / "2.npz").read_bytes()
    (path / "2.npz").write_bytes(whole[: len(whole) // 2])
    return str(path / "2.npz")


def spoil_lmdb(path: Path) -> str:
    import lmdb

    with lmdb.open(str(path), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        whole = transaction.get(b"2.npz")
        transaction.put(b"2.npz", whole[: len(whole) // 2])
    return f"{path}:2.npz"


def spoil_m3p(path: Path) -> str:
    import h5py

    with h5py.File(path, "r+") as file:
        file["wh"][1] = [0, 640]
    return f"{path}:1"


def spoil_precomputed(path: Path) -> str:
    features = np.load(path / "test_ims.npy")
    features[1, 0, 0] = np.inf
    np.save(path / "test_ims.npy", features)
    return f"{path / 'test_ims.npy'}:1"


SPOIL = {
    "bottom-up": spoil_bottom_up,
    "oscar": spoil_oscar,
    "vinvl": spoil_vinvl,
    "oscar-tensors": spoil_tensors,
    "npz": spoil_npz,
    "uniter": spoil_lmdb,
    "uniter-compressed": spoil_lmdb,
    "m3p": spoil_m3p,
    "precomputed": spoil_precomputed,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_broken_row_is_reported_with_its_place_and_costs_nothing_else(name: str, tmp_path: Path) -> None:
    path = FORMATS[name](tmp_path, files.pictures((4, 4, 4) if name == "precomputed" else (3, 1, 4)))
    place = SPOIL[name](path)
    found, problems = read_on(path)
    assert [one.name for one in found] == ["1", "3"]
    assert [problem.place for problem in problems] == [place]
    with pytest.raises(DataError) as caught:
        list(read_regions(path))
    assert caught.value.what.startswith(f"{place}: ")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (["1", "640", "480", "2", "AAAA", "AAAA"], "3 bytes, which do not divide into 2 regions"),
        (["1", "640", "480", "0", "", ""], "not a positive whole number"),
        (["1", "640", "480", "1", "?", "?"], "not base64"),
        (["1", "640", "480", "1"], "4 fields instead of 6"),
        (
            ["", "640", "480", "1", files.encoded(np.ones((1, 4), "f4")), files.encoded(np.ones((1, 2), "f4"))],
            "no name",
        ),
    ],
)
def test_a_row_says_what_is_wrong_with_it(fields: list[str], reason: str, tmp_path: Path) -> None:
    path = files.bottom_up(tmp_path, files.pictures((2,)))
    path.write_text(path.read_text() + "\t".join(fields))
    found, problems = read_on(path)
    assert [one.name for one in found] == ["1"]
    assert reason in problems[0].reason


def test_five_features_that_differ_are_no_picture(tmp_path: Path) -> None:
    files.precomputed(tmp_path, files.pictures((2, 2)), times=5)
    features = np.load(tmp_path / "test_ims.npy")
    features[4] += 1
    np.save(tmp_path / "test_ims.npy", features)
    found, problems = read_on(tmp_path)
    assert [one.name for one in found] == ["2"]
    assert "differ" in problems[0].reason


def test_captions_that_do_not_fit_the_pictures_are_refused(tmp_path: Path) -> None:
    files.precomputed(tmp_path, files.pictures((2, 2)))
    (tmp_path / "test_caps.txt").write_text("a dog\n" * 15)
    with pytest.raises(DataError, match=r"2 images, but test_caps\.txt has 15 captions"):
        list(read_regions(tmp_path))


def test_a_damaged_file_is_refused_by_name(tmp_path: Path) -> None:
    for write in (files.m3p, files.oscar_tensors):
        folder = tmp_path / write.__name__
        folder.mkdir()
        path = write(folder, files.pictures())
        path.write_bytes(path.read_bytes()[:100])
        with pytest.raises(DataError, match=path.name):
            list(read_regions(path, lambda _: None))


def test_tensors_that_would_run_code_are_refused(tmp_path: Path) -> None:
    import torch

    torch.save({1: Path}, tmp_path / "test_img_frcnn_feats.pt")
    with pytest.raises(DataError, match="torch cannot load"):
        list(read_regions(tmp_path / "test_img_frcnn_feats.pt"))


@pytest.mark.parametrize("name", ["nowhere.tsv", "empty", "notes.txt"])
def test_what_is_no_features_is_refused_at_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=name):
        read_regions(tmp_path / name)


def test_the_names_of_oscars_rows_are_those_of_the_index(tmp_path: Path) -> None:
    path = files.oscar_lines(tmp_path, files.pictures())
    (path / "imageid2idx.json").write_text(json.dumps({"nine": 1}))
    assert [one.name for one in read_regions(path)] == ["row 0", "nine", "row 2"]
