"""The one table of rows: what each is called, in which unit, its target, and what it is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.stats import Sample

Statistic = Literal["p50", "p95"]
Verdict = Literal["ok", "over", "-"]


@dataclass(frozen=True, slots=True)
class Row:
    """``limit`` bounds the ``statistic`` from above, or from below where ``at_least``.

    ``against`` is the key of the row whose median this one's is divided by; with ``faster`` it must be below 1,
    with ``most_times`` the statistic may be at most so many times that row's. ``docker``: needs its daemon.
    """

    key: str
    title: str
    limit: float | None = None
    statistic: Statistic = "p50"
    unit: str = "ms"
    at_least: bool = False
    against: str | None = None
    faster: bool = False
    most_times: float | None = None
    docker: bool = False

    @property
    def target(self) -> str:
        """The target in words."""
        if self.most_times is not None:
            return f"{self.statistic} ≤ {self.most_times:g} × {self.against}"
        if self.limit is None:
            return ""
        sign = "≥" if self.at_least else "≤"
        return f"{self.statistic} {sign} {self.limit:g}" + (f", < {self.against}" if self.faster else "")

    def ratio(self, sample: Sample, other: Sample | None) -> float | None:
        """How many times the other row's median this one's is."""
        return sample.p50 / other.p50 if other is not None and other.p50 else None

    def verdict(self, sample: Sample, other: Sample | None) -> Verdict:
        """``over`` when the target is missed; ``-`` for rows without one."""
        value = self._value(sample)
        if self.most_times is not None and other is not None:
            return "ok" if value <= self.most_times * self._value(other) else "over"
        if self.limit is None:
            return "-"
        good = value >= self.limit if self.at_least else value <= self.limit
        ratio = self.ratio(sample, other)
        if self.faster and ratio is not None:
            good = good and ratio < 1
        return "ok" if good else "over"

    def _value(self, sample: Sample) -> float:
        return sample.p50 if self.statistic == "p50" else sample.p95


ROWS = (
    Row("python_start", "floor: python -c pass"),
    Row("socket_echo", "floor: Unix-socket echo"),
    Row("bwrap_true", "floor: bwrap true"),
    Row("livez", "floor: GET /livez, the client's own cost included", against="socket_echo"),
    Row("jupyter_cold", "peer: jupyter_client + ipykernel, start to first print(1)", against="python_start"),
    Row("jupyter_warm", "peer: jupyter_client + ipykernel, warm print(1)", against="socket_echo"),
    Row("warm", "warm print(1), empty workspace", 3, against="jupyter_warm", faster=True),
    Row("warm_100", "warm print(1), 100 files", 3, against="jupyter_warm", faster=True),
    Row("warm_10000", "warm print(1), 10,000 files: the scan", against="warm"),
    Row("commit", "run that changes one small file, durable", against="warm"),
    Row("print_10mb", "cell that prints 10 MB", against="warm"),
    Row("put_10mib", "put a file of 10 MiB, durable", against="livez"),
    Row("get_10mib", "get a file of 10 MiB", against="livez"),
    Row("throughput", "warm print(1), 8 conversations at once", 400, unit="calls/s", at_least=True),
    Row("sessions_exec", "sessions surface: /exec of print(1)", against="warm"),
    Row("sessions_put", "sessions surface: 10 MiB through /files, Base64 in JSON", against="put_10mib"),
    Row("run_leased", "one-shot surface: /run of print(1), leased", against="warm"),
    Row("run_single", "one-shot surface: /run of print(1), single-use", against="new"),
    Row("interrupt", "POST …/interrupt until `while True: pass` has its result", 500, against="warm"),
    Row("kill_250", "250 processes that ignore signals: end of the cell to its result", 500, against="warm"),
    Row("new", "new conversation with first print(1), one a refill", 50, against="jupyter_cold"),
    Row("first_import", "first import pandas, matplotlib.pyplot", 20, against="warm"),
    Row("first_pdf", "first cell: Chinese page with WeasyPrint, stored", 150, against="warm"),
    Row("memory", "idle conversation, by MemAvailable", 130, unit="MiB"),
    Row("memory_own", "idle conversation, anonymous memory of its processes", 130, unit="MiB"),
    Row("write_100mib", "floor: write and sync 100 MiB"),
    Row("put_100mib", "put a file of 100 MiB, durable", against="write_100mib"),
    Row("put_100mib_memory", "… growth of the service's peak memory", 32, unit="MiB"),
    Row("get_100mib", "get a file of 100 MiB, its hash checked", against="write_100mib"),
    Row("get_100mib_memory", "… growth of the service's peak memory", 32, unit="MiB"),
    Row("throughput_durable", "run that changes a file, 8 conversations at once", 400, unit="calls/s", at_least=True),
    Row("commit_1000", "cell that makes 1,000 small files, durable", against="commit"),
    Row("commit_19000", "cell that makes 19,000 small files, durable", against="commit"),
    Row("flood_memory", "cell that prints 10 GiB: growth of the service's peak memory", 32, unit="MiB"),
    Row("beside_quiet", "warm print(1), a quiet neighbour"),
    Row("beside_hostile", "… a hostile neighbour", None, "p95", against="beside_quiet", most_times=2),
    Row("restart_1000", "killed service until 1,000 conversations are listed", 3000, "p95"),
    Row("new_100", "100 new conversations at once, default pool of 2", against="jupyter_cold"),
    Row("new_10_default", "10 new conversations at once, default pool of 2", against="jupyter_cold"),
    Row("new_10", "10 new conversations at once, SANDBOX_POOL_SIZE=12", 50, "p95", against="jupyter_cold"),
    Row("docker_run", "floor: docker run … python -c 'print(1)'", docker=True),
    Row("docker_exec", "floor: docker exec … python -c 'print(1)'", docker=True),
    Row("exec_steps", "peer: six docker exec a call, as a sessions runner does: print(1)", docker=True),
    Row("docker_exec_import", "floor: docker exec … python -c 'import pandas, matplotlib.pyplot'", docker=True),
    Row("import_steps", "peer: six docker exec a call: import pandas, matplotlib.pyplot", docker=True),
    Row("put_steps", "peer: three docker exec a file: 10 MiB, Base64 in JSON", docker=True),
    Row("runc_warm", "Docker, runc: warm print(1)", against="docker_exec", most_times=0.1, docker=True),
    Row("runc_new", "Docker, runc: new conversation", against="docker_run", most_times=0.25, docker=True),
    Row("runc_memory", "Docker, runc: idle conversation", unit="MiB", docker=True),
    Row("runc_sessions_exec", "Docker, runc: /exec of print(1)", against="exec_steps", most_times=1 / 20, docker=True),
    Row(
        "runc_sessions_import",
        "Docker, runc: /exec of the imports",
        against="import_steps",
        most_times=0.01,
        docker=True,
    ),
    Row("runc_sessions_put", "Docker, runc: 10 MiB through /files", against="put_steps", most_times=0.2, docker=True),
    Row("runc_run_leased", "Docker, runc: /run, leased", against="docker_run", most_times=0.1, docker=True),
    Row("runc_run_single", "Docker, runc: /run, single-use", against="docker_run", most_times=0.25, docker=True),
    Row("runsc_warm", "Docker, gVisor: warm print(1)", against="runc_warm", most_times=3, docker=True),
    Row("runsc_new", "Docker, gVisor: new conversation", against="runc_new", most_times=3, docker=True),
    Row("runsc_memory", "Docker, gVisor: idle conversation", 250, unit="MiB", docker=True),
)
BY_KEY = {row.key: row for row in ROWS}
