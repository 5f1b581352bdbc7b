"""``excalirender``: an Excalidraw scene as SVG, PNG or PDF, without a browser: excalirender SCENE -o FILE.

The drawing is that of the Python package excalidraw-render (clean lines, no hand-drawn roughness); pictures and PDF are
made from the SVG by librsvg, which finds a font for every script.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from excalidraw_render import render
from excalidraw_render.element import ExcalidrawElement, FreeDrawElement, LinearElement, Scene, parse_scene

from . import excalidraw_scene

ENDED_WELL, FAILED = 0, 1
FORMATS = ("svg", "png", "pdf")
Box = tuple[float, float, float, float]
of_scene: Callable[[Scene], Box] = render._scene_bbox
MARGIN = 8.0  # for strokes and arrow heads that reach beyond the points


class Failed(Exception):
    """What ends the command; the text says why."""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="excalirender", description="Render an Excalidraw scene to SVG, PNG or PDF.")
    parser.add_argument("scene", metavar="SCENE", help="path of the .excalidraw file; - reads standard input")
    parser.add_argument("-o", "--output", metavar="FILE", help="path to write (.svg, .png, .pdf); default SCENE.png")
    parser.add_argument("-s", "--scale", type=float, default=1.0, help="size of a PNG as a multiple of the scene's")
    parser.add_argument("-b", "--background", metavar="COLOUR", help="instead of the scene's own")
    parser.add_argument("-t", "--transparent", action="store_true", help="no background")
    parser.add_argument("--padding", type=float, default=render.DEFAULT_PADDING)
    return parser


def points_box(element: LinearElement | FreeDrawElement) -> Box:
    """What a line covers; its points may lie on all sides of its origin."""
    xs = [element.x + x for x, _ in element.points] or [element.x]
    ys = [element.y + y for _, y in element.points] or [element.y]
    return min(xs) - MARGIN, min(ys) - MARGIN, max(xs) + MARGIN, max(ys) + MARGIN


def bounds(scene: Scene) -> Box:
    """What the scene covers; the package takes each line's origin for its upper left corner."""
    boxes = [box_of(element) for element in scene.elements]
    if not boxes:
        return of_scene(scene)
    lows, highs = [box[:2] for box in boxes], [box[2:] for box in boxes]
    return min(x for x, _ in lows), min(y for _, y in lows), max(x for x, _ in highs), max(y for _, y in highs)


def box_of(element: ExcalidrawElement) -> Box:
    """What one element covers."""
    if isinstance(element, (LinearElement, FreeDrawElement)) and not element.angle:
        return points_box(element)
    return of_scene(Scene(elements=(element,)))


def read_scene(place: str) -> dict[str, Any]:
    """The scene's JSON."""
    try:
        text = sys.stdin.read() if place == "-" else Path(place).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise Failed(f"cannot read {place}: {cause}") from None
    try:
        return excalidraw_scene.completed(json.loads(text))
    except ValueError as cause:
        raise Failed(f"{place} is not an Excalidraw scene: {cause}") from None


def to_svg(data: dict[str, Any], options: argparse.Namespace) -> str:
    """The scene as SVG."""
    own = data["appState"].get("viewBackgroundColor") or render.DEFAULT_BACKGROUND
    background = None if options.transparent or own == "transparent" else options.background or own
    render._scene_bbox = bounds
    return str(render.render_svg(parse_scene(data), padding=options.padding, background=background))


def write(svg: str, output: Path, scale: float) -> None:
    """The SVG as it is, or through librsvg."""
    wanted = output.suffix.lstrip(".").lower()
    if wanted not in FORMATS:
        raise Failed(f"the output must end in .{', .'.join(FORMATS)}; it is {output.name}")
    if wanted == "svg":
        output.write_text(svg, encoding="utf-8")
        return
    command = ["rsvg-convert", f"--format={wanted}", f"--zoom={scale}", f"--output={output.absolute()}"]
    done = subprocess.run(command, input=svg.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr.decode(errors="replace").strip() or "rsvg-convert failed")


def main(arguments: list[str] | None = None) -> int:
    """Render one scene; the exit code."""
    options = build_parser().parse_args(arguments)
    stem = "scene" if options.scene == "-" else Path(options.scene).with_suffix("")
    try:
        write(to_svg(read_scene(options.scene), options), Path(options.output or f"{stem}.png"), options.scale)
    except (Failed, OSError) as cause:
        print(f"excalirender: {cause}", file=sys.stderr)
        return FAILED
    except (KeyError, TypeError, ValueError, AttributeError) as cause:
        print(f"excalirender: an element of the scene has a wrong shape: {cause!r}", file=sys.stderr)
        return FAILED
    return ENDED_WELL


if __name__ == "__main__":
    sys.exit(main())
