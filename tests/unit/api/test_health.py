"""The body of ``/healthz``: one shape, whether sandboxes can be started or not."""

from __future__ import annotations

from runner import __version__
from runner.api.health import describe
from runner.backends.base import BackendReport, Wall


def test_shape_is_the_same_without_a_backend() -> None:
    pool = {"ready": 1, "size": 2}
    up = describe(BackendReport("bubblewrap", True, walls=(Wall("cgroups", True),)), pool, {"memory": "ok"})
    down = describe(BackendReport("bubblewrap", False, detail="no namespaces"), pool, {"memory": "short"})
    assert up.keys() == down.keys()
    assert (up["status"], down["status"], down["detail"]) == ("ok", "unavailable", "no namespaces")
    assert (up["pressure"], down["pressure"]) == ({"memory": "ok"}, {"memory": "short"})
    assert up["walls"] == {"cgroups": True}


def test_pool_tells_how_many_spares_wait() -> None:
    assert describe(BackendReport("bubblewrap", True), {"ready": 1, "size": 2}, {})["pool"] == {
        "ready": 1,
        "size": 2,
    }


def test_the_engine_is_told_and_nothing_else_is_in_the_body() -> None:
    report = BackendReport(
        "docker", True, "separate-kernel", "foliobox-sandbox:1.0.0", True, walls=(Wall("agent", True),),
        runtime="runsc", engine="28.2.2",
    )  # fmt: skip
    assert describe(report, {"ready": 2, "size": 2, "capped": False}, {"disk": "ok"}) == {
        "status": "ok", "ok": True, "egress": False, "egress_detail": "SANDBOX_EGRESS_NETWORK is not set",
        "backend": "docker", "runtime": "runsc", "isolation": "separate-kernel", "walls": {"agent": True},
        "docker": "28.2.2", "image": "foliobox-sandbox:1.0.0", "image_ready": True, "version": __version__,
        "pool": {"ready": 2, "size": 2, "capped": False}, "pressure": {"disk": "ok"},
        "capabilities": ["python_execute"], "detail": "",
    }  # fmt: skip


def test_without_an_engine_there_is_no_runtime() -> None:
    body = describe(BackendReport("bubblewrap", True), {}, {})
    assert (body["runtime"], body["docker"]) == (None, "")
