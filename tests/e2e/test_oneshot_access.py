"""Who may use the one-shot surface: with a key, without one on loopback, and on a listener of its own."""

from __future__ import annotations

from pathlib import Path

import httpx

from runner.cli.local_service import LocalService, free_port
from tests.support.oneshot import OneShot
from tests.support.runner import Runner, running

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


def test_health_has_what_the_gateway_reads(runner: LocalService) -> None:
    health = httpx.get(f"{runner.url}/healthz").json()
    assert health["status"] == "ok"
    assert health["egress"] is False
