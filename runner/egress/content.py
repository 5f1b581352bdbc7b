"""What a file is, by its first bytes and never by its name or a header. Pure."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

HEAD: Final = 4096  # bytes that decide


@dataclass(frozen=True, slots=True)
class Kind:
    """A media type with the ending that files of it get. ``twin``: Pillow cannot open it, a PNG beside it can."""

    media_type: str
    ending: str
    twin: bool = False

    @property
    def is_image(self) -> bool:
        """Whether it is a picture."""
        return self.media_type.startswith("image/")

    @property
    def is_text(self) -> bool:
        """Whether people can read it as it stands."""
        return self.media_type.startswith("text/")


SVG: Final = Kind("image/svg+xml", ".svg", twin=True)
_HEIC: Final = Kind("image/heic", ".heic", twin=True)
_HEIF: Final = Kind("image/heif", ".heif", twin=True)
_AVIF: Final = Kind("image/avif", ".avif")
HTML: Final = Kind("text/html", ".html")
PLAIN: Final = Kind("text/plain", ".txt")
BINARY: Final = Kind("application/octet-stream", ".bin")
ZIP: Final = Kind("application/zip", ".zip")
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", Kind("image/png", ".png")),
    (b"\xff\xd8\xff", Kind("image/jpeg", ".jpg")),
    (b"GIF87a", Kind("image/gif", ".gif")),
    (b"GIF89a", Kind("image/gif", ".gif")),
    (b"II*\0", Kind("image/tiff", ".tiff")),
    (b"MM\0*", Kind("image/tiff", ".tiff")),
    (b"\0\0\x01\0", Kind("image/vnd.microsoft.icon", ".ico")),
    (b"8BPS\0\x01", Kind("image/vnd.adobe.photoshop", ".psd")),
    (b"\xff\x0a", Kind("image/jxl", ".jxl", twin=True)),
    (b"\0\0\0\x0cJXL \r\n\x87\n", Kind("image/jxl", ".jxl", twin=True)),
    (b"\0\0\0\x0cjP  \r\n\x87\n", Kind("image/jp2", ".jp2")),
    (b"\xff\x4f\xff\x51", Kind("image/jp2", ".j2k")),
    (b"%PDF-", Kind("application/pdf", ".pdf")),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (b"\x1f\x8b\x08", Kind("application/gzip", ".gz")),
    (b"BZh", Kind("application/x-bzip2", ".bz2")),
    (b"\xfd7zXZ\0", Kind("application/x-xz", ".xz")),
    (b"(\xb5/\xfd", Kind("application/zstd", ".zst")),
    (b"7z\xbc\xaf'\x1c", Kind("application/x-7z-compressed", ".7z")),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Kind("application/x-ole-storage", ".ole")),
    (b"SQLite format 3\0", Kind("application/vnd.sqlite3", ".sqlite")),
    (b"PAR1", Kind("application/vnd.apache.parquet", ".parquet")),
    (b"OggS", Kind("audio/ogg", ".ogg")),
    (b"fLaC", Kind("audio/flac", ".flac")),
    (b"ID3", Kind("audio/mpeg", ".mp3")),
    (b"wOFF", Kind("font/woff", ".woff")),
    (b"wOF2", Kind("font/woff2", ".woff2")),
    (b"OTTO", Kind("font/otf", ".otf")),
    (b"\0\x01\0\0\0", Kind("font/ttf", ".ttf")),
    (b"\x1aE\xdf\xa3", Kind("video/webm", ".webm")),
)
_RIFF: Final = {
    b"WEBP": Kind("image/webp", ".webp"),
    b"WAVE": Kind("audio/wav", ".wav"),
    b"AVI ": Kind("video/x-msvideo", ".avi"),
}
_HEIF_BRANDS: Final = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"))
_SKIPPED: Final = re.compile(r"\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[[^\]]*\])?\s*>", re.DOTALL | re.IGNORECASE)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_ROOT: Final = re.compile(r"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)(?=[\s/>])")
_PAGE: Final = re.compile(r"<!doctype\s+html|<html|<head|<body|<script|<title|<meta", re.IGNORECASE)


def kind_of(head: bytes) -> Kind:
    """The kind of a file that begins with ``head``."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], BINARY)
    if head[4:8] == b"ftyp":
        return _boxed(head)
    if head.startswith(b"BM") and _is_bitmap(head):
        return Kind("image/bmp", ".bmp")
    text = _text(head)
    return BINARY if text is None else _of_text(text)


def _boxed(head: bytes) -> Kind:
    """By the brands in the first box of an ISO base media file, and only there."""
    size = min(int.from_bytes(head[:4], "big"), len(head))
    major = head[8:12]
    brands = {major, *(head[at : at + 4] for at in range(16, size - 3, 4))}
    if brands & {b"avif", b"avis"}:
        return _AVIF
    if brands & _HEIF_BRANDS:
        return _HEIC
    if brands & {b"mif1", b"msf1", b"mif2"}:
        return _HEIF
    return Kind("audio/mp4", ".m4a") if major == b"M4A " else Kind("video/mp4", ".mp4")


def _is_bitmap(head: bytes) -> bool:
    """Whether a header of Windows' bitmaps follows, of one of the lengths there are."""
    return head[6:10] == b"\0\0\0\0" and int.from_bytes(head[14:18], "little") in (12, 40, 52, 56, 64, 108, 124)


def _text(head: bytes) -> str | None:
    """As text, when it is: UTF-8, or UTF-16 with its mark; the last character may be cut."""
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else text


def _of_text(text: str) -> Kind:
    """A picture only where its root element says so: a page with one in it is a page."""
    rest = text
    while found := _SKIPPED.match(rest):
        rest = rest[found.end() :]
    root = _ROOT.match(rest)
    if root is not None and root[1] == "svg" and not re.match(r"\s*<!doctype\s+html", text, re.IGNORECASE):
        return SVG
    return HTML if _PAGE.match(rest) or _PAGE.match(text.lstrip()) else PLAIN
