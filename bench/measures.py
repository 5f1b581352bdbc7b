"""Which function measures which row."""

from __future__ import annotations

from collections.abc import Callable

from bench import containers, floors, fresh, holding, steps, stop, surfaces, warm
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
        surfaces.sessions_exec,
        surfaces.sessions_put,
        surfaces.run_leased,
        surfaces.run_single,
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
        steps.exec_steps,
        steps.docker_exec_import,
        steps.import_steps,
        steps.put_steps,
        containers.runc_warm,
        containers.runc_new,
        containers.runc_memory,
        surfaces.runc_sessions_exec,
        surfaces.runc_sessions_import,
        surfaces.runc_sessions_put,
        surfaces.runc_run_leased,
        surfaces.runc_run_single,
        containers.runsc_warm,
        containers.runsc_new,
        containers.runsc_memory,
    )
}
