"""When and where a photo was taken, from its EXIF data."""

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from PIL import ExifTags, Image

_NEGATIVE = {"S", "W"}


@dataclass(frozen=True, slots=True)
class Place:
    """A point on Earth, in degrees: north and east are positive."""

    latitude: float
    longitude: float


def taken(exif: Image.Exif) -> str | None:
    """Return the capture time in ISO 8601, in the camera's local time; with a time zone if the camera recorded one."""
    details = _directory(exif, ExifTags.IFD.Exif)
    noted = details.get(ExifTags.Base.DateTimeOriginal)
    try:
        time = datetime.strptime(str(noted).strip("\0 "), "%Y:%m:%d %H:%M:%S")
    except ValueError:
        return None
    return time.isoformat() + _zone(details.get(ExifTags.Base.OffsetTimeOriginal))


def _zone(noted: object) -> str:
    """Return a UTC offset such as +02:00; empty if it is missing or malformed."""
    zone = str(noted).strip("\0 ")
    return zone if re.fullmatch(r"[+-]\d\d:\d\d", zone) else ""


def place(exif: Image.Exif) -> Place | None:
    """Return where the photo was taken; None if the position is missing or invalid."""
    noted = _directory(exif, ExifTags.IFD.GPSInfo)
    latitude = _degrees(noted.get(ExifTags.GPS.GPSLatitude), noted.get(ExifTags.GPS.GPSLatitudeRef), 90)
    longitude = _degrees(noted.get(ExifTags.GPS.GPSLongitude), noted.get(ExifTags.GPS.GPSLongitudeRef), 180)
    return None if latitude is None or longitude is None else Place(latitude, longitude)


def _degrees(parts: Any, side: object, limit: float) -> float | None:
    """Convert degrees, minutes and seconds to decimal degrees; cameras without a GPS fix write 0/0."""
    try:
        degrees, minutes, seconds = (float(part) for part in parts)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    value = degrees + minutes / 60 + seconds / 3600
    if not math.isfinite(value) or not 0 <= value <= limit:
        return None
    return -value if str(side).strip("\0 ").upper() in _NEGATIVE else value


def _directory(exif: Image.Exif, which: ExifTags.IFD) -> dict[int, Any]:
    """Return one of the EXIF directories; empty if it is malformed."""
    try:
        return dict(exif.get_ifd(which))
    except Exception:  # parsers may raise any exception for malformed input
        return {}
