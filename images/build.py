"""Command line of the image build: `python3 images/build.py COMMAND`. Needs no package."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parent
sys.path.insert(0, str(IMAGES.parent))

from images.containers import base, docker, egress, sandbox, service  # noqa: E402
from images.rootfs import builder, content, host, progress  # noqa: E402


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="images/build.py", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    rootfs = commands.add_parser("rootfs", help="build the root file system, or find the finished one")
    rootfs.add_argument("--dest", type=Path, help="copy the tree to this folder as well; it must not exist")
    rootfs.add_argument("--print-path", action="store_true", help="print the path alone; progress goes to stderr")
    commands.add_parser("host", help="install (root) or name (user) the packages that the host lacks")
    commands.add_parser("prune", help="delete every built tree but the current one")
    images = commands.add_parser("images", help="build the images of the sandbox, the runner and the proxy for Docker")
    image = commands.add_parser("sandbox", help="build the image of the sandbox from the root file system")
    how = image.add_mutually_exclusive_group()
    how.add_argument("--save", type=Path, metavar="FILE", help="write it to a file for `docker load`; needs no engine")
    how.add_argument("--dockerfile", action="store_true", help="build Dockerfile.sandbox instead")
    runner = commands.add_parser("runner", help="build the image of the runner")
    proxy = commands.add_parser("egress", help="build the image of the proxy for sandboxes with network")
    bare = commands.add_parser("base", help="get the bare Debian system that the Dockerfiles start from")
    for command in (images, image, runner, proxy, bare):
        command.add_argument("--no-pull", action="store_true", help="ask no registry; make the base here")
    for command in (rootfs, images, image, commands.add_parser("hash", help="print the content hash of the sandbox")):
        which = command.add_mutually_exclusive_group()
        which.add_argument("--groups", default=",".join(content.DEFAULT_GROUPS), help="default: %(default)s")
        which.add_argument("--slim", action="store_true", help=f"only {', '.join(content.SLIM_GROUPS)}")
    return top


def plan_of(args: argparse.Namespace) -> builder.Plan:
    """Return the plan for the groups of the command line, or for the usual ones. Raise UnknownGroupError."""
    wanted = args.groups.split(",") if "groups" in args else list(content.DEFAULT_GROUPS)
    if "slim" in args and args.slim:
        wanted = list(content.SLIM_GROUPS)
    return builder.make_plan(IMAGES, [name.strip() for name in wanted if name.strip()], os.environ)


def build_rootfs(args: argparse.Namespace, plan: builder.Plan) -> int:
    """Build or find the tree; return an exit code."""
    destination: Path | None = args.dest.absolute() if args.dest else None
    if destination is not None and destination.exists():
        print(f"{destination} exists: choose a folder that does not", file=sys.stderr)
        return 2
    # With --print-path the progress goes to standard error, so that a script can read the path.
    with contextlib.redirect_stdout(sys.stderr if args.print_path else sys.stdout):
        tree = builder.ensure_tree(plan)
        if destination is not None:
            builder.copy_tree(plan, destination)
            tree = destination
    print(tree if args.print_path else f"root file system: {tree}")
    return 0


def build_images(args: argparse.Namespace, plan: builder.Plan) -> int:
    """Build what the command names, and tell the sizes; return an exit code."""
    pull = not args.no_pull
    if args.command == "sandbox" and args.save is not None:
        sandbox.save(plan, args.save.absolute())
        print(f"{args.save}: {progress.size_text(args.save.stat().st_size)}; `docker load --input {args.save}`")
        return 0
    if args.command == "base":
        docker.engine()
        report(base.ensure(plan, pull=pull))
    if args.command in ("images", "sandbox"):
        alone = "dockerfile" in args and args.dockerfile
        report(sandbox.from_dockerfile(plan, pull=pull) if alone else sandbox.ensure(plan, pull=pull))
    if args.command in ("images", "runner"):
        report(service.ensure(plan, pull=pull))
    if args.command in ("images", "egress"):
        report(egress.ensure(plan, pull=pull))
    return 0


def report(name: str) -> None:
    """Print an image's names and size."""
    found = docker.image(name)
    assert found is not None
    print(f"image {' '.join(found['RepoTags'])}: {progress.size_text(found['Size'])}, {found['Id']}", flush=True)


def run(args: argparse.Namespace) -> int:
    """Run the chosen command; return an exit code."""
    if args.command == "host":
        text = (IMAGES / "host-packages.txt").read_text(encoding="utf-8")
        return host.ensure_host(host.parse_host_packages(text), os.geteuid())
    plan = plan_of(args)
    if args.command == "rootfs":
        return build_rootfs(args, plan)
    if args.command == "hash":
        print(plan.content_hash)
    elif args.command == "prune":
        for path in builder.prune(plan):
            print(f"deleted {path}")
    else:
        return build_images(args, plan)
    return 0


def main() -> int:
    """Return 0 on success, 1 when a step failed, 2 for a wrong command line, 130 when interrupted."""
    args = parser().parse_args()
    try:
        return run(args)
    except content.UnknownGroupError as error:
        print(error, file=sys.stderr)
        return 2
    except progress.StepError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; downloads are kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
