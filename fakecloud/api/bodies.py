"""Bodies of requests: read when somebody may send one, within limits of size and time, and never before."""

import asyncio
import zlib
from dataclasses import dataclass

from aiohttp import hdrs, web

from fakecloud import errors

# Both gzip's header and zlib's; deflate without any is told by its first byte.
_ANY_HEADER = 32 + zlib.MAX_WBITS
_NO_HEADER = -zlib.MAX_WBITS
_ENCODINGS = {"gzip": _ANY_HEADER, "x-gzip": _ANY_HEADER, "deflate": _ANY_HEADER}


@dataclass(frozen=True)
class Bodies:
    """`most` bytes, packed as well as unpacked, which come within `seconds`."""

    most: int
    seconds: float

    async def read(self, request: web.Request) -> bytes:
        """
        The body, unpacked; read twice it is the same.

        Raises:
            ProblemError: 400 it is cut off or damaged, 408 it does not come, 413 it is too large, 415 it is packed otherwise.
        """
        if (request.content_length or 0) > self.most:
            raise self._too_large()
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and not request.content.is_eof():
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            # The answer itself has not begun.
            request.writer.output_size = 0
        try:
            async with asyncio.timeout(self.seconds):
                content = await request.read()
        except TimeoutError as error:
            detail = f"the body was not complete after {self.seconds:g} s"
            raise errors.problem(408, "request-timeout", detail) from error
        except web.HTTPRequestEntityTooLarge as error:
            raise self._too_large() from error
        except (web.RequestPayloadError, ConnectionError) as error:
            raise errors.problem(400, "malformed-body", "the body is cut off, or not in the form it claims") from error
        return self._unpacked(content, request.headers.get(hdrs.CONTENT_ENCODING, "identity").strip().lower())

    def _unpacked(self, content: bytes, encoding: str) -> bytes:
        if encoding == "identity" or not content:
            return content
        form = _ENCODINGS.get(encoding)
        if form is None:
            detail = "header Content-Encoding: expected gzip, deflate or identity"
            raise errors.problem(415, "unsupported-encoding", detail)
        if encoding == "deflate" and content[0] & 0x0F != zlib.DEFLATED:
            form = _NO_HEADER
        unpacking = zlib.decompressobj(wbits=form)
        try:
            unpacked = unpacking.decompress(content, self.most + 1)
        except zlib.error as error:
            raise errors.problem(400, "malformed-body", f"the body is not {encoding}: {error}") from error
        if len(unpacked) > self.most:
            raise self._too_large()
        if not unpacking.eof:
            raise errors.problem(400, "malformed-body", f"the body is {encoding} that is cut off")
        return unpacked

    def _too_large(self) -> errors.ProblemError:
        return errors.problem(413, "body-too-large", f"a body may have {self.most} bytes; --max-body allows more")
