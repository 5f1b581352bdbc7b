"""What of the host's /proc no sandbox is shown."""

from __future__ import annotations

# Facts about the host's kernel and devices that no program here needs; not every host has each of them.
HOST_FACTS = tuple(
    f"/proc/{name}"
    for name in (
        "config.gz", "kallsyms", "cmdline", "interrupts", "softirqs", "partitions", "diskstats", "keys", "key-users",
        "kcore", "kmsg", "sysrq-trigger", "timer_list", "sched_debug", "latency_stats", "iomem", "ioports", "mdstat",
        "swaps", "modules", "devices", "misc", "bootconfig", "locks", "schedstat", "zoneinfo", "buddyinfo",
        "pagetypeinfo", "slabinfo", "vmallocinfo", "dma", "fb", "execdomains", "consoles",
    )
)  # fmt: skip
