"""Reads ``multipart/form-data`` file by file while it comes, holding a few kilobytes at a time.

Strict on purpose (RFC 7578): every part is a file with a name; what does not fit is InvalidRequest at once, before
more of the body is read.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

from runner.errors import InvalidRequest, TooLarge

MAX_HEADERS: Final = 16 << 10
MAX_AROUND: Final = 4 << 10  # before the first and after the last boundary
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_PARAMETER: Final = re.compile(
    r';\s*([A-Za-z0-9!#$&+.^_`|~*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))\s*', re.DOTALL
)
_ESCAPED: Final = re.compile(r'\\(["\\])')
_BROWSER: Final = re.compile(r"%(22|0D|0A)", re.IGNORECASE)
_CUT: Final = "the form ends early: send it whole, with the closing boundary"


@dataclass(frozen=True, slots=True)
class Part:
    """A file of the form: the name it was sent with and its bytes, which are read before the next part."""

    filename: str
    content: AsyncIterator[bytes]


def boundary(content_type: str) -> bytes:
    """The boundary that a content type names. Raises InvalidRequest."""
    found = _parameters(content_type.partition(";")[1] + content_type.partition(";")[2]).get("boundary", "")
    if not _BOUNDARY.fullmatch(found):
        raise InvalidRequest("multipart/form-data needs a boundary of 1 to 70 characters: let your HTTP library set it")
    return found.encode()


class Form:
    """A form under way. Raises InvalidRequest, and TooLarge past ``max_parts`` files or ``max_bytes`` in all."""

    def __init__(self, chunks: AsyncIterator[bytes], limit_to: bytes, max_parts: int, max_bytes: int) -> None:
        self._chunks, self._max_parts, self._max_bytes = chunks, max_parts, max_bytes
        self._line = b"\r\n--" + limit_to
        self._held = b"\r\n"  # so that the first boundary is found like every other one
        self._seen = 0
        self._ended = False

    async def parts(self) -> AsyncIterator[Part]:
        """The files, in order."""
        around = 0
        async for piece in self._until_boundary():
            around += len(piece)
            if around > MAX_AROUND:
                raise InvalidRequest("the form does not begin with its boundary")
        count = 0
        while await self._another():
            count += 1
            if count > self._max_parts:
                raise TooLarge(
                    f"the form has more than {self._max_parts} files: send several, or raise SANDBOX_MAX_UPLOAD_FILES",
                    limit=self._max_parts,
                )
            content = self._until_boundary()
            yield Part(_filename(await self._headers()), content)
            async for _ in content:  # what the caller left
                pass
        while await self._more():
            if len(self._held) > MAX_AROUND:
                raise InvalidRequest("something follows the end of the form")

    async def _another(self) -> bool:
        """Behind a boundary: whether a part follows, or the form has ended."""
        while len(self._held) < 2:
            if not await self._more():
                raise InvalidRequest(_CUT)
        if self._held.startswith(b"--"):
            return False
        while b"\n" not in self._held[:MAX_AROUND] and len(self._held) < MAX_AROUND:
            if not await self._more():
                raise InvalidRequest(_CUT)
        padding, newline, self._held = self._held.partition(b"\r\n")
        if not newline or padding.strip(b" \t"):
            raise InvalidRequest("the form is damaged: a boundary does not end its line")
        return True

    async def _headers(self) -> bytes:
        while b"\r\n\r\n" not in self._held[: MAX_HEADERS + 4]:
            if len(self._held) > MAX_HEADERS:
                raise InvalidRequest(f"the headers of a part have more than {MAX_HEADERS} bytes")
            if not await self._more():
                raise InvalidRequest(_CUT)
        headers, _, self._held = self._held.partition(b"\r\n\r\n")
        return headers

    async def _until_boundary(self) -> AsyncIterator[bytes]:
        """Bytes to the next boundary, which is taken."""
        keep = len(self._line) - 1
        while True:
            at = self._held.find(self._line)
            if at >= 0:
                piece, self._held = self._held[:at], self._held[at + len(self._line) :]
                if piece:
                    yield piece
                return
            if len(self._held) > keep:
                piece, self._held = self._held[:-keep], self._held[-keep:]
                yield piece
            if not await self._more():
                raise InvalidRequest(_CUT)

    async def _more(self) -> bool:
        async for chunk in self._chunks:
            if chunk:
                self._seen += len(chunk)
                if self._seen > self._max_bytes:
                    raise TooLarge(f"the form has more than {self._max_bytes} bytes", limit=self._max_bytes)
                self._held += chunk
                return True
        return False


def _filename(headers: bytes) -> str:
    """The name in a part's Content-Disposition; ``filename*`` says it exactly, ``filename`` as clients escape it."""
    try:
        lines = headers.decode("utf-8").split("\r\n")
    except UnicodeDecodeError:
        raise InvalidRequest("the headers of a part are not UTF-8") from None
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip().lower(), value.strip())
    if fields.get("content-transfer-encoding", "binary").lower() not in ("binary", "8bit", "7bit"):
        raise InvalidRequest("Content-Transfer-Encoding is not understood: send the bytes of files as they are")
    kind, semicolon, rest = fields.get("content-disposition", "").partition(";")
    if kind.strip().lower() != "form-data":
        raise InvalidRequest("a part has no header Content-Disposition: form-data")
    return _named(_parameters(semicolon + rest))


def _named(parameters: dict[str, str]) -> str:
    exact = parameters.get("filename*")
    if exact is not None:
        charset, _, rest = exact.partition("'")
        try:
            if charset.lower() != "utf-8":
                raise InvalidRequest("filename*: send it as UTF-8''…")
            return unquote_to_bytes(rest.partition("'")[2]).decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidRequest("filename* is not UTF-8") from None
    plain = parameters.get("filename")
    if not plain:
        field = ascii(parameters.get("name", ""))[:80]
        raise InvalidRequest(f"the field {field} is no file: give each part a filename, the path to store it under")
    return _BROWSER.sub(lambda found: chr(int(found[1], 16)), plain)


def _parameters(text: str) -> dict[str, str]:
    """``; name=value`` pairs. A quoted value loses its quotes and the escapes of ``"`` and ``\\``."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text) and text[at:].strip(" \t;"):
        match = _PARAMETER.match(text, at)
        if match is None:
            raise InvalidRequest("the parameters of a header of the form cannot be read")
        name, quoted, plain = match.groups()
        if name.lower() in found:
            raise InvalidRequest(f"a header of the form gives {name[:40]} twice")
        found[name.lower()] = plain if quoted is None else _ESCAPED.sub(r"\1", quoted)
        at = match.end()
    return found
