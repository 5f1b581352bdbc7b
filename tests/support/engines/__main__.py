"""``python -m tests.support.engines COMMAND …`` runs a command, such as pytest, with an engine, and ends both."""

from __future__ import annotations

import os
import sys

from tests.support.engines.commands import Ended, run, signals_end_us
from tests.support.engines.offer import offer


def main() -> int:
    """The command's exit status."""
    if len(sys.argv) < 2:
        print("usage: python -m tests.support.engines COMMAND [ARGUMENT …]", file=sys.stderr)
        return 2
    signals_end_us()
    try:
        with offer(os.environ) as made:
            return run(sys.argv[1:], made.environment)
    except Ended as end:
        return end.status


if __name__ == "__main__":
    raise SystemExit(main())
