"""PNG twins of pictures that Pillow does not open, made inside the conversation's sandbox."""

from __future__ import annotations

from typing import Final

from runner.conversations.result import Artifact
from runner.errors import Corrupt, ToolFailed
from runner.tools.base import Call

_TIMEOUT_MS: Final = 60_000
_EACH_S: Final = 20
_REFUSED: Final = 3  # exit status: no program could open it
_MOST: Final = 8192  # pixels of the longer side of a drawing's twin
_UNITS: Final = {"in": 96, "cm": 96 / 2.54, "mm": 96 / 25.4, "pt": 96 / 72, "pc": 16, "em": 16, "ex": 8}
# Each way is tried until one gives a PNG that Pillow opens. Files are named by us, and no shell reads them.
_CODE: Final = """
import os, re, shutil, subprocess, sys, tempfile
from xml.etree import ElementTree
from PIL import Image

source, target = {source!r}, {target!r}
kind = source.rpartition(".")[2]
for plugin in ("pillow_heif", "pillow_jxl"):
    try:
        module = __import__(plugin)
        getattr(module, "register_heif_opener", lambda: None)()
    except Exception:
        pass

def by_pillow(out):
    with Image.open(source) as picture:
        picture.load()
        picture.save(out)

def by(*command):
    def make(out):
        alone = os.path.join(os.path.dirname(out), "in." + kind)  # with no file beside it that it could refer to
        shutil.copyfile(source, alone)
        words = [word.replace("IN", alone) if word.startswith("IN") else word.replace("OUT", out) for word in command]
        with open(alone, "rb") as given:
            subprocess.run(words, stdin=given, capture_output=True, timeout={each_s}, check=True)
    return make

def at_most():
    # A drawing names its own size, and each pixel of it costs time and memory.
    try:
        root = next(ElementTree.iterparse(source, ["start"]))[1]
        box = [float(word) for word in re.split("[ ,]+", root.get("viewBox", "").strip()) if word][2:]
        size = [length(root.get(name, ""), box, place) for place, name in enumerate(("width", "height"))]
    except Exception:
        size = [0]
    return ["-a", "-w", str({most}), "-h", str({most})] if max(size) > {most} else []

def length(text, box, place):
    found = re.match(r"\\s*([0-9.eE+-]+)\\s*([a-z%]*)", text)
    if found is None or found[2] == "%":
        return box[place] if box else 0
    return float(found[1]) * {units}.get(found[2], 1)

vector = [by("rsvg-convert", *at_most(), "-o", "OUT", "-")] if kind == "svg" else []
ways = (vector if kind == "svg" else [by_pillow]) + [
    by("vips", "copy", "IN", "OUT"),
    by("magick", "IN[0]", "OUT"),
    by("ffmpeg", "-nostdin", "-v", "error", "-i", "IN", "-frames:v", "1", "-y", "OUT"),
]
with tempfile.TemporaryDirectory() as folder:
    out = os.path.join(folder, "twin.png")
    for way in ways:
        try:
            way(out)
            with Image.open(out) as picture:
                picture.load()
                print(*picture.size)
        except subprocess.TimeoutExpired:
            sys.exit({refused})
        except Exception:
            continue
        with open(out, "rb") as made, open(target, "wb") as kept:
            kept.write(made.read())
        break
    else:
        sys.exit({refused})
"""


def program(source: str, target: str, each_s: float = _EACH_S) -> str:
    """What the sandbox runs. A program that does not end in time is the last one: the others would not either."""
    return _CODE.format(source=source, target=target, refused=_REFUSED, most=_MOST, units=_UNITS, each_s=each_s)


async def make(call: Call, path: str) -> Artifact:
    """The PNG beside a picture. Raises Corrupt where nothing in the sandbox can open it."""
    target = path.rpartition(".")[0] + ".png"
    result = await call.run_own(program(f"/workspace/{path}", f"/workspace/{target}"), _TIMEOUT_MS)
    if result.exit_code == _REFUSED:
        raise Corrupt(f"{path} was stored, but no program of the sandbox opens it: it is damaged, or of a rare kind")
    found = await call.made(result, target)
    if found is None:
        raise ToolFailed("the picture was stored, but its PNG could not be made: try again", cause=repr(result.error))
    return found
