"""Which function measures which row."""

from __future__ import annotations

from collections.abc import Callable

from bench import containers, floors, fresh, holding, stop, warm
from bench.lab import Lab
from bench.stats import Sample

MEASURES: dict[str, Callable[[Lab], Sample]] = {
    measure.__name__: measure
    for measure in (
        floors.python_start,
        floors.socket_echo,
        floors.bwrap_true,
        floors.livez,
        floors.jupyter_cold,
        floors.jupyter_warm,
        warm.warm,
        warm.warm_100,
        warm.warm_10000,
        warm.commit,
        warm.print_10mb,
        warm.put_10mib,
        warm.get_10mib,
        warm.throughput,
        stop.interrupt,
        stop.kill_250,
        fresh.new,
        fresh.first_import,
        fresh.first_pdf,
        fresh.memory,
        fresh.memory_own,
        fresh.new_10_default,
        fresh.new_10,
        holding.write_100mib,
        holding.put_100mib,
        holding.put_100mib_memory,
        holding.get_100mib,
        holding.get_100mib_memory,
        holding.throughput_durable,
        holding.commit_1000,
        holding.commit_19000,
        holding.flood_memory,
        holding.beside_quiet,
        holding.beside_hostile,
        holding.new_100,
        holding.restart_1000,
        containers.docker_run,
        containers.docker_exec,
        containers.runc_warm,
        containers.runc_new,
        containers.runc_memory,
        containers.runsc_warm,
        containers.runsc_new,
        containers.runsc_memory,
    )
}
