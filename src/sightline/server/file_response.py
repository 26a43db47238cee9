"""Responses whose body is read from a file while it is sent, so that slow clients use no memory."""

from collections.abc import Mapping
from typing import BinaryIO

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sightline.server.byte_ranges import ByteRange
from sightline.server.image_files import read_chunk
from sightline.server.worker_pool import WorkerPool


class FileResponse(Response):
    """Sends an open file in chunks, and closes it. Each chunk is read once the client has received the previous one."""

    def __init__(
        self,
        file: BinaryIO,
        size: int,
        pool: WorkerPool,
        headers: Mapping[str, str],
        content_type: str,
        part: ByteRange | None = None,
    ) -> None:
        """Prepare to send a file, or the range `part` of it; threads of `pool` read it."""
        self._file, self._pool = file, pool
        self._part = part or ByteRange(0, size)
        more = {"Content-Length": str(self._part.length)}
        if part is not None:
            more["Content-Range"] = f"bytes {part.first}-{part.first + part.length - 1}/{size}"
        super().__init__(headers={**headers, **more}, media_type=content_type, status_code=206 if part else 200)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file. If the file has become shorter in the meantime, the connection is closed."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            first, count = self._part
            if scope.get("is_head") or not count:
                await send({"type": "http.response.body", "body": b""})
                return
            sent = 0
            while sent < count:
                part = await self._pool.run(read_chunk, self._file, first + sent, count - sent)
                if not part:
                    raise OSError("the file was truncated while it was being sent")
                sent += len(part)
                await send({"type": "http.response.body", "body": part, "more_body": sent < count})
        finally:
            self._file.close()
