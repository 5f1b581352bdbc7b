"""System call filters, compiled once a process by libseccomp: ``program`` for jails, ``compatible`` without one.

Refused with EPERM: whatever reaches other namespaces, other processes' memory or limits, kernel configuration
or keys. ENOSYS where callers fall back (``clone3``, io_uring), and for every call newer than this list knows.
Socket families other than UNIX, INET, INET6 and NETLINK do not exist. Foreign ABIs (x32, int 0x80) end the
process with SIGSYS. Sources: moby's default profile, ioi/isolate's list of objects without namespaces,
CVE-2017-5226 (TIOCSTI), CVE-2026-31431 (AF_ALG).
"""

from __future__ import annotations

import errno
import os
import struct
import tempfile
from functools import cache
from typing import Any

DENIED = """
    mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr
    unshare setns ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp
    keyctl add_key request_key bpf perf_event_open userfaultfd
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl
    quotactl_fd open_by_handle_at name_to_handle_at lookup_dcookie syslog iopl ioperm
    settimeofday clock_settime clock_settime64 adjtimex clock_adjtime clock_adjtime64
    mknod mknodat vhangup sethostname setdomainname nfsservctl
    move_pages mbind migrate_pages set_mempolicy get_mempolicy set_mempolicy_home_node
    fanotify_init fanotify_mark vmsplice uselib _sysctl
""".split()
MISSING = "io_uring_setup io_uring_enter io_uring_register clone3 memfd_secret".split()
# proot 5.1 translates no paths of these; each has an older twin that callers fall back to.
UNTRANSLATED = "statx openat2 faccessat2 execveat io_uring_setup io_uring_enter io_uring_register".split()
NEWEST = 451  # cachestat, Linux 6.5; numbers from 424 on are the same on every architecture
CLONE_NEW = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
FAMILIES = frozenset((1, 2, 10, 16))  # UNIX, INET, INET6, NETLINK
TIOCSTI, TIOCLINUX, ADDR_NO_RANDOMIZE, _PR_SET_DUMPABLE = 0x5412, 0x541C, 0x0040000, 4
_X32 = 0x40000000
AGENT = 1  # its pid in every jail


@cache
def program() -> bytes:
    """The filter of a jail for this machine. Raises ImportError or OSError when libseccomp is missing."""
    import pyseccomp as seccomp

    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    refuse, missing = seccomp.ERRNO(errno.EPERM), seccomp.ERRNO(errno.ENOSYS)
    _refuse(rules, refuse, DENIED)
    _refuse(rules, missing, MISSING)
    for flag in CLONE_NEW:
        rules.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    unsupported = seccomp.ERRNO(errno.EAFNOSUPPORT)
    for family in range(64):
        if family not in FAMILIES:
            rules.add_rule(unsupported, "socket", _same(0, family))
    for request in (TIOCSTI, TIOCLINUX):
        rules.add_rule(refuse, "ioctl", _same(1, request))
    fixed = seccomp.Arg(0, seccomp.MASKED_EQ, ADDR_NO_RANDOMIZE, ADDR_NO_RANDOMIZE)
    rules.add_rule(refuse, "personality", fixed)
    # Another process's limits need the same uid only: RLIMIT_CPU would end even PID 1, the agent.
    rules.add_rule(refuse, "prlimit64", seccomp.Arg(0, seccomp.NE, 0))
    # Nor may its priority be lowered, alone or with its group or user: it is what ends a run that does not obey.
    for call in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"):
        rules.add_rule(refuse, call, _same(0, AGENT))
    for call, process in (("setpriority", 0), ("ioprio_set", 1)):
        rules.add_rule(refuse, call, seccomp.Arg(0, seccomp.NE, process))
        rules.add_rule(refuse, call, _same(0, process), _same(1, AGENT))
    return _newer_is_missing() + _export(rules)


def _same(argument: int, value: int) -> Any:
    """An argument equals a number for the kernel, which takes the lower half of what the filter sees as an int."""
    import pyseccomp as seccomp

    return seccomp.Arg(argument, seccomp.MASKED_EQ, 0xFFFFFFFF, value)


@cache
def compatible() -> bytes:
    """The filter below proot: no wall, it only hides calls whose paths proot would not translate.

    Giving up the dumpable flag succeeds without effect: proot reads and writes the memory of its processes.
    Raises ImportError or OSError when libseccomp is missing.
    """
    import pyseccomp as seccomp

    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    rules.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.ALLOW)  # proot takes back a call as number -2
    _refuse(rules, seccomp.ERRNO(errno.ENOSYS), UNTRANSLATED)
    rules.add_rule(seccomp.ERRNO(0), "prctl", seccomp.Arg(0, seccomp.EQ, _PR_SET_DUMPABLE))
    return _newer_is_missing() + _export(rules)


def _refuse(rules: Any, action: int, names: list[str]) -> None:
    for name in names:
        try:
            rules.add_rule(action, name)
        except (OSError, RuntimeError, ValueError):
            continue  # a name this libseccomp or this architecture does not have


def _newer_is_missing() -> bytes:
    """Four instructions before the filter: calls above ``NEWEST``, but not those of x32, are ENOSYS."""
    load, greater, at_least, give = 0x20, 0x25, 0x35, 0x06
    lines = (
        (load, 0, 0, 0),  # the number of the call
        (at_least, 2, 0, _X32),
        (greater, 0, 1, NEWEST),
        (give, 0, 0, 0x00050000 | errno.ENOSYS),
    )
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _export(rules: Any) -> bytes:
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.flush()
        return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
