"""Payloads: images that are small as files and large or slow to decode, and requests that must be rejected."""

import io

from PIL import Image

NESTED = "[" * 100_000
REFUSED: tuple[tuple[str, str, dict[str, str], bytes], ...] = (
    ("GET", "/v1/search?q=a", {"Sec-Fetch-Site": "cross-site"}, b""),
    ("GET", "/v1/items/1/image", {"Sec-Fetch-Site": "same-site"}, b""),
    ("GET", "/v1/items/1/image", {"Origin": "https://evil.example"}, b""),
    ("POST", "/v1/search", {"Origin": "null", "Content-Type": "application/json"}, b'{"q": "a"}'),
    ("GET", "/v1/collection", {"Host": "evil.example"}, b""),
    ("POST", "/v1/search", {"Content-Type": "application/json"}, f'{{"q": {NESTED}'.encode()),
    ("POST", "/v1/embed", {"Content-Type": "application/json"}, NESTED.encode()),
    ("POST", "/v1/match", {"Content-Type": "application/json"}, (NESTED.replace("[", '{"a":')).encode()),
    ("GET", f"/v1/items?where={'folder%20=%20name%20or%20' * 131}folder%20=%20name", {}, b""),
    ("GET", "/v1/items/1/image?v=0123456789abcdef", {}, b""),
    ("GET", "/v1/items/..%2f..%2f..%2fetc%2fpasswd/image", {}, b""),
    ("GET", "/../../../etc/passwd", {}, b""),
)
"""Method, path, headers and body of requests that must be answered with a status of 4xx."""


def bomb(side: int) -> bytes:
    """A PNG of one colour: kilobytes as a file, hundreds of megabytes when decoded."""
    file = io.BytesIO()
    Image.new("RGBA", (side, side)).save(file, "PNG", compress_level=9)
    return file.getvalue()


def many_scans(scans: int, side: int = 6000) -> bytes:
    """A progressive JPEG with its last scan repeated: a small file, but every scan is decoded over all pixels."""
    file = io.BytesIO()
    Image.new("RGB", (side, side), "teal").save(file, "JPEG", progressive=True, quality=20)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * scans + data[-2:]
