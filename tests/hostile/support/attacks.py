"""Scripts that run inside a sandbox; what they print is a report, the verdict is taken elsewhere."""

CALLS = """
import ctypes, json, os, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
NR = {
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "move_mount": 429, "open_tree": 428,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "unshare_user": 272,
    "unshare_mount": 272, "unshare_net": 272, "unshare_pid": 272, "setns": 308, "clone_newuser": 56, "clone3": 435,
    "ptrace_traceme": 101, "ptrace_attach": 101, "process_vm_readv": 310, "process_vm_writev": 311,
    "process_madvise": 440, "pidfd_getfd": 438, "kcmp": 312, "keyctl": 250, "add_key": 248, "request_key": 249,
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "init_module": 175, "finit_module": 313,
    "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320, "reboot": 169, "swapon": 167, "acct": 163,
    "quotactl": 179, "open_by_handle_at": 304, "name_to_handle_at": 303, "syslog": 103, "iopl": 172,
    "settimeofday": 164, "clock_settime": 227, "mknod": 133, "sethostname": 170, "fanotify_init": 300,
    "vmsplice": 278, "mbind": 237, "move_pages": 279, "io_uring_setup": 425, "memfd_secret": 447,
    "statmount": 457, "listmount": 458, "prlimit_agent": 302, "socket_alg": 41, "socket_vsock": 41,
    "socket_packet": 41, "personality_fixed": 135, "socket_alg_wide": 41, "socket_vsock_wide": 41,
    "setpriority_agent_wide": 141, "sched_setaffinity_agent_wide": 203,
}
WIDE = 1 << 32  # the kernel looks at the lower half of an int only

name = ctypes.create_string_buffer(b"user")
text = ctypes.create_string_buffer(b"canary")
iov = struct.pack("QQ", ctypes.addressof(text), 6)
buffer = ctypes.create_string_buffer(4096)
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
pages = ctypes.addressof(text) & ~4095
mount_id = ctypes.c_int()
ARGUMENTS = {
    "mount": (b"none", b"/tmp", b"tmpfs", 0, 0), "umount2": (b"/tmp", 2), "pivot_root": (b"/tmp", b"/tmp"),
    "chroot": (b"/tmp",), "move_mount": (-100, b"/tmp", -100, b"/home", 0), "open_tree": (-100, b"/tmp", 1),
    "fsopen": (b"tmpfs", 0), "fsconfig": (0, 6, 0, 0, 0), "fsmount": (0, 0, 0), "fspick": (-100, b"/tmp", 0),
    "mount_setattr": (-100, b"/tmp", 0, buffer, 32), "unshare_user": (0x10000000,), "unshare_mount": (0x20000,),
    "unshare_net": (0x40000000,), "unshare_pid": (0x20000000,), "setns": (0, 0),
    "clone_newuser": (0x10000000 | 17, 0, 0, 0, 0), "clone3": (buffer, 64), "ptrace_traceme": (0, 0, 0, 0),
    "ptrace_attach": (16, os.getppid(), 0, 0), "process_vm_readv": (os.getpid(), iov, 1, iov, 1, 0),
    "process_vm_writev": (os.getpid(), iov, 1, iov, 1, 0), "process_madvise": (0, iov, 1, 20, 0),
    "pidfd_getfd": (0, 0, 0), "kcmp": (os.getpid(), os.getpid(), 0, 0, 1), "keyctl": (0, -3, 1),
    "add_key": (name, name, text, 6, -3), "request_key": (name, name, 0, -3), "bpf": (0, buffer, 64),
    "perf_event_open": (buffer, 0, -1, -1, 0), "userfaultfd": (1,), "init_module": (buffer, 64, b""),
    "finit_module": (0, b"", 0), "delete_module": (b"loop", 0), "kexec_load": (0, 0, 0, 0),
    "kexec_file_load": (0, 0, 0, b"", 0), "reboot": (0, 0, 0, 0), "swapon": (b"/tmp/x", 0), "acct": (0,),
    "quotactl": (0, 0, 0, 0), "open_by_handle_at": (-100, handle, 0),
    "name_to_handle_at": (-100, b"/tmp", handle, ctypes.byref(mount_id), 0), "syslog": (3, buffer, 100),
    "iopl": (3,), "settimeofday": (buffer, 0), "clock_settime": (0, buffer), "mknod": (b"/tmp/n", 0o10600, 0),
    "sethostname": (b"canary", 6), "fanotify_init": (0, 0), "vmsplice": (1, iov, 1, 0),
    "mbind": (pages, 4096, 0, 0, 0, 0), "move_pages": (0, 0, 0, 0, 0, 0), "io_uring_setup": (4, buffer),
    "memfd_secret": (0,), "statmount": (buffer, buffer, 512, 0), "listmount": (buffer, buffer, 64, 0),
    "prlimit_agent": (1, 7, 0, buffer), "socket_alg": (38, 5, 0), "socket_vsock": (40, 1, 0),
    "socket_packet": (17, 3, 0), "personality_fixed": (0x40000,), "socket_alg_wide": (WIDE + 38, 5, 0),
    "socket_vsock_wide": (WIDE + 40, 1, 0), "setpriority_agent_wide": (WIDE, WIDE + 1, 19),
    "sched_setaffinity_agent_wide": (WIDE + 1, 8, ctypes.create_string_buffer(b"\\1", 8)),
}
found = {}
for call, number in NR.items():
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        given = [ctypes.c_long(a) if isinstance(a, int) else a for a in ARGUMENTS[call]]
        result = libc.syscall(ctypes.c_long(number), *given)
        os.write(write, struct.pack("qi", result, ctypes.get_errno()))
        os._exit(0)
    os.close(write)
    answer = os.read(read, 12)
    os.close(read)
    os.waitpid(child, 0)
    result, number = struct.unpack("qi", answer) if len(answer) == 12 else (-1, -1)
    found[call] = 0 if result >= 0 else number
print(json.dumps(found))
"""

EVERYTHING_READABLE = """
import os, stat, zlib
SKIP = ("/usr", "/opt", "/lib", "/lib64", "/bin", "/sbin", "/sys", "/var/lib", "/var/cache", "/proc/sys", "/dev/pts")
out = zlib.compressobj(1)
parts = [out.compress(repr(dict(os.environ)).encode())]
def take(path):
    try:
        mode = os.stat(path).st_mode
        if not (stat.S_ISREG(mode) and os.access(path, os.R_OK)):
            return
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            parts.append(out.compress(path.encode() + b"\\n" + os.read(fd, 65536)))
        finally:
            os.close(fd)
    except OSError:
        pass
for top, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(top, f) not in SKIP and f not in ("task", "map_files", "net")]
    for name in files:
        take(os.path.join(top, name))
for name in os.listdir("/proc"):
    for link in ("cwd", "exe", "root", "fd"):
        path = f"/proc/{name}/{link}"
        try:
            if link == "fd":
                for number in os.listdir(path):
                    parts.append(out.compress(os.readlink(f"{path}/{number}").encode()))
            else:
                parts.append(out.compress(os.readlink(path).encode()))
        except OSError:
            pass
parts.append(out.flush())
open("/workspace/loot", "wb").write(b"".join(parts))
"""

FOREIGN_CODE = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex({code!r}))
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
print("returned", ctypes.CFUNCTYPE(ctypes.c_long)(address)())
"""
X32_GETPID = "b8270000400f05c3"  # mov eax, 0x40000000 + 39; syscall; ret
INT80_GETPID = "b814000000cd80c3"  # mov eax, 20; int 0x80; ret
