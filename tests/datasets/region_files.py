"""Region features, made up, and written to files in each format as those who publish them write them."""

import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
DIM = 5
CAPTIONS = ["a dog", "the dog", "one dog", "dog runs", "a wet dog"]


@dataclass(frozen=True)
class Picture:
    """What a detector found in a picture: features [n, DIM], boxes [n, 4] in pixels."""

    name: str
    width: int
    height: int
    features: Floats
    boxes: Floats

    @property
    def corners(self) -> Floats:
        """The boxes as shares."""
        return self.boxes / np.array([self.width, self.height] * 2, dtype=np.float32)

    @property
    def six(self) -> Floats:
        """Corners, width and height, as Oscar and UNITER have them."""
        corners = self.corners
        return np.concatenate([corners, corners[:, 2:] - corners[:, :2]], axis=1)


def pictures(counts: Sequence[int] = (3, 1, 4), seed: int = 0) -> list[Picture]:
    chance = np.random.default_rng(seed)
    made = []
    for number, count in enumerate(counts, start=1):
        start = chance.uniform(0, 0.5, (count, 2))
        boxes = np.concatenate([start, start + chance.uniform(0.1, 0.5, (count, 2))], axis=1) * [640, 480, 640, 480]
        features = chance.standard_normal((count, DIM)).astype(np.float32)
        made.append(Picture(str(number), 640, 480, features, boxes.astype(np.float32)))
    return made


def encoded(array: Floats) -> str:
    return base64.b64encode(np.ascontiguousarray(array)).decode()


def bottom_up(folder: Path, some: Sequence[Picture]) -> Path:
    rows = (
        [one.name, one.width, one.height, len(one.boxes), encoded(one.boxes), encoded(one.features)] for one in some
    )
    return _tsv(folder / "trainval_36.tsv", rows)


def oscar_lines(folder: Path, some: Sequence[Picture]) -> Path:
    """The layout for retrieval: `imageid2idx.json` numbers the rows, whose own names may differ."""
    rows = ([f"row {n}", len(one.boxes), encoded(oscar(one))] for n, one in enumerate(some))
    (folder / "imageid2idx.json").write_text(json.dumps({one.name: n for n, one in enumerate(some)}))
    _tsv(folder / "features.tsv", rows)
    return folder


def vinvl(folder: Path, some: Sequence[Picture]) -> Path:
    rows = ([one.name, json.dumps({"num_boxes": len(one.boxes), "features": encoded(oscar(one))})] for one in some)
    return _tsv(folder / "features.tsv", rows)


def oscar_tensors(folder: Path, some: Sequence[Picture]) -> Path:
    import torch

    torch.save({int(one.name): torch.from_numpy(oscar(one)) for one in some}, folder / "test_img_frcnn_feats.pt")
    torch.save({int(one.name): json.dumps(CAPTIONS) for one in some}, folder / "test_captions.pt")
    return folder / "test_img_frcnn_feats.pt"


def oscar(one: Picture) -> Floats:
    return np.concatenate([one.features, one.six], axis=1)


def npz(folder: Path, some: Sequence[Picture]) -> Path:
    """As the torch version of bottom-up attention writes them, with class names pickled into them."""
    for one in some:
        known = {"x": one.features, "bbox": one.boxes, "image_w": one.width, "image_h": one.height}
        np.savez_compressed(folder / f"{one.name}.npz", **known, num_bbox=len(one.boxes), info={"objects": ["dog"]})  # type: ignore[arg-type]
    return folder


def uniter_npz(one: Picture, dtype: str = "float16", confidence: Floats | None = None) -> dict[str, npt.NDArray]:
    count = len(one.features)
    sure = np.linspace(0.9, 0.3, count) if confidence is None else confidence
    labels = np.full((count, 7), 1 / 7)
    arrays = {"features": one.features, "norm_bb": one.six, "conf": sure, "soft_labels": labels}
    return {key: array.astype(dtype) for key, array in arrays.items()}


def uniter_compressed(folder: Path, some: Sequence[Picture]) -> Path:
    def packed(arrays: dict[str, npt.NDArray]) -> bytes:
        with io.BytesIO() as writer:
            np.savez_compressed(writer, **arrays, allow_pickle=True)
            return writer.getvalue()

    return _lmdb(folder / "feat_th0.2_max100_min10_compressed", some, packed)


def uniter_msgpack(folder: Path, some: Sequence[Picture]) -> Path:
    import msgpack
    import msgpack_numpy

    def packed(arrays: dict[str, npt.NDArray]) -> bytes:
        return msgpack.packb(arrays, default=msgpack_numpy.encode, use_bin_type=True)  # type: ignore[no-any-return]

    return _lmdb(folder / "feat_th0.2_max100_min10", some, packed)


def _lmdb(folder: Path, some: Sequence[Picture], packed: Callable[[dict[str, npt.NDArray]], bytes]) -> Path:
    import lmdb

    with lmdb.open(str(folder), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        for one in some:
            transaction.put(f"{one.name}.npz".encode(), packed(uniter_npz(one)))
        names = json.dumps([f"{one.name}.npz" for one in some])
        transaction.put(b"__keys__", names.encode())
    return folder


def m3p(folder: Path, some: Sequence[Picture]) -> Path:
    import h5py

    most = max(len(one.features) for one in some)
    with h5py.File(folder / "test.h5", "w") as file:
        file["image_id"] = np.array([one.name for one in some], dtype="S16")
        file["wh"] = np.array([[one.height, one.width] for one in some])
        file["num_boxes"] = np.array([len(one.features) for one in some])
        for key, part in (("bbox", "boxes"), ("features", "features")):
            rows = [getattr(one, part) for one in some]
            file[key] = np.stack([np.pad(row, ((0, most - len(row)), (0, 0))) for row in rows])
    return folder / "test.h5"


def precomputed(folder: Path, some: Sequence[Picture], times: int = 1, ids: bool = True) -> Path:
    """As VSE++ and SCAN have them: no boxes, as many regions for every picture, five captions each."""
    np.save(folder / "test_ims.npy", np.repeat(np.stack([one.features for one in some]), times, axis=0))
    (folder / "test_caps.txt").write_text("".join(f"{text} {one.name}\n" for one in some for text in CAPTIONS))
    if ids:
        (folder / "test_ids.txt").write_text("".join(f"{one.name}\n" for one in some))
    return folder


def _tsv(path: Path, rows) -> Path:  # type: ignore[no-untyped-def]
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return path
