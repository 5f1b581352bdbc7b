"""Write an image in the format of `docker save`: layers as they are packed, a configuration, a manifest.

The engine takes it with `docker load`, so no builder and no base is needed; and the same tree gives the same image.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from images.rootfs.progress import StepError

_CHUNK = 1 << 20
_BLOCK = 512
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """One packed layer: the SHA-256 of its bytes, and how many there are."""

    name: str
    digest: str
    size: int


class Archive:
    """An archive that is written front to back into a file that can be sought, each layer packed straight into it."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self.layers: list[Layer] = []

    def pack(self, name: str, command: Sequence[str]) -> Layer:
        """Add the layer that a command writes to its output. Raises StepError when the command fails."""
        digest, begin, size = hashlib.sha256(), self._out.tell(), 0
        self._out.write(bytes(_BLOCK))  # the place of the header, which names the size
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            while data := process.stdout.read(_CHUNK):
                digest.update(data)
                size += self._out.write(data)
            said = process.stderr.read().decode("utf-8", "replace").strip()
        if process.returncode != 0:
            raise StepError(f"packing the layer {name} failed: {said}")
        self._pad(size)
        end = self._out.tell()
        self._out.seek(begin)
        self._out.write(_header(f"{name}/layer.tar", size))
        self._out.seek(end)
        layer = Layer(name, digest.hexdigest(), size)
        self.layers.append(layer)
        return layer

    def finish(self, config: Mapping[str, object], tags: Sequence[str]) -> str:
        """Add the configuration and the manifest; return the image's id."""
        data = json.dumps(config, sort_keys=True).encode()
        image = hashlib.sha256(data).hexdigest()
        parts = [f"{layer.name}/layer.tar" for layer in self.layers]
        manifest = [{"Config": f"{image}.json", "RepoTags": list(tags), "Layers": parts}]
        for name, content in ((f"{image}.json", data), ("manifest.json", json.dumps(manifest).encode())):
            self._out.write(_header(name, len(content)) + content)
            self._pad(len(content))
        self._out.write(bytes(2 * _BLOCK))
        return f"sha256:{image}"

    def _pad(self, size: int) -> None:
        self._out.write(bytes(-size % _BLOCK))


def configuration(
    layers: Sequence[Layer], created: str, machine: str, settings: Mapping[str, object]
) -> dict[str, Any]:
    """The image's configuration: how containers start, and which layers it has."""
    return {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "created": created,
        "config": dict(settings),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
        "history": [{"created": created, "created_by": f"images/build.py: {layer.name}"} for layer in layers],
    }


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry.tobuf(tarfile.GNU_FORMAT)
