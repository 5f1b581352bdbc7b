"""What is not public is not reached: directly, by redirects, by names that change. A canary counts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from ipaddress import ip_address

import pytest

from runner.egress.network import SystemNetwork
from runner.errors import FetchFailed, UrlRefused
from tests.support.web import PUBLIC, PUBLIC6, SITE, LabNetwork, redirect, reply
from tests.unit.egress.lab import NAMES, Lab


async def test_a_file_is_fetched_from_the_address_that_was_judged(lab: Lab) -> None:
    content, found = await lab.fetch(f"http://{SITE}/a")
    assert (content, found.url, found.size) == (b"content", f"http://{SITE}/a", 7)
    assert lab.network.connected == [(PUBLIC, 80)]
    (request,) = lab.web.requests
    lines = request.lower().splitlines()
    assert f"host: {SITE}" in lines and "accept-encoding: identity" in lines
    assert not any(line.startswith(("cookie", "authorization", "referer", "x-", "proxy")) for line in lines)


async def test_the_next_address_is_tried_where_one_does_not_answer(lab: Lab) -> None:
    class HalfDead(LabNetwork):
        async def connect(self, address: object, port: int, timeout_s: float) -> object:  # type: ignore[override]
            if str(address) == PUBLIC6:
                raise OSError("no route")
            return await super().connect(address, port, timeout_s)  # type: ignore[arg-type]

    lab.network = HalfDead(lab.web.port, lab.canary.port, NAMES)
    assert (await lab.fetch("http://both.example/a"))[0] == b"content"
    assert lab.network.connected == [(PUBLIC, 80)]


FORMS = [
    "http://inside.example/a", "http://inside6.example/a", "http://metadata.example/a", "http://nat64.example/a",
    "http://mixed.example/a", "http://127.0.0.1/a", "http://127.0.0.1./a", "http://[::1]/a", "http://[::ffff:7f00:1]/a",
    "http://[64:ff9b::7f00:1]/a", "http://[2002:7f00:1::]/a", "http://[::127.0.0.1]/a", "http://169.254.169.254/a",
    "http://10.0.0.1/a", "http://[fd00:ec2::254]/a", "http://0.0.0.0/a", "http://[::]/a", "http://192.168.1.1:443/a",
    "https://inside.example/a", "https://10.0.0.1/a", "http://[fe80::1]/a", "http://100.64.0.1/a", "http://255.255.255.255/a",
]  # fmt: skip
MOVED = ("301", "302", "303", "307", "308")


def moved(status: str) -> Callable[[str], bytes]:
    """A redirect with this status."""
    return lambda to: redirect(to, f"{status} Moved")


ROUTES: dict[str, Callable[[str], bytes]] = {
    **{status: moved(status) for status in MOVED},
    "refresh": lambda to: reply(b"x", headers={"Refresh": f"0; url={to}", "Link": f"<{to}>; rel=preload"}),
    "location beside a body": lambda to: reply(b"x", "201 Created", {"Location": to, "Content-Location": to}),
    "alternative": lambda to: reply(b"x", headers={"Alt-Svc": 'h2="127.0.0.1:80"', "Content-Location": to}),
}


@pytest.mark.parametrize("url", FORMS)
async def test_what_is_not_public_is_not_reached_directly(lab: Lab, url: str) -> None:
    with pytest.raises(UrlRefused, match="not public"):
        await lab.fetch(url)
    assert (lab.canary.connections, lab.web.connections, lab.network.connected) == (0, 0, [])
    lab.new_network()
    await lab.unguarded(url)
    assert lab.network.connected, "the control must be seen to get through"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("url", FORMS)
async def test_what_is_not_public_is_not_reached_by_a_redirect(lab: Lab, url: str, route: str) -> None:
    lab.web.pages["/go"] = ROUTES[route](url)
    with contextlib.suppress(UrlRefused, FetchFailed):
        await lab.fetch(f"http://{SITE}/go")
    assert lab.canary.connections == 0
    assert lab.network.connected == [(PUBLIC, 80)]


async def test_the_control_follows_a_redirect_to_the_canary(lab: Lab) -> None:
    lab.web.pages["/go"] = redirect("http://127.0.0.1/a")
    await lab.unguarded(f"http://{SITE}/go")
    assert lab.canary.connections == 1


async def test_a_name_that_changes_is_connected_to_as_it_was_judged(lab: Lab) -> None:
    assert (await lab.fetch("http://rebinding.example/a"))[0] == b"content"
    assert (lab.network.asked, lab.network.connected) == (["rebinding.example"], [(PUBLIC, 80)])
    lab.new_network()
    lab.web.pages["/go"] = redirect("/a")
    with pytest.raises(UrlRefused, match="loopback"):  # a redirect to the same name is judged anew
        await lab.fetch("http://rebinding.example/go")
    assert lab.canary.connections == 0


async def test_1000_names_that_change_reach_nothing(lab: Lab) -> None:
    lab.web.pages["/go"] = redirect("http://rebinding.example/a")
    for turn in range(1000):
        names = {"rebinding.example": [[PUBLIC]] * (turn % 2) + [["127.0.0.1"]]}
        network = lab.new_network(names)
        with contextlib.suppress(UrlRefused):
            await lab.fetch("http://rebinding.example/a")
        assert [address for address, _ in network.connected] == [PUBLIC] * (turn % 2)
    assert lab.canary.connections == 0


async def test_addresses_of_this_machine_are_refused_though_public(lab: Lab) -> None:
    class Own(LabNetwork):
        def is_own(self, address: object) -> bool:
            return str(address) == PUBLIC

    lab.network = Own(lab.web.port, lab.canary.port, NAMES)
    with pytest.raises(UrlRefused, match="this very machine"):
        await lab.fetch(f"http://{SITE}/a")
    assert SystemNetwork().is_own(ip_address("127.0.0.1"))
    assert not SystemNetwork().is_own(ip_address(PUBLIC))


async def test_redirects_are_followed_four_times(lab: Lab) -> None:
    for step in range(6):
        lab.web.pages[f"/{step}"] = redirect(f"/{step + 1}")
    lab.web.pages["/4"] = reply(b"end")
    content, found = await lab.fetch(f"http://{SITE}/0")
    assert (content, found.url) == (b"end", f"http://{SITE}/4")
    lab.web.pages["/4"] = redirect("/a")
    with pytest.raises(FetchFailed, match="more than 4 times"):
        await lab.fetch(f"http://{SITE}/0")
    lab.web.pages["/loop"] = redirect("/loop")
    with pytest.raises(FetchFailed, match="more than 4 times"):
        await lab.fetch(f"http://{SITE}/loop")


async def test_nothing_of_one_answer_goes_with_the_next_request(lab: Lab) -> None:
    lab.web.pages["/go"] = reply(
        status="302 Found", headers={"Location": "http://both.example/a", "Set-Cookie": "secret=1; Path=/"}
    )
    await lab.fetch(f"http://{SITE}/go")
    assert len(lab.web.requests) == 2
    assert "secret" not in lab.web.requests[1] and "/go" not in lab.web.requests[1]


async def test_proxies_of_the_environment_are_not_asked(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{lab.canary.port}")
    assert (await lab.fetch(f"http://{SITE}/a"))[0] == b"content"
    assert lab.canary.connections == 0
