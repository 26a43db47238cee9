"""A response whose body is read from a file while it is sent, so that slow clients use no memory."""

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sightline.server.images import ImageContent, read_chunk
from sightline.server.worker_pool import WorkerPool


class FileResponse(Response):
    """Sends an open file in chunks, and closes it. Each chunk is read once the client has received the previous one."""

    def __init__(self, content: ImageContent, pool: WorkerPool, headers: Mapping[str, str]) -> None:
        """Prepare to send a file; `pool` reads it."""
        assert content.file is not None
        self._file, self._size, self._pool = content.file, content.size, pool
        super().__init__(headers={**headers, "Content-Length": str(self._size)}, media_type=content.content_type)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file. If it has become shorter meanwhile, the connection is closed."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sent = 0
            while sent < self._size:
                part = await self._pool.run(read_chunk, self._file, sent, self._size - sent)
                if not part:
                    raise OSError("the file became shorter while it was sent")
                sent += len(part)
                await send({"type": "http.response.body", "body": part, "more_body": sent < self._size})
        finally:
            self._file.close()
