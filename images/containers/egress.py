"""The image of the proxy for sandboxes with network: Dockerfile.egress, named by version and by what goes into it."""

from __future__ import annotations

import hashlib

from images.containers import base, docker, recipe
from images.rootfs import builder
from runner import __version__

NAME = "foliobox-egress"
PARTS = ("Dockerfile.egress", "images/egress/squid.conf", "images/egress/start.sh")


def ensure(plan: builder.Plan, *, pull: bool = True) -> str:
    """The image's id; built where it is not there. Raises StepError."""
    docker.engine()
    bare = base.ensure(plan, pull=pull)
    digest = hashlib.sha256(docker.output("image", "inspect", "--format", "{{.Id}}", bare).encode())
    for part in PARTS:
        digest.update(f"\0{part}\0".encode() + (plan.images.parent / part).read_bytes())
    by_content, by_version = f"{NAME}:{digest.hexdigest()[:16]}", f"{NAME}:{__version__}"
    if docker.image(by_content) is None:
        labels = ["--label", f"org.opencontainers.image.version={__version__}"]
        recipe.build(plan, "Dockerfile.egress", bare, [by_content], labels)
    docker.output("tag", by_content, by_version)
    return docker.output("image", "inspect", "--format", "{{.Id}}", by_content)
