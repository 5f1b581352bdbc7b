"""The bare Debian system that the Dockerfiles start from: pulled where a registry answers, else made here."""

from __future__ import annotations

from images.containers import docker
from images.rootfs import builder, content, progress
from images.rootfs import cache as caches

NAME = f"foliobox-base:{content.SUITE}"
ORIGIN = f"debian:{content.SUITE}-slim"
PULL_S = 45.0


def ensure(plan: builder.Plan, *, pull: bool = True) -> str:
    """The name of the base, which is there afterwards. Raises StepError."""
    if docker.image(NAME) is None:
        if pull and _pulled():
            docker.output("tag", ORIGIN, NAME)
        else:
            _make(plan)
    return NAME


def _pulled() -> bool:
    print(f"[     ] pulling {ORIGIN} (at most {PULL_S:.0f} s)", flush=True)
    try:
        done = docker.call("pull", "--quiet", ORIGIN, deadline=PULL_S)
        said = done.stderr.strip().splitlines()
    except progress.StepError as error:
        said = [str(error)]
    else:
        if done.returncode == 0:
            return True
    print(f"        no registry answers ({said[-1] if said else 'no reason given'}); making it here", flush=True)
    return False


def _make(plan: builder.Plan) -> None:
    """Import the archive of the bare system that the root file system is made of."""
    plan.cache.prepare()
    with caches.build_lock(plan.cache):
        archive = builder.base_archive(plan)
    step = progress.Step(
        f"import {NAME}",
        [docker.command(), "import", "--change", 'CMD ["bash"]', str(archive), NAME],
        plan.cache.logs / "base-image.log",
        builder.tool_environment(),
    )
    progress.run(step)
