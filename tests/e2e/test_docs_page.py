"""The page that documents the API needs nothing from another host, and its description is complete."""

from __future__ import annotations

import re

import httpx

from tests.support.runner import Runner


def test_the_page_loads_only_from_the_service_itself(runner: Runner) -> None:
    with httpx.Client(base_url=runner.url) as http:
        page = http.get("/docs").text
        links = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert len(links) >= 2
        for link in links:
            assert link.startswith("/")
            assert http.get(link).status_code == 200, link


def test_every_route_is_described(runner: Runner) -> None:
    description = httpx.get(f"{runner.url}/openapi.json").json()
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), (method, path)
            guarded = path not in ("/healthz", "/livez", "/readyz", "/v1/links/{token}")
            assert bool(operation.get("security")) == guarded, (method, path)
