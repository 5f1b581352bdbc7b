"""What a sandbox with network has of its own: the way to the proxy, and a place for packages.

The way is a listening socket of this sandbox's own loopback, made before user code runs.

It is given to the host. Neither the socket nor the pair that it goes out by stays here, so that user code finds
nothing to take over; it can only connect.
"""

from __future__ import annotations

import socket
import sys

_BACKLOG = 32


def hand_out(door: int, port: int) -> None:
    """Listen on ``127.0.0.1:port`` and send the socket through ``door``, then close both. Raises OSError."""
    with socket.socket(fileno=door) as way, socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen(_BACKLOG)
        socket.send_fds(way, [b"listener"], [listener.fileno()])


def site_packages(prefix: str) -> str:
    """Where pip puts libraries below a prefix; the agent's Python and that of user code are of one version."""
    return f"{prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
