"""Command line of the image build: `python3 images/build.py rootfs | host | prune`. Needs no package."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parent
sys.path.insert(0, str(IMAGES.parent))

from images.rootfs import builder, content, host, progress  # noqa: E402


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(prog="images/build.py", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    rootfs = commands.add_parser("rootfs", help="build the root file system, or find the finished one")
    which = rootfs.add_mutually_exclusive_group()
    which.add_argument("--groups", default=",".join(content.DEFAULT_GROUPS), help="default: %(default)s")
    which.add_argument("--slim", action="store_true", help=f"only {', '.join(content.SLIM_GROUPS)}")
    rootfs.add_argument("--dest", type=Path, help="copy the tree to this folder as well; it must not exist")
    rootfs.add_argument("--print-path", action="store_true", help="print the path alone; progress goes to stderr")
    commands.add_parser("host", help="install (root) or name (user) the packages that the host lacks")
    commands.add_parser("prune", help="delete every built tree but the current one")
    return top


def build_rootfs(args: argparse.Namespace) -> int:
    """Build or find the tree; return an exit code."""
    wanted = (
        list(content.SLIM_GROUPS) if args.slim else [name.strip() for name in args.groups.split(",") if name.strip()]
    )
    plan = builder.make_plan(IMAGES, wanted, os.environ)
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


def run(args: argparse.Namespace) -> int:
    """Run the chosen command; return an exit code."""
    if args.command == "rootfs":
        return build_rootfs(args)
    if args.command == "host":
        text = (IMAGES / "host-packages.txt").read_text(encoding="utf-8")
        return host.ensure_host(host.parse_host_packages(text), os.geteuid())
    for path in builder.prune(builder.make_plan(IMAGES, list(content.DEFAULT_GROUPS), os.environ)):
        print(f"deleted {path}")
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
