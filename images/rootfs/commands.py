"""The command lines and environments of the build, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# Settings of the host that downloads need; nothing else of its environment enters the build.
PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout", "retries")
CA_SETTINGS = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")


def namespace(user_id: int) -> list[str]:
    """Return the prefix that runs a command as root of its own mount and process namespace."""
    mapping = [] if user_id == 0 else ["--map-root-user", "--map-auto"]
    return ["unshare", *mapping, "--mount", "--pid", "--fork", "--kill-child", "--"]


def user_namespace(user_id: int) -> list[str]:
    """Return the prefix under which files of subordinate ids can be handled; empty for root."""
    return [] if user_id == 0 else ["unshare", "--map-root-user", "--map-auto", "--"]


def bootstrap(tool: str, suite: str, target: Path, mirror: str, user_id: int) -> list[str]:
    """Return the command that makes the bare system: an archive (mmdebstrap) or a folder (debootstrap).

    Root gets namespaces, so that no mount and no process stays; for users mmdebstrap makes its own.
    """
    if tool == "mmdebstrap":
        mode = "root" if user_id == 0 else "unshare"
        command = ["mmdebstrap", "--variant=minbase", f"--mode={mode}", "--format=tar", suite, str(target)]
    else:
        command = ["debootstrap", "--variant=minbase", suite, str(target)]
    prefix = namespace(user_id) if user_id == 0 else []
    return [*prefix, *command, *([mirror] if mirror else [])]


def pip_environment(environment: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Return the pip variables that the build takes over: from the environment, else from pip's own files.

    Places on the host's disk are left out: they do not exist inside the tree.
    """
    result: dict[str, str] = {}
    for setting in PIP_SETTINGS:
        name = "PIP_" + setting.replace("-", "_").upper()
        value = environment.get(name) or configured.get(setting, "")
        kept = [part for part in value.split() if not part.startswith(("file:", "/", "."))]
        if kept:
            result[name] = " ".join(kept)
    return result


def parse_pip_config(text: str) -> dict[str, str]:
    """Return setting -> value from the output of `pip config list`; later sections win, as in pip."""
    result: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        if separator:
            result[key.rsplit(".", 1)[-1].strip()] = value.strip().strip("'\"").replace("\\n", " ")
    return result


def ca_bundle(environment: Mapping[str, str], configured: Mapping[str, str], system: Path = SYSTEM_CA) -> Path | None:
    """Return the CA bundle that the host's tools are told to use, else the host's own; None if there is none."""
    candidates = [*(environment.get(name, "") for name in CA_SETTINGS), configured.get("cert", ""), str(system)]
    return next((Path(value) for value in candidates if value and Path(value).is_file()), None)


def chroot_environment(
    environment: Mapping[str, str], pip: Mapping[str, str], content_hash: str, epoch: int
) -> dict[str, str]:
    """Return the whole environment of the installation inside the tree."""
    proxies = {name: environment[name] for name in PROXIES if environment.get(name)}
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
        "FOLIOBOX_IMAGE_HASH": content_hash,
        "SOURCE_DATE_EPOCH": environment.get("SOURCE_DATE_EPOCH") or str(epoch),
        **proxies,
        **pip,
    }
