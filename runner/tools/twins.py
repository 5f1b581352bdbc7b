"""PNG twins of pictures that Pillow does not open, made inside the conversation's sandbox."""

from __future__ import annotations

from typing import Final

from runner.conversations.result import Artifact
from runner.errors import Corrupt, ToolFailed
from runner.model import Outcome, RunRequest
from runner.tools.base import Call

_TIMEOUT_MS: Final = 60_000
_REFUSED: Final = 3  # exit status: no program could open it
# Each way is tried until one gives a PNG that Pillow opens. Files are named by us, and no shell reads them.
_CODE: Final = """
import os, shutil, subprocess, sys, tempfile
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
            subprocess.run(words, stdin=given, capture_output=True, timeout=20, check=True)
    return make

vector = [by("rsvg-convert", "-o", "OUT", "-")]
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
        except Exception:
            continue
        with open(out, "rb") as made, open(target, "wb") as kept:
            kept.write(made.read())
        break
    else:
        sys.exit({refused})
"""


async def make(call: Call, path: str) -> Artifact:
    """The PNG beside a picture. Raises Corrupt where nothing in the sandbox can open it."""
    target = path.rpartition(".")[0] + ".png"
    code = _CODE.format(source=f"/workspace/{path}", target=f"/workspace/{target}", refused=_REFUSED)
    result = await call.run(RunRequest(code, timeout_ms=call.service.limits.timeout_ms(_TIMEOUT_MS), fresh=True))
    if result.exit_code == _REFUSED:
        raise Corrupt(f"{path} was stored, but no program of the sandbox opens it: it is damaged, or of a rare kind")
    found = next((item for item in result.files if item.path == target), None)
    if found is None and result.outcome is Outcome.OK:
        entry = (await call.service.find(call.tenant, call.conversation)).workspace.files.get(target)
        found = None if entry is None else Artifact(target, "modified", entry)  # the same bytes as before
    if found is None or found.entry is None:
        raise ToolFailed("the picture was stored, but its PNG could not be made: try again", cause=repr(result.error))
    return found
