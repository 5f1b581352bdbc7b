"""The command of a bubblewrap sandbox: order of the launch, what is bound, what is limited."""

from __future__ import annotations

from dataclasses import replace

from runner.backends.bubblewrap import args
from runner.model import SandboxLimits

LIMITS = SandboxLimits()
WRITABLE = ("/dev/shm", "/tmp", "/home/sandbox", "/workspace")


def options(**changes: int) -> list[str]:
    return args.options("/rootfs", replace(LIMITS, **changes), {"A": "1"}, ("/proc/kallsyms",))


def pairs(found: list[str], flag: str) -> list[tuple[str, ...]]:
    """Arguments after each occurrence of a flag, two at most."""
    return [tuple(found[at + 1 : at + 3]) for at, option in enumerate(found) if option == flag]


def test_every_namespace_is_unshared_and_no_further_one_allowed() -> None:
    for flag in ("user", "pid", "ipc", "uts", "net"):
        assert f"--unshare-{flag}" in options()
    assert not any(option.endswith("-try") and option != "--unshare-cgroup-try" for option in options())
    assert {"--disable-userns", "--as-pid-1", "--new-session", "--die-with-parent", "--clearenv"} <= set(options())
    assert pairs(options(), "--cap-drop") == [("ALL", "--clearenv")]


def test_only_the_root_file_system_is_bound() -> None:
    assert pairs(options(), "--ro-bind") == [("/rootfs", "/"), ("/dev/null", "/proc/kallsyms")]
    assert not {"--bind", "--dev-bind", "--bind-try", "--symlink", "--file", "--dir"} & set(options())


def test_no_mount_point_lies_below_a_writable_one() -> None:
    points = [pair[0] for pair in pairs(options(), "--tmpfs")]
    assert sorted(points) == sorted(WRITABLE)
    everything = [*points, "/proc", "/dev", "/"]
    assert not [p for p in everything for w in WRITABLE if p != w and p.startswith(w + "/")]


def test_sizes_come_before_their_folders() -> None:
    found = options(workspace_bytes=123, workspace_files=2, tmp_bytes=45)
    at = found.index("/workspace")
    assert found[at - 5 : at + 1] == [
        "--perms",
        "0700",
        "--size",
        str(123 + 2 * 4096 + (1 << 20)),
        "--tmpfs",
        "/workspace",
    ]
    assert found[found.index("/tmp") - 2] == "45" or found[found.index("/tmp") - 1] == "--tmpfs"


def test_root_and_devices_become_read_only_last() -> None:
    found = options()
    remounted = [at for at, option in enumerate(found) if option == "--remount-ro"]
    assert [found[at + 1] for at in remounted] == ["/dev", "/"]
    assert remounted[0] > max(at for at, option in enumerate(found) if option in ("--tmpfs", "--ro-bind", "--dev"))


def test_environment_is_only_what_is_given() -> None:
    assert pairs(options(), "--setenv") == [("A", "1")]


def test_order_of_the_launch() -> None:
    chain = args.chain("/usr/bin/bwrap", LIMITS, 1_900_000_007, ["/g1/cgroup.procs", "/g2/cgroup.procs"])
    joined = " ".join(chain)
    steps = ["sh 2 /g1/cgroup.procs /g2/cgroup.procs", "setpriv --reuid 1900000007 --regid 1900000007 --clear-groups",
             "--bounding-set=-all", "--no-new-privs", "prlimit", "/usr/bin/bwrap"]  # fmt: skip
    places = [joined.index(step) for step in steps]
    assert places == sorted(places)
    assert chain[-1] == "/usr/bin/bwrap"


def test_unprivileged_launch_drops_no_uid_and_counts_no_processes() -> None:
    chain = args.chain("bwrap", LIMITS, None, [])
    assert "--reuid" not in chain
    assert "--no-new-privs" in chain
    assert not [part for part in chain if part.startswith("--nproc")]
    assert f"--nproc={LIMITS.pids - args.OUTSIDE}" in args.chain("bwrap", LIMITS, 1, [])
