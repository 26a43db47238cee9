"""Detect the container of a video from its first bytes.

If FFmpeg were left to guess, it might treat a file as a playlist that refers to other files or addresses.
"""

from typing import NamedTuple

HEAD_BYTES = 4096
"""How many bytes at the beginning of a file are examined."""

_MOV_BOXES = (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
_TS_PACKET = 188


class VideoType(NamedTuple):
    """A container format: its name in FFmpeg, and its MIME type for browsers."""

    demuxer: str
    content_type: str


_BEGINNINGS = (
    (b"FLV\x01", VideoType("flv", "video/x-flv")),
    (b"\0\0\x01\xba", VideoType("mpeg", "video/mpeg")),
    (b"\0\0\x01\xb3", VideoType("mpegvideo", "video/mpeg")),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", VideoType("asf", "video/x-ms-wmv")),
    (b"OggS", VideoType("ogg", "video/ogg")),
)


def video_type(head: bytes) -> VideoType | None:
    r"""Return the container of the file that begins with these bytes; None if it is unknown.

    >>> video_type(b"\0\0\0\x18ftypqt  ")
    VideoType(demuxer='mov', content_type='video/mp4')
    """
    if head[4:8] in _MOV_BOXES:
        return VideoType("mov", "video/mp4")  # browsers also play QuickTime files, but only with this MIME type
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return VideoType("matroska", "video/webm" if b"webm" in head[:64] else "video/x-matroska")
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return VideoType("avi", "video/x-msvideo")
    if any(head[at : at + 1] == head[at + step : at + step + 1] == b"G" for at, step in ((0, _TS_PACKET), (4, 192))):
        return VideoType("mpegts", "video/mp2t")
    return next((kind for beginning, kind in _BEGINNINGS if head.startswith(beginning)), None)
