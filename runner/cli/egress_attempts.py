"""What ``foliobox egress check`` tries from within sandboxes, and what each answer means."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any, Final, Literal

Way = Literal["tunnel", "get", "tcp", "dns", "lookup", "proxy"]
REFUSED: Final = "refused by the proxy"
_TEXT: Final = 200
_STATES: Final = ("open", "refused", "failed", "closed")
_TARGET: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class Attempt:
    """``open``: whether it must work. ``network``: which kind of sandbox tries it."""

    name: str
    way: Way
    target: str
    open: bool = False
    network: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """An attempt with what was seen; ``right`` where that is as it must be."""

    name: str
    target: str
    must_be: str
    seen: str
    detail: str
    right: bool

    def json(self) -> dict[str, Any]:
        """For programs."""
        return asdict(self)


# Answers: [state, detail]; "open" when something answered, "refused" by the proxy's own word, "failed" when the proxy
# let it through and nothing came of it, else "closed".
CODE: Final = r"""
import http.client, json, os, re, socket, sys, urllib.parse
def proxy():
    where = urllib.parse.urlsplit(os.environ["HTTP_PROXY"])
    return http.client.HTTPConnection(where.hostname, where.port or 80, timeout=15)
def split(target, port):
    host, colon, number = target.rpartition(":")
    return (host.strip("[]"), int(number)) if colon and number.isdigit() else (target.strip("[]"), port)
def judged(status, reason):
    if status in (403, 407):
        return "refused", f"{status} {reason}"
    return ("open" if status < 400 else "failed"), f"{status} {reason}"
def tunnel(target):
    line = proxy()
    line.set_tunnel(*split(target, 443))
    try:
        line.connect()
    except OSError as error:
        said = re.match(r"Tunnel connection failed: (\d+) ?(.*)", str(error))
        if said is None:
            raise
        state, detail = judged(int(said[1]), said[2])
        return ("failed" if state == "open" else state), detail  # 200 alone is a tunnel
    return "open", "200 tunnel"
def get(target):
    line = proxy()
    line.request("GET", f"http://{target}/", headers={"Connection": "close"})
    answer = line.getresponse()
    return judged(answer.status, answer.reason)
def tcp(target):
    socket.create_connection(split(target, 443), 3).close()
    return "open", "connected"
def dns(target):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(3)
        sock.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1", split(target, 53))
        sock.recv(512)
    return "open", "answered"
def lookup(target):
    return "open", str(socket.getaddrinfo(target, 443)[0][4][0])
def told(target):
    names = sorted(name for name in os.environ if name.lower().endswith("_proxy"))
    return ("open" if names else "closed"), ", ".join(names) or "no variable"
ways = {"tunnel": tunnel, "get": get, "tcp": tcp, "dns": dns, "lookup": lookup, "proxy": told}
found = []
for way, target in json.loads(sys.stdin.read()):
    try:
        found.append(ways[way](target))
    except KeyError:
        found.append(("closed", "no proxy is known"))
    except Exception as error:
        found.append(("closed", f"{type(error).__name__}: {error}"[:150]))
print(json.dumps(found))
"""


def plan(
    allowed: list[str], denied: list[str], private: list[str], direct: list[str], resolvers: list[str]
) -> list[Attempt]:
    """All attempts, of both kinds of sandbox. Raises ValueError for a target that cannot be meant so."""
    for one in (*allowed, *denied, *private):
        _checked(one, "HOST or HOST:PORT")
    for one in (*direct, *resolvers):
        _checked(one, "ADDRESS or ADDRESS:PORT", address=True)
    attempts = [Attempt("proxy variables", "proxy", "", open=True)]
    attempts += [Attempt("allowed host", "tunnel", one, open=True) for one in allowed]
    for one in denied:
        attempts += [Attempt("denied host", "tunnel", one), Attempt("denied host, plain", "get", one)]
    for one in private:
        attempts += [Attempt("private address", "tunnel", one), Attempt("private address, plain", "get", one)]
    for network in (True, False):
        kind = "" if network else ", without network"
        attempts += [Attempt(f"direct{kind}", "tcp", one, network=network) for one in direct]
        attempts += [Attempt(f"DNS{kind}", "dns", one, network=network) for one in resolvers]
        attempts += [Attempt(f"names{kind}", "lookup", one, network=network) for one in denied[:1]]
    attempts += [Attempt("proxy variables, without network", "proxy", "", network=False)]
    return attempts


def _checked(target: str, form: str, *, address: bool = False) -> None:
    """A name where an address is asked for would be closed for want of name service, and prove nothing."""
    found = _TARGET.fullmatch(target)
    wrong = found is None or not 1 <= int(found["port"] or 1) <= 65535
    if found is not None and (address or found["host"].startswith("[")):
        try:
            ip_address(found["host"].strip("[]"))
        except ValueError:
            wrong = True
    if wrong:
        raise ValueError(
            f"{target!r} cannot be tried: write {form}, an IPv6 address in brackets, a port from 1 to 65535"
        )


def judge(attempts: list[Attempt], output: str) -> list[Row]:
    """What a sandbox printed, which may be anything, against what must be. Raises ValueError for no answer."""
    found = json.loads(output)
    if not isinstance(found, list) or len(found) != len(attempts):
        raise ValueError("the sandbox gave no answer")
    return [_row(attempt, *_read(one)) for attempt, one in zip(attempts, found, strict=True)]


def _read(one: object) -> tuple[str, str]:
    if not isinstance(one, list) or len(one) != 2 or one[0] not in _STATES:
        raise ValueError("the sandbox gave no answer")
    return one[0], "".join(c for c in str(one[1])[:_TEXT] if c.isprintable())


def _row(attempt: Attempt, state: str, detail: str) -> Row:
    through_proxy = attempt.way in ("tunnel", "get")
    right = state == "open" if attempt.open else state == ("refused" if through_proxy else "closed")
    must_be = "open" if attempt.open else REFUSED if through_proxy else "closed"
    return Row(attempt.name, attempt.target, must_be, state, detail, right)
