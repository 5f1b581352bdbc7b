"""What a probe's container runs instead of an agent: it looks at its walls as user code would, and tries them."""

from __future__ import annotations

from typing import Final

from runner.backends.base import SANDBOX_UID

ALIVE: Final = "alive"

# First a process in the agent's place (not dumpable; with guest uid 0 only behind its effective one), then a child in
# the place of user code, which reports and then tries to end and to stop the first. That says a last word if it lives.
SCRIPT: Final = f"""
import ctypes, json, os, signal, sys
libc, uid = ctypes.CDLL(None), {SANDBOX_UID}
guest_root = os.getuid() == 0
if guest_root:
    os.setgroups([])
    os.setresgid(0, uid, 0)
    os.setresuid(0, uid, 0)
libc.prctl(4, 0, 0, 0, 0)
def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
def link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""
def opens(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True
if os.fork() == 0:
    try:
        if guest_root:
            os.setresuid(0, 0, 0)
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines() if ":" in line)
        print(json.dumps({{
            "kernel": os.uname().release,
            "uid": os.getresuid(),
            "caps": {{name: status.get(name, "1").strip() for name in ("CapPrm", "CapEff", "CapInh")}},
            "bounding": status.get("CapBnd", "1").strip(),
            "seccomp": libc.prctl(21, 0, 0, 0, 0),
            "no_new_privileges": libc.prctl(39, 0, 0, 0, 0),
            "namespaces": {{name: link("/proc/self/ns/" + name) for name in ("pid", "ipc", "uts", "net", "mnt")}},
            "first": os.getppid() == 1,
            "network": [line.split(":")[0].strip() for line in read("/proc/net/dev").splitlines() if ":" in line],
            "memory": read("/sys/fs/cgroup/memory.max") or read("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
            "image": read("/etc/foliobox/image.json"),
            "opened": [path for path in ("/proc/1/mem", "/proc/1/fd/0", "/proc/1/fd/1") if opens(path)],
        }}), flush=True)
        for number in (signal.SIGKILL, signal.SIGSTOP):
            try:
                os.kill(1, number)
            except OSError:
                pass
    finally:
        os._exit(0)
os.wait()
print("{ALIVE}", flush=True)
sys.stdin.read()
"""
