"""Measure what the fast image graph finds if it reads large photos by their embedded previews.

    python -m benchmarks.previews --photos 1000

Flickr8k's test photos are written as JPEG files of 12 megapixels: without an EXIF thumbnail, with one of the size that
many phones write, and with the smallest one that the fast graph reads. The recalls are those of its embeddings.
Needs SIGHTLINE_DATA and, for 1,000 photos, 4 GB of space for temporary files.
"""

import dataclasses
import tempfile
from pathlib import Path

from benchmarks import samples
from benchmarks.timing import options, save
from sightline.evaluation import evaluate
from sightline.media import ImageFile

SIZE = (4000, 3000)
THUMBNAILS = {"none": None, "512 x 384": (512, 384), "187 x 140": (187, 140)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--photos", type=int, default=1_000)
    arguments = parser.parse_args()
    fast = samples.bundle(arguments.model).fast_variant()
    assert fast is not None
    records = samples.records(16 if arguments.quick else arguments.photos)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        photos, copies = Path(name, "photos"), Path(name, "copies")
        photos.mkdir()
        copies.mkdir()
        samples.write_photos(records, photos, SIZE)
        for label, size in THUMBNAILS.items():
            for photo in photos.iterdir():
                data = photo.read_bytes()
                (copies / photo.name).write_bytes(samples.with_thumbnail(data, size) if size else data)
            images = [ImageFile(path) for path in sorted(copies.iterdir())]
            asked = [dataclasses.replace(record, image=image) for record, image in zip(records, images, strict=True)]
            rows.append({"thumbnail": label, **evaluate(fast, asked).to_json()})
    gains = {f"rSum gained with {row['thumbnail']}": row["rSum"] - rows[0]["rSum"] for row in rows[1:]}
    save("previews", arguments, [samples.data()], rows, gains, photos=len(records))


if __name__ == "__main__":
    main()
