"""Limits on requests to the server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits of a server.

    upload_bytes: size of a request body that may contain images. body_bytes: size of any other.
    all_bodies_bytes: total size of the bodies of all requests in progress.
    pixels: size of an uploaded image.
    image_bytes, video_bytes: size of an image or video file that is sent from the collection.
    own_pixels: size of an image or video frame that is decoded from the collection.
    decode_bytes: memory to decode one image. large_decode_bytes: the same for large images of the collection, which are
        decoded one at a time.
    decode_seconds: time to decode one image.
    items: texts, images or pairs in one API request. characters: length of one text.
    ids: items to download, list or add to an album in one request.
    parameters: parameters in the query string of a request. errors: invalid parts of a request that are reported.
    results, rerank, late: number of results of a search, and of results to rescore by matching or late interaction.
    deepest: number of results that a search may skip.
    late_all: number of items up to which a search may rank all of them by late interaction.
    seconds: time from the first byte of a request to the first byte of its response.
    header_seconds: time for a client to send request headers.
    stall_seconds: if there are too many connections, those whose client has sent nothing for this time go first.
    write_seconds: time for a client to receive a chunk of a response.
    stop_seconds: once the server is stopping, time for a client to send the rest of a request or receive its response.
    connections, connections_per_address: connections open at the same time, in total and per address.
    waiting: queued requests of one kind; more are rejected.
    rate, burst: requests per second that one client of a public server may sustain, and may send at once.
    batch: queries processed together, from encoding to results; 1 disables batching. encoders: number of such batches
        processed at the same time; 0 for one per CPU.
    gather_ms: how long to wait for more queries to batch, if the previous batch had several.
    thumbnail_bytes: total size of all cached thumbnails.
    """

    upload_bytes: int = 20 * 2**20
    body_bytes: int = 256 * 2**10
    all_bodies_bytes: int = 256 * 2**20
    pixels: int = 50_000_000
    image_bytes: int = 256 * 2**20
    video_bytes: int = 64 * 2**30
    own_pixels: int = 256_000_000
    decode_bytes: int = 384 * 2**20
    large_decode_bytes: int = 2 * 2**30
    decode_seconds: float = 15.0
    items: int = 64
    characters: int = 1_000
    ids: int = 10_000
    parameters: int = 64
    errors: int = 20
    results: int = 200
    deepest: int = 100_000
    rerank: int = 100
    late: int = 1_000
    late_all: int = 100_000
    seconds: float = 30.0
    header_seconds: float = 10.0
    stall_seconds: float = 2.0
    write_seconds: float = 20.0
    stop_seconds: float = 4.0
    connections: int = 512
    connections_per_address: int = 256
    waiting: int = 512
    rate: float = 20.0
    burst: int = 300
    batch: int = 16
    encoders: int = 0
    gather_ms: float = 3.0
    thumbnail_bytes: int = 500 * 2**20
