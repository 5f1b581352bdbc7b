"""Who may use the one-shot surface: with a key, without one on loopback, and on a listener of its own."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from runner.api import key_file
from runner.api.keys import Key, KeyLimits, hashed, new_secret
from runner.cli.local_service import LocalService, free_port
from tests.support.oneshot import OneShot, oneshot, open_service
from tests.support.runner import Runner, running

__all__ = ["oneshot", "open_service"]

BODY = {"language": "bash", "code": "echo 1"}


def test_a_key_is_needed_unless_it_was_said_otherwise(runner: Runner) -> None:
    with httpx.Client(base_url=runner.url, timeout=60) as nobody, runner.client() as http:
        for response in (nobody.post("/run", json=BODY), nobody.delete("/container/sbx-1-2-3")):
            assert response.status_code == 401
            assert set(response.json()) == {"error"}
        assert nobody.get("/healthz").status_code == 200
        assert http.post("/run", json=BODY).json()["stdout"] == "1\n"
        assert http.delete("/container/sbx-1-2-3").status_code == 204


def test_a_lease_belongs_to_its_tenant(tmp_path: Path) -> None:
    port = free_port()
    own = running(tmp_path, SANDBOX_ONESHOT_BIND=f"127.0.0.1:{port}")
    with own as service, service.client() as http, httpx.Client(base_url=f"http://127.0.0.1:{port}") as side:
        lease = OneShot(http).lease()
        assert side.post("/run", json=BODY).status_code == 401
        assert side.delete(f"/container/{lease}").status_code == 401
        assert http.get(f"/v1/conversations/{lease}").status_code == 200
        assert OneShot(http).run("print(1)", container_id=lease)["container_id"] == lease
        http.delete(f"/container/{lease}")


def test_a_listener_of_its_own_serves_three_routes_and_no_more(tmp_path: Path) -> None:
    """The main port goes on to want a key for everything else."""
    port = free_port()
    env = {"SANDBOX_ONESHOT_BIND": f"127.0.0.1:{port}", "SANDBOX_ONESHOT_AUTH": "none"}
    with running(tmp_path, **env) as service, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as side:
        assert side.get("/healthz").json()["ok"] is True
        oneshot = OneShot(side)
        lease = oneshot.lease("open('a', 'w').write('1')")
        assert oneshot.out("cat a", "bash", container_id=lease) == "1"
        for path in ("/v1/conversations", "/docs", "/openapi.json", "/metrics", "/sessions", "/livez", "/v1/tools"):
            for key in (None, service.key):
                headers = {} if key is None else {"Authorization": f"Bearer {key}"}
                assert side.get(path, headers=headers).status_code in (401, 404, 405), path
        assert httpx.get(f"{service.url}/v1/conversations").status_code == 401
        assert httpx.post(f"{service.url}/run", json=BODY).status_code == 401
        assert httpx.delete(f"{service.url}/container/{lease}").status_code == 401
        with service.client() as http:
            assert http.get(f"/v1/conversations/{lease}").status_code == 404
        assert side.post("/run", json=BODY, headers={"Origin": "http://evil.example"}).status_code == 403
        oneshot.close()
        assert service.stop() == 0


def test_an_open_surface_beyond_loopback_is_not_opened_on_the_main_port(tmp_path: Path) -> None:
    from runner.settings import Settings

    env = {"SANDBOX_ONESHOT_AUTH": "none", "HOME": str(tmp_path), "SANDBOX_API_KEY": "k" * 32}
    for bind, opened in (("127.0.0.1:1", True), ("0.0.0.0:1", False), ("10.0.0.1:1", False)):
        settings = Settings.from_env({**env, "SANDBOX_BIND": bind})
        assert settings.leases.open_on(settings.api.loopback) is opened


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Proto", "Forwarded", "X-Real-IP", "Via"]
)
def test_what_a_proxy_passes_on_needs_a_key(open_service: LocalService, oneshot: OneShot, header: str) -> None:
    """A proxy before loopback opens it to others; with a key it may."""
    headers = {header: "203.0.113.7"}
    lease = oneshot.lease()
    for method, path in (("POST", "/run"), ("DELETE", f"/container/{lease}")):
        refused = oneshot.http.request(method, path, json=BODY, headers=headers)
        assert (refused.status_code, set(refused.json())) == (403, {"error"})
        assert "SANDBOX_ONESHOT_AUTH" in refused.json()["error"]
    assert oneshot.http.get("/healthz", headers=headers).status_code == 200
    assert oneshot.run("print(1)", container_id=lease)["container_id"] == lease


def test_with_a_key_it_may_come_through_a_proxy(runner: Runner) -> None:
    with runner.client() as http:
        assert http.post("/run", json=BODY, headers={"X-Forwarded-For": "203.0.113.7"}).status_code == 200


def test_an_input_above_the_limit_of_its_key(tmp_path: Path) -> None:
    file, limited = tmp_path / "keys.json", new_secret()
    key = Key("limited", "acme", hashed(limited.encode()), limits=KeyLimits(upload_bytes=100))
    file.write_bytes(key_file.render([key]))
    file.chmod(0o600)
    with running(tmp_path / "data", SANDBOX_API_KEYS_FILE=str(file)) as service, service.client() as free:
        with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {limited}"}, timeout=60) as http:
            for size, status in ((100, 200), (101, 413)):
                response = OneShot(http).post("wc -c < a", "bash", {"a": bytes(size)})
                assert response.status_code == status, response.text
            assert set(response.json()) == {"error"}
            assert "100" in response.json()["error"]
            assert "upload_bytes" in response.json()["error"]
        assert OneShot(free).out("wc -c < a", "bash", files={"a": bytes(101)}) == "101\n"


def test_health_has_what_the_gateway_reads(runner: LocalService) -> None:
    health = httpx.get(f"{runner.url}/healthz").json()
    assert health["status"] == "ok"
    assert health["egress"] is False
