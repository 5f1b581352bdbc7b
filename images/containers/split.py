"""Lay out an installed system as the layers of its image, for Dockerfile.sandbox: split.py ROOT FOLDER."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from images.containers import layers

# Mounted or written by the engine while it builds, and what tells where packages came from.
LEFT_OUT = (
    "proc/*", "sys/*", "dev/*", "run/foliobox", "etc/hostname", "etc/hosts", "etc/resolv.conf",
    "etc/apt/sources.list", "etc/apt/sources.list.d/*",
)  # fmt: skip
FILES = {
    "etc/hostname": "sandbox\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n",
    "etc/resolv.conf": "",
}


def split(root: Path, folder: Path) -> None:
    """Copy each layer of ROOT into a folder of its own; a layer that ROOT has nothing for gets an empty one."""
    for name in (*(part for part, _ in layers.PARTS), layers.REST):
        (folder / name).mkdir(parents=True)
    own = str(folder.relative_to(root))
    for name in layers.names(root):
        command = layers.command(root, name, (own, *LEFT_OUT))
        with subprocess.Popen(command, stdout=subprocess.PIPE) as packing:
            subprocess.run(["tar", "-C", str(folder / name), "-xpf", "-"], stdin=packing.stdout, check=True)
        if packing.returncode != 0:
            sys.exit(f"split.py: packing the layer {name} failed")
    for place, text in FILES.items():
        (folder / layers.REST / place).write_text(text, encoding="ascii")


if __name__ == "__main__":
    split(Path(sys.argv[1]), Path(sys.argv[2]))
