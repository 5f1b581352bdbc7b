"""Kinds of files by their first bytes."""

from __future__ import annotations

import pytest

from runner.egress.content import kind_of

PICTURES = {
    b"\x89PNG\r\n\x1a\n\0": "image/png",
    b"\xff\xd8\xff\xe0\0": "image/jpeg",
    b"GIF89a": "image/gif",
    b"II*\0": "image/tiff",
    b"MM\0*": "image/tiff",
    b"RIFF\x10\0\0\0WEBPVP8 ": "image/webp",
    b"BM" + b"\0" * 4 + b"\0" * 4 + b"\x36\0\0\0" + b"\x28\0\0\0": "image/bmp",
    b"\0\0\x01\0\x01": "image/vnd.microsoft.icon",
    b"8BPS\0\x01": "image/vnd.adobe.photoshop",
    b"\xff\x0a\xfa": "image/jxl",
    b"\0\0\0\x0cJXL \r\n\x87\n": "image/jxl",
    b"\0\0\0\x0cjP  \r\n\x87\n": "image/jp2",
    b"\0\0\0\x18ftypavif\0\0\0\0mif1miaf": "image/avif",
    b"\0\0\0\x18ftypmif1\0\0\0\0avifmiaf": "image/avif",
    b"\0\0\0\x18ftypheic\0\0\0\0mif1heic": "image/heic",
    b"\0\0\0\x18ftypmif1\0\0\0\0heicmiaf": "image/heic",
    b"\0\0\0\x14ftypmif1\0\0\0\0mif1": "image/heif",
    b"<svg xmlns='http://www.w3.org/2000/svg'/>": "image/svg+xml",
    b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a --><!DOCTYPE svg PUBLIC 'x' 'y'>\n<svg:svg/>": "image/svg+xml",
    "<?xml version='1.0' encoding='utf-16'?><svg />".encode("utf-16"): "image/svg+xml",
    b"<!DOCTYPE svg [ <!ENTITY a 'b'> ]><svg >": "image/svg+xml",
}
NONE = {
    b"<html><body><svg></svg>": "text/html",
    b"<!doctype html><svg></svg>": "text/html",
    b"<!-- <svg> --><p>": "text/plain",
    b"<p><svg/></p>": "text/plain",
    b"<svgx/>": "text/plain",
    b"not a picture <svg/>": "text/plain",
    b"\0\0\0\x14ftypmp42\0\0\0\0mp42" + b"heic" * 4: "video/mp4",  # brands behind the box are none
    b"BM is how this sentence begins": "text/plain",
    b"%PDF-1.7": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b\x08": "application/gzip",
    b"\x7fELF\x02": "application/octet-stream",
    b"RIFF\0\0\0\0NONE": "application/octet-stream",
    "grüße".encode()[:-4]: "text/plain",
    "grüße".encode()[:3]: "text/plain",  # cut within a character
    b"\xfe\xfd\xfc": "application/octet-stream",
    b"a\0b": "application/octet-stream",
    b"": "text/plain",
}


@pytest.mark.parametrize(("head", "media_type"), PICTURES.items())
def test_pictures(head: bytes, media_type: str) -> None:
    found = kind_of(head)
    assert (found.media_type, found.is_image) == (media_type, True)
    assert found.twin == (media_type in ("image/heic", "image/heif", "image/jxl", "image/svg+xml"))


@pytest.mark.parametrize(("head", "media_type"), NONE.items())
def test_what_is_no_picture(head: bytes, media_type: str) -> None:
    assert (kind_of(head).media_type, kind_of(head).is_image) == (media_type, False)


def test_a_head_of_nothing_but_beginnings_is_read_at_once() -> None:
    for piece in (b"<!--", b"<?", b"<!DOCTYPE ", b"<", b"<!DOCTYPE a [", b" "):
        assert not kind_of(piece * (4096 // len(piece))).is_image
