"""The body of ``/healthz``: one shape, whether sandboxes can be started or not."""

from __future__ import annotations

from runner.api.health import describe
from runner.backends.base import BackendReport, Wall


def test_shape_is_the_same_without_a_backend() -> None:
    pool = {"ready": 1, "size": 2}
    up = describe(BackendReport("bubblewrap", True, walls=(Wall("cgroups", True),)), "", pool, {"memory": "ok"})
    down = describe(BackendReport("bubblewrap", False, detail="no namespaces"), "", pool, {"memory": "short"})
    assert up.keys() == down.keys()
    assert (up["status"], down["status"], down["detail"]) == ("ok", "unavailable", "no namespaces")
    assert (up["pressure"], down["pressure"]) == ({"memory": "ok"}, {"memory": "short"})
    assert up["walls"] == {"cgroups": True}


def test_pool_tells_how_many_spares_wait() -> None:
    assert describe(BackendReport("bubblewrap", True), "", {"ready": 1, "size": 2}, {})["pool"] == {
        "ready": 1,
        "size": 2,
    }
