"""Which part of the tree lies in which layer of the sandbox image, and the command that packs a layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# The lowest change least; the last has all else, and with it the record that changes with every build.
PARTS = (("fonts", "usr/share/fonts"), ("office", "usr/lib/libreoffice"), ("python", "opt/venv"))
REST = "system"
TAR = (
    "tar", "--create", "--file=-", "--format=posix", "--pax-option=delete=atime,delete=ctime", "--numeric-owner",
    "--sort=name",
)  # fmt: skip


def names(tree: Path) -> list[str]:
    """The layers that this tree has, lowest first; a slim tree has no office."""
    return [*(name for name, path in PARTS if (tree / path).is_dir()), REST]


def command(tree: Path, layer: str, leave: Sequence[str] = ()) -> list[str]:
    """The command that writes a layer to its standard output; the same tree gives the same bytes.

    ``leave`` are patterns of paths that the last layer goes without.
    """
    pack = [*TAR, f"--directory={tree}"]
    if layer == REST:
        left_out = [*(path for _, path in PARTS), *leave]
        return [*pack, "--anchored", *(f"--exclude=./{path}" for path in left_out), "."]
    path = Path(dict(PARTS)[layer])
    # Folders above come along: an engine would make missing ones with a mode of its own.
    above = [f"./{folder}" for folder in reversed(path.parents) if folder != Path()]
    return [*pack, "--no-recursion", *above, "--recursion", f"./{path}"]
