"""The system call filter of a bubblewrap sandbox, compiled once a process by libseccomp.

Refused with EPERM: whatever reaches other namespaces, other processes' memory, kernel configuration or
keys. ENOSYS where callers fall back (``clone3``, io_uring). Socket families other than UNIX, INET, INET6
and NETLINK do not exist. Foreign ABIs (x32, int 0x80) end the process with SIGSYS. Sources: moby's default
profile, ioi/isolate's list of objects without namespaces, CVE-2017-5226 (TIOCSTI), CVE-2026-31431 (AF_ALG).
"""

from __future__ import annotations

import errno
import os
import tempfile
from functools import cache

DENIED = """
    mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr
    unshare setns ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
    keyctl add_key request_key bpf perf_event_open userfaultfd
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl
    quotactl_fd open_by_handle_at name_to_handle_at lookup_dcookie syslog iopl ioperm
    settimeofday clock_settime clock_settime64 adjtimex clock_adjtime clock_adjtime64
    mknod mknodat vhangup sethostname setdomainname nfsservctl
    move_pages mbind migrate_pages set_mempolicy get_mempolicy set_mempolicy_home_node
    fanotify_init fanotify_mark vmsplice uselib _sysctl
""".split()
MISSING = "io_uring_setup io_uring_enter io_uring_register clone3 memfd_secret".split()
_CLONE_NEW = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_FAMILIES = frozenset((1, 2, 10, 16))  # UNIX, INET, INET6, NETLINK
_TIOCSTI, _TIOCLINUX, _ADDR_NO_RANDOMIZE = 0x5412, 0x541C, 0x0040000


@cache
def program() -> bytes:
    """The compiled filter for this machine. Raises ImportError or OSError when libseccomp is missing."""
    import pyseccomp as seccomp

    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    refuse, missing = seccomp.ERRNO(errno.EPERM), seccomp.ERRNO(errno.ENOSYS)
    for action, names in ((refuse, DENIED), (missing, MISSING)):
        for name in names:
            try:
                rules.add_rule(action, name)
            except (OSError, RuntimeError, ValueError):
                continue  # a name this libseccomp or this architecture does not have
    for flag in _CLONE_NEW:
        rules.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    for family in range(64):
        if family not in _FAMILIES:
            unsupported = seccomp.ERRNO(errno.EAFNOSUPPORT)
            rules.add_rule(unsupported, "socket", seccomp.Arg(0, seccomp.EQ, family))
    for request in (_TIOCSTI, _TIOCLINUX):
        rules.add_rule(refuse, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    fixed = seccomp.Arg(0, seccomp.MASKED_EQ, _ADDR_NO_RANDOMIZE, _ADDR_NO_RANDOMIZE)
    rules.add_rule(refuse, "personality", fixed)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.flush()
        size = os.fstat(file.fileno()).st_size
        return os.pread(file.fileno(), size, 0)
