"""What ends a lease, and what leaves it as it is: its service over one of conversations that fails as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner import errors
from runner.conversations.result import RunResult, nothing_ran
from runner.errors import FolioboxError
from runner.leases.config import LeasesConfig
from runner.leases.nouns import Answer, Ask
from runner.leases.service import Leases
from runner.model import InterpreterState, Outcome

ENDED = nothing_ran("e", Outcome.INTERRUPTED, 1, InterpreterState.KEPT, "")
LATE = nothing_ran("e", Outcome.TIMEOUT, 1, InterpreterState.LOST, "")
CRASHED = nothing_ran("e", Outcome.CRASHED, 1, InterpreterState.LOST, "the sandbox ended")
BROKEN = (errors.SandboxLost, errors.ProtocolError, errors.StoreFailed, errors.StoreFull)
KINDS = (
    errors.HostPressure, errors.Stopping, errors.BackendUnavailable, errors.ConfigurationError, errors.CapacityReached,
    errors.Busy, errors.QueueFull, errors.QuotaExceeded, errors.InvalidRequest, errors.OwnedElsewhere,
    errors.EgressUnavailable, errors.ServiceError, ValueError, asyncio.CancelledError, *BROKEN,
)  # fmt: skip


def raised(kind: type[BaseException]) -> BaseException:
    return kind("as told") if issubclass(kind, FolioboxError) else kind()


@dataclass
class Conversations:
    """As much of the service of conversations as leases need."""

    at: str = ""  # where the next run fails: ensure, begin, waiting (before it began), running
    error: BaseException | None = None
    result: RunResult = ENDED
    purged: list[str] = field(default_factory=list)
    before_end: Callable[[], object] = lambda: None

    def _step(self, at: str) -> None:
        if self.error is not None and self.at == at:
            raise self.error

    async def ensure(self, tenant: str, identifier: str) -> tuple[Any, bool]:
        self._step("ensure")
        return await self.find(tenant, identifier), False

    async def find(self, tenant: str, identifier: str) -> Any:
        return SimpleNamespace(workspace=None, effective=SimpleNamespace(idle_ttl_ms=1 << 40))

    async def begin(self, *_: object, **__: object) -> Any:
        self._step("begin")

        async def result() -> RunResult:
            self._step("waiting")
            self._step("running")
            self.before_end()
            return self.result

        return SimpleNamespace(began=self.at == "running", result=result)

    async def purge(self, tenant: str, identifier: str) -> None:
        self.purged.append(identifier)


@dataclass
class Lab:
    """Leases, and one that is kept."""

    service: Conversations
    leases: Leases
    lease: str = ""

    async def run(self, lease: str | None = None, **more: Any) -> Answer:
        answer = await self.leases.run("t", Ask("bash", "true", container_id=lease, **more))
        answer.close()
        return answer

    async def there(self) -> bool:
        """Whether the next run has the lease; asked for when everything that ends it has had its time."""
        await asyncio.sleep(0)
        self.service.at, self.service.error, self.service.result = "", None, ENDED
        return (await self.run(self.lease)).lease == self.lease and self.lease not in self.service.purged


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    service = Conversations()
    made = Lab(service, Leases(cast(Any, service), LeasesConfig(leases=2)))
    made.lease = str((await made.run(keep_alive=True)).lease)
    yield made
    await made.leases.close()


@pytest.mark.parametrize("at", ["ensure", "begin", "waiting"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_refused_leaves_the_lease(lab: Lab, kind: type[BaseException], at: str) -> None:
    lab.service.at, lab.service.error = at, raised(kind)
    with pytest.raises(kind):
        await lab.run(lab.lease)
    assert await lab.there()


@pytest.mark.parametrize("kind", KINDS)
async def test_of_what_had_begun_only_what_broke_ends_the_lease(lab: Lab, kind: type[BaseException]) -> None:
    lab.service.at, lab.service.error = "running", raised(kind)
    with pytest.raises(kind):
        await lab.run(lab.lease)
    assert await lab.there() is (kind not in BROKEN)


@pytest.mark.parametrize("at", ["ensure", "begin", "waiting", "running"])
async def test_a_run_that_nobody_knows_of_leaves_nothing(lab: Lab, at: str) -> None:
    lab.service.at, lab.service.error = at, errors.HostPressure("as told")
    with pytest.raises(errors.HostPressure):
        await lab.run(keep_alive=True)
    await asyncio.sleep(0)
    assert len(lab.service.purged) == 1
    assert await lab.there()


async def test_time_and_a_lost_sandbox_end_the_lease(lab: Lab) -> None:
    lab.service.result = LATE
    assert (await lab.run(lab.lease)).timed_out
    assert not await lab.there()
    lab.lease = str((await lab.run(keep_alive=True)).lease)
    lab.service.result = CRASHED
    with pytest.raises(errors.SandboxLost):
        await lab.run(lab.lease)
    assert not await lab.there()


async def test_what_was_let_go_of_is_gone_whatever_becomes_of_its_run(lab: Lab) -> None:
    """The run has made the conversation again: without another look it would stay for ever."""
    lab.service.at, lab.service.error = "waiting", errors.Busy("as told")
    lab.service.ensure = _releasing(lab)  # type: ignore[method-assign]
    with pytest.raises(errors.Busy):
        await lab.run(lab.lease)
    await asyncio.sleep(0)
    assert lab.service.purged == [lab.lease, lab.lease]


def _releasing(lab: Lab) -> Any:
    async def ensure(tenant: str, identifier: str) -> tuple[Any, bool]:
        await lab.leases.release(tenant, identifier)
        return await lab.service.find(tenant, identifier), True

    return ensure


async def test_a_conversation_that_was_deleted_elsewhere_is_a_lease_no_more(lab: Lab) -> None:
    lab.service.at, lab.service.error = "running", errors.NotFound("as told")
    with pytest.raises(errors.SandboxLost):
        await lab.run(lab.lease)
    assert not await lab.there()


async def test_a_refused_run_counts_as_use(lab: Lab) -> None:
    """The caller was told to come again: the lease must not end for idleness before that."""
    [lease] = [each for each in lab.leases._table._all.values() if each.id == lab.lease]
    lease.last_used = 0.0
    lab.service.at, lab.service.error = "waiting", errors.HostPressure("as told")
    with pytest.raises(errors.HostPressure):
        await lab.run(lab.lease)
    assert lab.leases._table.overdue(600.0) == []


async def test_an_input_above_what_the_key_allows_is_refused(lab: Lab) -> None:
    ask = Ask("bash", "true", {"fits": bytes(10), "big": bytes(11)}, container_id=lab.lease)
    with pytest.raises(errors.TooLarge, match="'big' has 11 bytes") as refused:
        await lab.leases.run("t", ask, 10)
    assert refused.value.fields["limit"] == 10
    assert await lab.there()
