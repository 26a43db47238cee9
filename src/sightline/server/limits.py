"""Limits of the server on what clients may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits.

    upload_bytes: of the body of a request. pixels: of an image that is sent.
    picture_bytes: of a file of the collection that is sent back. own_pixels: of one that is decoded.
    decode_bytes: memory for decoding one image; large_decode_bytes: for one of the collection, one at a time.
    decode_seconds: time for decoding one image.
    items: texts, images or pairs in one request for other programs. characters: of one text.
    results, rerank, late: of one search. deepest: results that it may leave out at the front.
    late_all: items of a collection that a search may rank by their parts.
    seconds: from the first byte of a request to the first of its answer.
    header_seconds: for a client to send the head of a request. write_seconds: for it to take a part of an answer.
    connections, connections_per_address: open at the same time.
    waiting: requests of one kind that wait for their turn; more are turned away.
    rate, burst: requests a second that one client of a public server may make in the long run, and at once.
    batch: queries answered at once, from encoding to results; 1 for each alone. encoders: how many such batches at the
        same time; 0 for one a processor.
    gather_ms: how long others are waited for, when there are others.
    thumbnail_bytes: of all thumbnails that are kept on the disk.
    """

    upload_bytes: int = 20 * 2**20
    pixels: int = 50_000_000
    picture_bytes: int = 256 * 2**20
    own_pixels: int = 256_000_000
    decode_bytes: int = 384 * 2**20
    large_decode_bytes: int = 2 * 2**30
    decode_seconds: float = 15.0
    items: int = 64
    characters: int = 1_000
    results: int = 200
    deepest: int = 100_000
    rerank: int = 100
    late: int = 1_000
    late_all: int = 100_000
    seconds: float = 30.0
    header_seconds: float = 10.0
    write_seconds: float = 20.0
    connections: int = 512
    connections_per_address: int = 256
    waiting: int = 512
    rate: float = 20.0
    burst: int = 300
    batch: int = 16
    encoders: int = 0
    gather_ms: float = 3.0
    thumbnail_bytes: int = 500 * 2**20
