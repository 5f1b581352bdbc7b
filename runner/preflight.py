"""Tell within five seconds what this host lacks, before anything is installed or downloaded.

Standard library only, and no import from the rest of the project: `python3 runner/preflight.py --for demo`
runs with the system's Python. That is why it is longer than other files: it must stay one that runs alone. Each probe
has its own deadline and runs beside the others.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

State = Literal["ok", "warn", "fail"]
Target = Literal["demo", "test", "serve", "setup"]
TARGETS: tuple[Target, ...] = ("demo", "test", "serve", "setup")

TOTAL_S = 4.6
PROBE_S = 3.0
SUITE = "trixie"
BUILD_GB = 8.0
RUN_GB = 1.0
UNISOLATED = "SANDBOX_ALLOW_UNISOLATED=1"
NO_VERSION = "tells no version"


@dataclass(frozen=True)
class Finding:
    """What one probe found: `change` names the setting or the command that helps, "" when all is well."""

    name: str
    state: State
    found: str
    change: str = ""


@dataclass(frozen=True)
class Output:
    """Exit code and both streams of a command; 127 when it is not there, 124 when it took too long."""

    code: int
    text: str


Run = Callable[[Sequence[str]], Output]
# Quoted, so that an older Python gets as far as being told that it is too old.
Fetch = Callable[[str, "str | None"], str]


def run_command(command: Sequence[str]) -> Output:
    """Run a command with the deadline of a probe."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROBE_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Output(124, f"no end within {PROBE_S:.0f} s")
    except OSError as error:
        return Output(127, str(error))
    return Output(done.returncode, done.stdout.decode("utf-8", "replace").strip())


def fetch_url(url: str, ca_file: str | None) -> str:
    """Ask for the head of a URL; return "ok", "certificate", or what went wrong."""
    context = ssl.create_default_context(cafile=ca_file)
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=PROBE_S, context=context):
            return "ok"
    except urllib.error.HTTPError as error:
        return f"answers with status {error.code}"
    except urllib.error.URLError as error:
        return "certificate" if isinstance(error.reason, ssl.SSLError) else f"no answer ({error.reason})"
    except (OSError, ValueError) as error:
        return f"no answer ({error})"


def _user_name() -> str:
    """Return the account's name, or its number where it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


@dataclass(frozen=True)
class Host:
    """What the probes look at; tests give another one."""

    target: Target = "setup"
    root: bool = field(default_factory=lambda: os.geteuid() == 0)
    user: str = field(default_factory=_user_name)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    repository: Path = field(default_factory=lambda: Path(__file__).resolve().parent.parent)
    system: Path = Path("/")
    python: tuple[int, ...] = tuple(sys.version_info[:3])
    run: Run = run_command
    fetch: Fetch = fetch_url

    @property
    def cache(self) -> Path:
        """The cache root, by the same rule as the image build."""
        chosen = self.environment.get("FOLIOBOX_CACHE_DIR", "")
        if chosen:
            return Path(chosen).expanduser().absolute()
        if self.root:
            return self.system / "var/cache/foliobox"
        xdg = self.environment.get("XDG_CACHE_HOME", "")
        return (Path(xdg) if xdg.startswith("/") else Path.home() / ".cache") / "foliobox"

    @property
    def tree_built(self) -> bool:
        """Whether a root file system is there, so that nothing of Debian must be downloaded."""
        return (self.cache / "rootfs/current/etc/foliobox/image.json").exists()

    @property
    def packages_there(self) -> bool:
        """Whether the runner's own environment is there."""
        return (self.repository / ".venv/bin/python").exists()

    @property
    def unisolated(self) -> bool:
        """Whether the operator allowed running without namespaces."""
        return self.environment.get("SANDBOX_ALLOW_UNISOLATED", "").strip().lower() in ("1", "true", "yes", "on")

    @property
    def bwrap(self) -> str:
        """The bubblewrap program, by the same rule as the service."""
        return self.environment.get("SANDBOX_BWRAP", "").strip() or "bwrap"

    def has(self, program: str) -> bool:
        """Whether a program is on PATH or among the administrator's."""
        path = self.environment.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
        return shutil.which(program, path=path) is not None

    def missing(self, name: str, found: str, package: str, isolation: bool = False) -> Finding:
        """Return the finding for a package that is not there: root's targets install it, a user must.

        What serves isolation alone is only wished for where the operator does without.
        """
        command = f"apt-get install --no-install-recommends -y {package}"
        if self.root and self.has("apt-get"):
            return Finding(name, "warn", found, f"is installed by the make targets ({command})")
        help_text = f"sudo {command}" if self.has("apt-get") else f"install the like of Debian's {package}"
        return Finding(name, "warn" if isolation and self.unisolated else "fail", found, help_text)

    def read(self, path: str) -> str:
        """Return the text of a system file, "" when it cannot be read."""
        try:
            return (self.system / path.lstrip("/")).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def probe_python(host: Host) -> Finding:
    """Look for Python 3.11 or newer that can make environments."""
    version = ".".join(map(str, host.python))
    if host.python < (3, 11):
        return Finding("Python", "fail", version, "install Python 3.11 or newer and call it by its name")
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        return host.missing("Python", f"{version} without venv or ensurepip", "python3-venv")
    return Finding("Python", "ok", version)


def probe_namespaces(host: Host) -> Finding:
    """Make the namespaces of a sandbox for real, as an account without privileges."""
    drop = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if host.root else []
    if host.has(host.bwrap):
        inner = [host.bwrap, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    else:
        kinds = ["--user", "--map-root-user", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork"]
        inner = ["unshare", *kinds, "true"]
    done = host.run([*drop, *inner])
    if done.code == 0:
        return Finding("namespaces", "ok", f"{inner[0]} made all of them without privileges")
    found = done.text.splitlines()[-1] if done.text else f"{inner[0]} ended with code {done.code}"
    if host.unisolated:
        return Finding("namespaces", "warn", found, f"{UNISOLATED} is set: no isolation, loopback only")
    return Finding("namespaces", "fail", found, namespace_advice(host))


def namespace_advice(host: Host) -> str:
    """Return the setting that refuses namespaces, as far as the kernel tells, and the way without."""
    hints = []
    if host.read("/proc/sys/kernel/unprivileged_userns_clone").strip() == "0":
        hints.append("sysctl -w kernel.unprivileged_userns_clone=1")
    if host.read("/proc/sys/user/max_user_namespaces").strip() == "0":
        hints.append("sysctl -w user.max_user_namespaces=15000")
    if host.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").strip() == "1":
        hints.append("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
    if not hints:
        hints.append("allow user namespaces (inside a container: its seccomp profile and masked /proc)")
    return f"{'; '.join(hints)}; or {UNISOLATED} for demo and tests without isolation"


def probe_bubblewrap(host: Host) -> Finding:
    """Look for bubblewrap 0.8 or newer."""
    own = host.bwrap != "bwrap"
    if not host.has(host.bwrap):
        if own:
            state: State = "warn" if host.unisolated else "fail"
            advice = "let SANDBOX_BWRAP name the program, or unset it to use the one on PATH"
            return Finding("bubblewrap", state, f"SANDBOX_BWRAP={host.bwrap} is no program", advice)
        return host.missing("bubblewrap", "not installed", "bubblewrap", isolation=True)
    which = f" ({host.bwrap})" if own else ""
    numbers = re.search(r"(\d+)\.(\d+)", host.run([host.bwrap, "--version"]).text)
    if numbers is None:
        return Finding("bubblewrap", "warn", f"{NO_VERSION}{which}", "0.8 or newer is needed")
    if (int(numbers[1]), int(numbers[2])) < (0, 8):
        return Finding("bubblewrap", "fail", f"{numbers[0]}{which}", "install 0.8 or newer (Debian 12, Ubuntu 24.04)")
    return Finding("bubblewrap", "ok", f"{numbers[0]}{which}")


def probe_proot(host: Host) -> Finding:
    """Look for proot, which stands in where namespaces are refused and the operator does without."""
    if not host.unisolated:
        return Finding("proot", "ok", f"not needed without {UNISOLATED}")
    if not host.has("proot"):
        return host.missing("proot", "not installed", "proot")
    return Finding("proot", "ok", "installed")


def probe_seccomp(host: Host) -> Finding:
    """Load the library that makes system call filters."""
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return host.missing("libseccomp", "not installed", "libseccomp2", isolation=True)
    return Finding("libseccomp", "ok", "loads")


def probe_cgroup(host: Host) -> Finding:
    """Tell whether a group with memory and process limits can be made where the runner would make it."""
    places = cgroup_places(host.read("/proc/self/mountinfo"), host.read("/proc/self/cgroup"))
    kinds = sorted({kind for kind, _ in places.values()})
    layout = {("v1", "v2"): "hybrid", ("v1",): "v1", ("v2",): "v2"}.get(tuple(kinds), "none")
    lacking = [name for name in ("memory", "pids") if not _usable(host, name, places)]
    if not lacking:
        return Finding("cgroups", "ok", f"{layout}, memory and pids can be limited")
    help_text = (
        "without them limits are those of rlimits and tmpfs, for one tenant on loopback; run as root, or with"
        " Delegate=yes in the unit (systemd-run --user --scope -p Delegate=yes)"
    )
    return Finding("cgroups", "warn", f"{layout}, not writable for {' and '.join(lacking)}", help_text)


def cgroup_places(mountinfo: str, own: str) -> dict[str, tuple[str, str]]:
    """Return controller -> (v1 or v2, own folder as a path); the controller "" is the v2 hierarchy."""
    paths = {}
    for line in own.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths[controller] = parts[2]
    places: dict[str, tuple[str, str]] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = [""] if kind[0] == "cgroup2" else kind[2].split(",")
        for controller in controllers:
            if controller in paths:
                below = paths[controller].removeprefix(fields[3].rstrip("/")).lstrip("/")
                version = "v2" if kind[0] == "cgroup2" else "v1"
                places[controller] = (version, f"{fields[4]}/{below}".rstrip("/"))
    return places


def _usable(host: Host, controller: str, places: Mapping[str, tuple[str, str]]) -> bool:
    """Tell whether the controller is there and a group can be made for it."""
    if controller in places:
        return os.access(host.system / places[controller][1].lstrip("/"), os.W_OK)
    if "" not in places:
        return False
    folder = places[""][1]
    return controller in host.read(f"{folder}/cgroup.controllers").split() and os.access(
        host.system / folder.lstrip("/"), os.W_OK
    )


def probe_disk(host: Host) -> Finding:
    """Compare the free space at the cache with what building, or running alone, needs."""
    needed = RUN_GB if host.tree_built else BUILD_GB
    place = next(path for path in (host.cache, *host.cache.parents) if path.exists())
    free = shutil.disk_usage(place).free / 1e9
    found = f"{free:.1f} GB free at {host.cache}"
    if free >= needed:
        return Finding("disk", "ok", found)
    return Finding("disk", "fail", found, f"{needed:.0f} GB are needed: free some, or set FOLIOBOX_CACHE_DIR")


def probe_memory(host: Host) -> Finding:
    """Read how much memory the kernel and the own group leave."""
    available = re.search(r"MemAvailable:\s+(\d+) kB", host.read("/proc/meminfo"))
    if available is None:
        return Finding("memory", "warn", "unknown", "2 GB are wanted")
    amounts = [int(available[1]) / 1e6]
    places = cgroup_places(host.read("/proc/self/mountinfo"), host.read("/proc/self/cgroup"))
    for name, (_, folder) in places.items():
        file = {"memory": "memory.limit_in_bytes", "": "memory.max"}.get(name)
        text = host.read(f"{folder}/{file}").strip() if file else ""
        amounts += [int(text) / 1e9] if text.isdigit() else []
    found = f"{min(amounts):.1f} GB available"
    if min(amounts) >= 2:
        return Finding("memory", "ok", found)
    state: State = "warn" if min(amounts) >= 1 else "fail"
    return Finding("memory", state, found, "1 GB at least, better 2: raise the limit, or end other programs")


def probe_account(host: Host) -> Finding:
    """Tell root from a user, who needs subordinate ids for the build."""
    if host.root:
        return Finding("account", "ok", "root: every sandbox gets a host user of its own")
    if host.tree_built:
        return Finding("account", "ok", f"{host.user}, without root: one tenant")
    if not host.has("newuidmap"):
        return host.missing("account", f"{host.user}, no newuidmap", "uidmap")
    files = [name for name in ("/etc/subuid", "/etc/subgid") if not _has_range(host, name)]
    if files:
        help_text = f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {host.user}"
        return Finding("account", "fail", f"{host.user} has no range in {' and '.join(files)}", help_text)
    return Finding("account", "ok", f"{host.user}, with subordinate ids")


def _has_range(host: Host, name: str) -> bool:
    """Tell whether a file of subordinate ids names the user, by name or number."""
    owners = {host.user, str(os.geteuid())}
    return any(line.split(":", 1)[0] in owners for line in host.read(name).splitlines())


def probe_bootstrap(host: Host) -> Finding:
    """Look for the tool that makes the bare Debian system."""
    if host.tree_built:
        return Finding("bootstrap", "ok", "not needed: a root file system is there")
    if host.has("mmdebstrap") or (host.root and host.has("debootstrap")):
        return Finding("bootstrap", "ok", "mmdebstrap" if host.has("mmdebstrap") else "debootstrap")
    return host.missing("bootstrap", "mmdebstrap is not installed", "mmdebstrap")


def probe_mirror(host: Host) -> Finding:
    """Ask the Debian mirror, when the root file system must still be built."""
    if host.tree_built:
        return Finding("Debian mirror", "ok", "not needed: a root file system is there")
    site = host.environment.get("FOLIOBOX_DEBIAN_MIRROR", "").rstrip("/") or configured_mirror(host)
    if not site:
        return Finding("Debian mirror", "warn", "unknown: apt names none", "FOLIOBOX_DEBIAN_MIRROR sets one")
    answer = host.fetch(f"{site}/dists/{SUITE}/InRelease", _ca_file(host, {}))
    return _reach("Debian mirror", site, answer, "check network and http_proxy, or set FOLIOBOX_DEBIAN_MIRROR")


def configured_mirror(host: Host) -> str:
    """Return the first Debian archive that apt is configured with, "" when there is none."""
    listing = host.run(["apt-get", "indextargets", "--format", "$(SITE) $(ORIGIN)", "Identifier: Packages"])
    rows = (line.split() for line in listing.text.splitlines())
    sites = (row[0].rstrip("/") for row in rows if len(row) == 2 and row[1] == "Debian")
    return next((site for site in sites if site.startswith("http")), "") if listing.code == 0 else ""


def probe_index(host: Host) -> Finding:
    """Ask the Python index, when packages must still be downloaded."""
    if host.tree_built and host.packages_there:
        return Finding("Python index", "ok", "not needed: all packages are there")
    listing = host.run([sys.executable, "-m", "pip", "config", "list"])
    pairs = (line.partition("=") for line in listing.text.splitlines() if listing.code == 0)
    configured = {key.rsplit(".", 1)[-1]: value.strip("'\"") for key, _, value in pairs}
    index = host.environment.get("PIP_INDEX_URL") or configured.get("index-url") or built_in_index(host)
    if not index.startswith("http"):
        return Finding("Python index", "warn", "unknown: pip names none", "PIP_INDEX_URL sets one")
    answer = host.fetch(index.rstrip("/") + "/pip/", _ca_file(host, configured))
    return _reach("Python index", index, answer, "check the network and https_proxy, or set PIP_INDEX_URL")


def built_in_index(host: Host) -> str:
    """Return the index that pip uses when nothing else is said, from pip itself."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    done = host.run([sys.executable, "-c", code])
    return done.text if done.code == 0 else ""


def _ca_file(host: Host, configured: Mapping[str, str]) -> str | None:
    """Return the CA bundle that downloads are told to use."""
    names = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    candidates = [*(host.environment.get(name, "") for name in names), configured.get("cert", "")]
    return next((path for path in candidates if path and Path(path).is_file()), None)


def _reach(name: str, site: str, answer: str, advice: str) -> Finding:
    """Return the finding for the answer of a server; credentials in its address are not shown."""
    shown = re.sub(r"//[^/@]*@", "//", site)
    if answer == "ok":
        return Finding(name, "ok", shown)
    if answer == "certificate":
        advice = "a proxy seems to sign anew: set PIP_CERT and SSL_CERT_FILE to a bundle with its authority"
        return Finding(name, "fail", f"{shown}: certificate refused", advice)
    state: State = "warn" if answer.startswith("answers") else "fail"
    return Finding(name, state, f"{shown}: {answer}", advice)


Probe = Callable[[Host], Finding]
SETUP_PROBES: tuple[Probe, ...] = (
    probe_python,
    probe_account,
    probe_disk,
    probe_memory,
    probe_bootstrap,
    probe_mirror,
    probe_index,
)
RUN_PROBES: tuple[Probe, ...] = (probe_namespaces, probe_bubblewrap, probe_seccomp, probe_cgroup, probe_proot)


def probes_for(target: Target) -> tuple[Probe, ...]:
    """Return the probes of a target; every target sets up what is missing, so all have those of setup."""
    return SETUP_PROBES if target == "setup" else (*SETUP_PROBES, *RUN_PROBES)


def preflight(host: Host, probes: Sequence[Probe] | None = None, total_s: float = TOTAL_S) -> list[Finding]:
    """Run the probes beside each other; return one finding a probe, in their order, within `total_s`."""
    chosen = probes if probes is not None else probes_for(host.target)
    results: dict[int, Finding] = {}
    threads = []
    for number, probe in enumerate(chosen):
        thread = threading.Thread(target=_guarded, args=(number, probe, host, results), daemon=True)
        thread.start()
        threads.append(thread)
    timer = threading.Event()
    watcher = threading.Thread(target=_join_all, args=(threads, timer), daemon=True)
    watcher.start()
    timer.wait(total_s)
    return without_echo([results.get(number) or _late(probe) for number, probe in enumerate(chosen)])


def without_echo(findings: list[Finding]) -> list[Finding]:
    """Leave out that bubblewrap tells no version where it made no namespaces: the cause is told once."""
    if all(finding.name != "namespaces" or finding.state == "ok" for finding in findings):
        return findings
    return [finding for finding in findings if not finding.found.startswith(NO_VERSION)]


def _join_all(threads: Sequence[threading.Thread], timer: threading.Event) -> None:
    """Set the event when all threads have ended."""
    for thread in threads:
        thread.join()
    timer.set()


def _title(probe: Probe) -> str:
    """Return the name under which a probe without result is shown."""
    return probe.__name__.removeprefix("probe_").replace("_", " ")


def _guarded(number: int, probe: Probe, host: Host, results: dict[int, Finding]) -> None:
    """Run one probe; a probe that breaks is a warning and stops nobody."""
    try:
        results[number] = probe(host)
    except Exception as error:  # a probe must never cost the others
        results[number] = Finding(_title(probe), "warn", f"probe broke: {error!r}", "please report this")


def _late(probe: Probe) -> Finding:
    """Return the finding of a probe that did not end in time."""
    return Finding(_title(probe), "warn", "no answer in time", "unknown; the step itself will tell")


def table(findings: Sequence[Finding]) -> str:
    """Return the findings as text, what helps below the line it belongs to."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"  {finding.state:4}  {finding.name:{width}}  {finding.found}")
        if finding.change:
            lines.append(f"        {'':{width}}  -> {finding.change}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return 0 when the target can start, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="preflight", description=__doc__)
    parser.add_argument("--for", dest="target", choices=TARGETS, default="setup", help="default: %(default)s")
    args = parser.parse_args(arguments)
    findings = preflight(Host(target=args.target))
    failed = [finding.name for finding in findings if finding.state == "fail"]
    print(f"preflight for {args.target}:\n{table(findings)}")
    if failed:
        print(f"not ready: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
