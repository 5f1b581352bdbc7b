"""Open produced files in the test process: text, fonts and pages of PDF, colours and ink of pictures."""

from __future__ import annotations

import io
from typing import Any

import pypdf
import pypdfium2
from PIL import Image, ImageChops

CJK, ARABIC, EMOJI = "中文字体", "مرحبا", "😀"
EVERY_SCRIPT = f"{CJK} {EMOJI} {ARABIC}"


def pdf(data: bytes) -> pypdf.PdfReader:
    """A PDF; refused when it is none."""
    assert data.startswith(b"%PDF-"), data[:60]
    return pypdf.PdfReader(io.BytesIO(data), strict=False)


def pdf_text(data: bytes) -> str:
    """The text of all pages, as pdfium reads it."""
    document = pypdfium2.PdfDocument(data)
    return "\n".join(page.get_textpage().get_text_range() for page in document)


def pdf_page(data: bytes, number: int = 0, scale: float = 1.0) -> Image.Image:
    """One page as a picture."""
    picture: Image.Image = pypdfium2.PdfDocument(data)[number].render(scale=scale).to_pil()
    return picture.convert("RGB")


def pdf_fonts(data: bytes) -> str:
    """The names of all embedded fonts, subset tags and all, in one line."""
    names = set()
    for page in pdf(data).pages:
        resources: Any = page.get("/Resources", {})
        fonts: Any = resources.get_object().get("/Font", {})
        names |= {str(font.get_object().get("/BaseFont", "Type3")) for font in fonts.get_object().values()}
    return " ".join(sorted(names))


def picture(data: bytes, kind: str = "PNG") -> Image.Image:
    """A picture, fully decoded."""
    opened = Image.open(io.BytesIO(data))
    opened.load()
    assert opened.format == kind, opened.format
    flat = Image.new("RGB", opened.size, "white")
    flat.paste(opened.convert("RGBA"), mask=opened.convert("RGBA").getchannel("A"))
    return flat


def ink(image: Image.Image, box: tuple[int, int, int, int] | None = None) -> float:
    """The share of pixels that differ clearly from the first one."""
    part = image.convert("RGB").crop(box) if box else image.convert("RGB")
    plain = Image.new("RGB", part.size, part.getpixel((0, 0)))
    different = ImageChops.difference(part, plain).convert("L").point(lambda value: 255 if value > 40 else 0)
    return different.histogram()[255] / (part.width * part.height)


def coloured(image: Image.Image) -> int:
    """How many pixels are as yellow as the face of an emoji; black text and empty boxes have none."""
    red, green, blue = image.convert("RGB").split()
    strong = red.point(lambda value: 255 if value > 200 else 0)
    mid = green.point(lambda value: 255 if value > 140 else 0)
    low = blue.point(lambda value: 255 if value < 120 else 0)
    return ImageChops.multiply(ImageChops.multiply(strong, mid), low).histogram()[255]


def pixel(image: Image.Image, x: int, y: int) -> tuple[int, int, int]:
    """One pixel's red, green and blue."""
    one = image.convert("RGB").crop((x, y, x + 1, y + 1)).tobytes()
    return one[0], one[1], one[2]
