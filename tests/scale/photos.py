"""Pictures to index, and what a search finds among them, for tests of collections on servers."""

import io
from pathlib import Path

from PIL import ExifTags, Image

from collection.made_up import Instant, picture, put
from sightline.collection import Collection


def make_photos(folder: Path) -> Path:
    """Pictures in folders, some with a date and a place, one of them twice."""
    for number in range(12):
        exif = Image.Exif()
        if number % 3:
            when = f"20{20 + number % 4}:0{number % 6 + 1}:07 10:11:12"
            exif[ExifTags.IFD.Exif] = {ExifTags.Base.DateTimeOriginal: when}
        if number % 4 == 1:
            exif[ExifTags.IFD.GPSInfo] = {1: "N", 2: (40.0 + number, 0.0, 0.0), 3: "W", 4: (8.0, 0.0, 0.0)}
        put(folder / ("Beach/far" if number % 2 else "town") / f"{number}.png", drawn(number, exif))
    put(folder / "copies" / "twin.png", (folder / "town" / "2.png").read_bytes())
    put(folder / "top.png", picture(99))
    return folder


def drawn(number: int, exif: Image.Exif) -> bytes:
    """A picture of one of three sizes."""
    with Image.open(io.BytesIO(picture(number))) as small:
        times, file = number % 3 + 1, io.BytesIO()
        small.resize((12 * times, 9 * times)).save(file, "PNG", exif=exif)
    return file.getvalue()


def names(at: Path | str, text: str = "a red square", **options: object) -> list[str]:
    """The paths of the twenty best, and their scores."""
    with Collection.open(at, Instant()) as collection:
        found = collection.search(text, k=20, duplicates="show", **options)  # type: ignore[arg-type]
    return [f"{hit.path} {hit.score:.5f} {hit.taken} {hit.width} {hit.file}" for hit in found]
