"""Ask the service in this container whether it is alive; the exit code is the answer."""

from __future__ import annotations

import os
import sys
import urllib.request

WAIT_S = 4


def address(bind: str) -> str:
    """Where the service answers inside its container."""
    host, _, port = bind.rpartition(":")
    return f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '[::]', '::') else host}:{port}/livez"  # noqa: S104


def main() -> int:
    """0 when /livez answers 200."""
    # No proxy: the environment's is for what the service asks of others.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(address(os.environ.get("SANDBOX_BIND", "127.0.0.1:8000")), timeout=WAIT_S) as answer:
            return 0 if answer.status == 200 else 1
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
