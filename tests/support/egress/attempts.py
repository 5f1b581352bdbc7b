"""What code in a sandbox tries, as a program that prints what became of each attempt; verdicts come from outside."""

from __future__ import annotations

import json
from typing import Any

from tests.support.runner import Chat

CODE = r"""
import json, os, socket, subprocess, sys, urllib.request, http.client
def through_proxy(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read(200).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, ""
    except Exception as error:
        return 0, type(error).__name__ + ": " + str(error)[:200]
def tunnel(host, port):
    where = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    line = http.client.HTTPConnection(where[0], int(where[1]), timeout=20)
    try:
        line.set_tunnel(host, port)
        line.request("GET", "/tunnel")
        return line.getresponse().status, ""
    except Exception as error:
        return 0, type(error).__name__ + ": " + str(error)[:200]
def tcp(host, port):
    try:
        socket.create_connection((host, port), 2).close()
        return 200, ""
    except Exception as error:
        return 0, type(error).__name__ + ": " + str(error)[:200]
def udp(host, name="asked.exfil.test"):
    labels = b"".join(bytes([len(one)]) + one.encode() for one in name.split("."))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(1)
            sock.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1", (host, 53))
            return 200, sock.recv(500).hex()
    except Exception as error:
        return 0, type(error).__name__ + ": " + str(error)[:200]
def lookup(name):
    try:
        return 200, str(socket.getaddrinfo(name, 80))
    except Exception as error:
        return 0, type(error).__name__ + ": " + str(error)[:200]
print(json.dumps([ATTEMPTS]))
"""


def attempts(chat: Chat, *calls: str, **fields: Any) -> list[tuple[int, str]]:
    """Make attempts, each a call of one of the functions above; status (0: nothing came) and text of each."""
    code = CODE.replace("ATTEMPTS", ", ".join(calls))
    result = chat.ok(code, **{"network": True, "timeout_ms": 300_000, **fields})
    found: list[list[Any]] = json.loads(result["stdout"])
    return [(int(status), str(text)) for status, text in found]
