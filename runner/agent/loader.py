"""How agent code gets into a sandbox: one line of Python that reads a bundle of sources from fd 0.

The host sends its own sources at every start, so the two ends cannot differ in version; the agent passes
the same bundle on to the template. One whose host died before it sent them ends by itself. ``bundle`` runs on the host
only, ``LOADER`` in the sandbox only.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

PACKAGE = "foliobox_agent"

LOADER = """\
import importlib.machinery, json, os, select, sys
def read(size):
    data = b""
    while len(data) < size:
        if not select.select([0], [], [], 60)[0]:
            os._exit(0)
        part = os.read(0, size - len(data))
        if not part:
            os._exit(0)
        data += part
    return data
raw = read(int.from_bytes(read(4), "big"))
bundle = json.loads(raw)
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in bundle["modules"]:
            return importlib.machinery.ModuleSpec(name, Finder, is_package="." not in name)
    @staticmethod
    def create_module(spec):
        return None
    @staticmethod
    def exec_module(module):
        name = module.__name__
        exec(compile(bundle["modules"][name], "<%s>" % name, "exec", dont_inherit=True), module.__dict__)
sys.meta_path.insert(0, Finder)
importlib.import_module(sys.argv[1]).main(raw, sys.argv[2:])
"""


@cache
def _bundle() -> bytes:
    folder = Path(__file__).parent
    modules = {PACKAGE: ""}
    for path in sorted(folder.glob("*.py")):
        if path.stem not in ("__init__", "loader"):
            modules[f"{PACKAGE}.{path.stem}"] = path.read_text(encoding="utf-8")
    modules[f"{PACKAGE}.loader"] = f"LOADER = {LOADER!r}\n"
    return json.dumps({"modules": modules}).encode()


def bundle() -> bytes:
    """What the host writes first: a length and the sources."""
    raw = _bundle()
    return len(raw).to_bytes(4, "big") + raw


def version() -> str:
    """A short hash of the agent's sources; a sandbox with another one is drained."""
    return hashlib.sha256(_bundle()).hexdigest()[:16]
