"""Write `sandbox.json`, Docker's form of the filter in runner/backends/seccomp.py: `python3 images/seccomp/generate.py`

Docker's profile has to be an allow list (a deny list would let in calls that are newer than itself), and it knows no
"all but these values". Such sets are written as blocks of values with a common beginning, compared in the 32 bits that
the kernel looks at: garbage above them changes nothing. A test runs both filters and holds this one to be no weaker.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from runner.backends import seccomp  # noqa: E402

PROFILE = FOLDER / "sandbox.json"
ALLOWED = FOLDER / "allowed.txt"
WORD = 0xFFFFFFFF
# Of the engine's own machine, without its other calling conventions: those end the process. runc answers calls that
# are newer than a profile with ENOSYS only for architectures that are named.
ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
# Never used, or gone from kernels, but numbered below others that are allowed: ENOSYS, as a kernel says.
OBSOLETE = """
    create_module get_kernel_syms query_module getpmsg putpmsg afs_syscall tuxcall security epoll_ctl_old epoll_wait_old
    vserver ustat sysfs set_thread_area get_thread_area modify_ldt
""".split()

Rule = dict[str, object]


def allowed() -> list[str]:
    """Names that are allowed whatever the arguments."""
    lines = ALLOWED.read_text(encoding="ascii").splitlines()
    return [name for line in lines if not line.startswith("#") for name in line.split()]


def all_but(values: Iterable[int]) -> list[tuple[int, int]]:
    """The fewest (mask, bits) of 32 bits, disjoint, that together hold every value but the given ones."""
    excluded = set(values)
    blocks = []
    for length in range(1, 33):
        mask = WORD << (32 - length) & WORD
        taken = {value & mask for value in excluded}
        siblings = {bits ^ (1 << (32 - length)) for bits in taken} - taken
        blocks += [(mask, bits) for bits in sorted(siblings)]
    return blocks


def same(index: int, mask: int, bits: int) -> Rule:
    """The condition that an argument's bits under the mask are these."""
    return {"index": index, "value": mask, "valueTwo": bits, "op": "SCMP_CMP_MASKED_EQ"}


def allow(names: list[str], *conditions: Rule) -> Rule:
    """A rule that allows calls, under all of the conditions."""
    return {"names": names, "action": "SCMP_ACT_ALLOW", "args": list(conditions)}


def refuse(names: list[str], number: int, *conditions: Rule) -> Rule:
    """A rule that answers calls with an error number."""
    return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": number, "args": list(conditions)}


def by_arguments() -> list[Rule]:
    """Calls that are allowed with some arguments, and refused with all others: EPERM, or no such family."""
    namespaces = sum(seccomp.CLONE_NEW)
    fixed, injecting = seccomp.ADDR_NO_RANDOMIZE, (seccomp.TIOCSTI, seccomp.TIOCLINUX)
    rules = [allow(["clone"], same(0, namespaces, 0)), allow(["personality"], same(0, fixed, 0))]
    rules += [refuse(["clone"], errno.EPERM, same(0, flag, flag)) for flag in seccomp.CLONE_NEW]
    rules += [refuse(["personality"], errno.EPERM, same(0, fixed, fixed))]
    rules += [allow(["socket"], same(0, WORD, family)) for family in sorted(seccomp.FAMILIES)]
    rules += [refuse(["socket"], errno.EAFNOSUPPORT, same(0, *block)) for block in all_but(seccomp.FAMILIES)]
    rules += [allow(["ioctl"], same(1, *block)) for block in all_but(injecting)]
    rules += [refuse(["ioctl"], errno.EPERM, same(1, WORD, request)) for request in injecting]
    rules += [allow(["prlimit64"], same(0, WORD, 0))]
    rules += [refuse(["prlimit64"], errno.EPERM, same(0, *block)) for block in all_but((0,))]
    return rules + _scheduling()


def _scheduling() -> list[Rule]:
    """Priorities and the like: of every process but the agent."""
    agent, others = (WORD, seccomp.AGENT), all_but((seccomp.AGENT,))
    calls = ["sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"]
    rules = [allow(calls, same(0, *block)) for block in others]
    rules.append(refuse(calls, errno.EPERM, same(0, *agent)))
    for call, process in (("setpriority", 0), ("ioprio_set", 1)):
        one = same(0, WORD, process)
        rules += [allow([call], one, same(1, *block)) for block in others]
        rules.append(refuse([call], errno.EPERM, one, same(1, *agent)))
        # A group or a user of processes holds the agent too.
        rules += [refuse([call], errno.EPERM, same(0, *block)) for block in all_but((process,))]
    return rules


def profile() -> Rule:
    """The whole profile, in the format that Docker reads. Raises ValueError for a name in two lists."""
    plain, missing = allowed(), sorted({*seccomp.MISSING, *OBSOLETE})
    double = set(plain) & {*seccomp.DENIED, *missing}
    if double:
        raise ValueError(f"{ALLOWED.name} allows what is refused: {', '.join(sorted(double))}")
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        # What no list knows looks missing, so that callers fall back. Older engines ignore this line; runc does the
        # same then, for calls that are newer than all named ones.
        "defaultErrnoRet": errno.ENOSYS,
        "archMap": [{"architecture": name, "subArchitectures": []} for name in ARCHITECTURES],
        "syscalls": [
            allow(plain),
            refuse(missing, errno.ENOSYS),
            refuse(sorted(seccomp.DENIED), errno.EPERM),
            *by_arguments(),
        ],
    }


def text() -> str:
    """The profile as it is written, one rule a line."""
    rules = profile()
    calls = rules.pop("syscalls")
    assert isinstance(calls, list)
    head = json.dumps(rules, indent=1).removesuffix("\n}")
    return f'{head},\n "syscalls": [\n  ' + ",\n  ".join(json.dumps(rule) for rule in calls) + "\n ]\n}\n"


if __name__ == "__main__":
    PROFILE.write_text(text(), encoding="ascii")
    print(f"{PROFILE}: {len(allowed())} calls allowed")
