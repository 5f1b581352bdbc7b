"""Metrics: labels are from fixed sets whatever callers send, and the loop's lag is what its timer saw."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runner.telemetry import loop_lag, metrics


def samples() -> dict[tuple[str, ...], float]:
    """Every sample by its name and label values, in the order of the labels' names."""
    text = metrics.exposition(metrics.Gauges(live=3, spares=2, queue=1, store_free_bytes=4096)).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_gauges_are_what_was_given() -> None:
    found = samples()
    assert found["foliobox_sandboxes_live",] == 3
    assert found["foliobox_sandboxes_spare",] == 2
    assert found["foliobox_queue_length",] == 1
    assert found["foliobox_store_free_bytes",] == 4096


@pytest.mark.parametrize(("method", "shown"), [("GET", "GET"), ("BREW", "other"), ("get", "other"), ("", "other")])
@pytest.mark.parametrize(("status", "group"), [(204, "2xx"), (429, "4xx"), (503, "5xx"), (0, "none")])
def test_a_request_counts_once_under_a_known_method(method: str, shown: str, status: int, group: str) -> None:
    place = "foliobox_http_requests_total", shown, "/route", group
    before = samples()
    metrics.request(method, "/route", status, 0.2)
    after = samples()
    assert after[place] == before.get(place, 0) + 1
    count = "foliobox_http_request_seconds_count", shown, "/route"
    assert after[count] == before.get(count, 0) + 1
    assert not {key for key in after if method == "BREW" and "BREW" in key}


def test_runs_and_errors_are_counted() -> None:
    before = samples()
    metrics.run("oom", 1.5)
    metrics.error("too_large")
    after = samples()
    for place in (("foliobox_runs_total", "oom"), ("foliobox_errors_total", "too_large")):
        assert after[place] == before.get(place, 0) + 1
    assert after["foliobox_run_seconds_sum",] == before["foliobox_run_seconds_sum",] + 1.5


@pytest.mark.parametrize(("hit", "name"), [(True, "foliobox_pool_hits_total"), (False, "foliobox_pool_misses_total")])
def test_what_the_pool_could_and_could_not_give_is_counted_apart(hit: bool, name: str) -> None:
    before = samples()
    metrics.pool(hit=hit)
    after = samples()
    changed = {place for place in after if place[0].startswith("foliobox_pool_") and after[place] != before[place]}
    assert changed == {(name,)}
    assert after[name,] == before[name,] + 1


def test_nothing_else_is_shown_than_is_documented() -> None:
    assert {name[0].split("_")[0] for name in samples()} == {"foliobox", "process"}
    assert not any(name[0].endswith("_created") for name in samples())


async def test_the_lag_is_how_late_the_timer_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop is held up once: that much later the timer comes."""
    monkeypatch.setattr(loop_lag, "EVERY_S", 0.01)
    seen: list[float] = []
    loop = asyncio.get_running_loop()
    enough = asyncio.Event()

    def observe(lag: float) -> None:
        seen.append(lag)
        if len(seen) >= 5:
            enough.set()

    with loop_lag.watched(loop, observe):
        held_until = loop.time() + 0.2
        while loop.time() < held_until:
            pass
        async with asyncio.timeout(5):
            await enough.wait()
    assert 0.15 < max(seen) < 5
    assert min(seen) >= 0
    count = len(seen)
    await asyncio.sleep(0)
    assert len(seen) == count
