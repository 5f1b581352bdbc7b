"""Draw the pictures of the authored documents: the letterhead's mark and two maps of city dots."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from PIL import Image, ImageDraw

INK = (15, 61, 76)
TEAL = (23, 126, 137)
AMBER = (224, 142, 69)
WHITE = (255, 255, 255)
PAPER = (245, 248, 249)
SCALE = 3  # drawn larger, then reduced: smooth edges


def _png(image: Image.Image, colours: int) -> bytes:
    buffer = io.BytesIO()
    image.quantize(colours).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def mark(size: int = 240, ground: tuple[int, int, int] = INK) -> bytes:
    """The house mark: a rounded square with three rising bars."""
    side = size * SCALE
    image = Image.new("RGB", (side, side), "white" if ground == INK else INK)
    draw = ImageDraw.Draw(image)
    draw.rounded_rectangle((0, 0, side - 1, side - 1), side // 6, fill=ground)
    bars = [(0.30, TEAL), (0.48, WHITE), (0.66, AMBER)]
    for index, (height, colour) in enumerate(bars):
        left = side * (0.20 + 0.22 * index)
        draw.rounded_rectangle((left, side * (0.83 - height), left + side * 0.16, side * 0.83), side // 40, fill=colour)
    return _png(image.resize((size, size), Image.Resampling.LANCZOS), 64)


def dot_map(
    csv_path: Path, west: float, south: float, east: float, north: float, width: int, dark: bool = False
) -> bytes:
    """A map made only of the cities themselves, plate carrée, cropped to the given degrees."""
    height = round(width * (north - south) / (east - west))
    image = Image.new("RGB", (width * SCALE, height * SCALE), INK if dark else PAPER)
    draw = ImageDraw.Draw(image)
    step = width * SCALE / (east - west)
    with csv_path.open(encoding="utf-16", newline="") as file:
        rows = sorted(csv.DictReader(file, delimiter=";"), key=lambda row: int(row["Einwohner"].replace(".", "")))
    for row in rows:
        x = (float(row["Längengrad"].replace(",", ".")) - west) * step
        y = (north - float(row["Breitengrad"].replace(",", "."))) * step
        people = int(row["Einwohner"].replace(".", ""))
        radius = SCALE * width / 1000 * (1.0 + (people / 400_000) ** 0.5)
        draw.ellipse(
            (x - radius, y - radius, x + radius, y + radius),
            fill=AMBER if people >= 2_000_000 else (92, 176, 184) if dark else TEAL,
        )
    return _png(image.resize((width, height), Image.Resampling.LANCZOS), 48)
