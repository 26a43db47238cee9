"""The camera, lens and exposure of a photo, from its EXIF data."""

from typing import Any

from PIL import ExifTags, Image

_LONGEST = 80  # maximum length of a value, in characters


def camera_facts(exif: Image.Exif) -> dict[str, str]:
    """Return camera, lens, exposure, aperture, ISO and focal length as text; unknown values are left out."""
    try:
        details: dict[int, Any] = dict(exif.get_ifd(ExifTags.IFD.Exif))
        make, model = _text(exif.get(ExifTags.Base.Make)), _text(exif.get(ExifTags.Base.Model))
    except Exception:  # parsers may raise any exception for malformed input
        return {}
    found = {
        "camera": model if model.lower().startswith(make.lower()) else f"{make} {model}".strip(),
        "lens": _text(details.get(ExifTags.Base.LensModel)),
        "exposure": _exposure(_number(details.get(ExifTags.Base.ExposureTime))),
        "aperture": _measure("f/{:.3g}", _number(details.get(ExifTags.Base.FNumber))),
        "iso": _measure("ISO {:.0f}", _number(details.get(ExifTags.Base.ISOSpeedRatings))),
        "focal_length": _measure("{:.3g} mm", _number(details.get(ExifTags.Base.FocalLength))),
    }
    return {name: value for name, value in found.items() if value}


def _text(value: object) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
    return "".join(character for character in text if character.isprintable()).strip()[:_LONGEST]


def _number(value: Any) -> float:
    try:
        number = float(value[0] if isinstance(value, tuple | list) else value)
    except (TypeError, ValueError, ZeroDivisionError, IndexError):
        return 0.0
    return number if 0 < number < 1e7 else 0.0


def _measure(form: str, number: float) -> str:
    return form.format(number) if number else ""


def _exposure(seconds: float) -> str:
    """Format an exposure time.

    >>> _exposure(0.004), _exposure(2.5), _exposure(0)
    ('1/250 s', '2.5 s', '')
    """
    if not seconds:
        return ""
    return f"1/{1 / seconds:.0f} s" if seconds < 0.4 else f"{seconds:.3g} s"
