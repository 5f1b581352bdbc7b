"""Every setting with its default and meaning, for ``foliobox doctor`` and ``docs/settings.md``.

A test holds this table equal to the names that the code reads.
"""

from __future__ import annotations

from typing import NamedTuple


class Setting(NamedTuple):
    """An environment variable."""

    name: str
    default: str
    meaning: str


SETTINGS = (
    Setting("SANDBOX_BIND", "127.0.0.1:8000", "address and port of the service"),
    Setting("SANDBOX_API_KEY", "none", "the key callers send as `Authorization: Bearer`; this or a file is required"),
    Setting("SANDBOX_API_KEYS_FILE", "none", "file of further keys, each with a tenant, scopes and limits"),
    Setting("SANDBOX_ALLOW_NO_AUTH", "off", "serve without a key, on loopback only"),
    Setting("SANDBOX_PUBLIC_DOCS", "off", "/docs and /openapi.json need no key beyond loopback either"),
    Setting("SANDBOX_DATA_DIR", "/var/lib/foliobox or the user's data folder", "conversations and their files"),
    Setting("SANDBOX_LOG_LEVEL", "info", "debug, info, warning or error"),
    Setting("SANDBOX_BACKEND", "auto", "auto, docker, bubblewrap or unisolated"),
    Setting("SANDBOX_IMAGE", "foliobox-sandbox, of the same version", "image of sandboxes that are containers"),
    Setting("SANDBOX_RUNTIME", "auto", "auto (runsc if it works, else runc) or a runtime that Docker knows"),
    Setting("SANDBOX_REQUIRE_ISOLATION", "none", "separate-kernel: do not start without it"),
    Setting("SANDBOX_DOCKER_TIMEOUT", "30", "seconds for one call of the Docker daemon; 1 to 600"),
    Setting("SANDBOX_ALLOW_UNISOLATED", "off", "run without walls where the host refuses namespaces; loopback only"),
    Setting("SANDBOX_ROOTFS", "the one built last", "root file system of sandboxes"),
    Setting("SANDBOX_BWRAP", "bwrap on the path", "the bubblewrap program"),
    Setting("SANDBOX_EGRESS_NETWORK", "none", "network for sandboxes; no backend attaches one yet"),
    Setting("SANDBOX_POOL_SIZE", "2", "warm spares; 0 for none, at most `SANDBOX_MAX_SESSIONS`"),
    Setting(
        "SANDBOX_MAX_SESSIONS",
        "(RAM − 2 GiB) / 1 GiB, at least 2",
        "live sandboxes, spares included; 0 for the default",
    ),
    Setting("SANDBOX_IDLE_TTL_SECONDS", "1800", "after this a sandbox is ended; its conversation stays"),
    Setting("SANDBOX_QUEUE_TIMEOUT_SECONDS", "150", "how long a call waits for its conversation and for a sandbox"),
    Setting("SANDBOX_MAX_QUEUE", "256", "requests that wait, in all"),
    Setting("SANDBOX_MAX_QUEUE_PER_CONVERSATION", "16", "requests that wait for one conversation"),
    Setting("SANDBOX_STOP_GRACE_SECONDS", "10", "at a stop, how long runs may go on before they are interrupted"),
    Setting("SANDBOX_KEEP_ON_STOP", "on", "a stop leaves sandboxes that outlive the runner to its next start"),
    Setting("SANDBOX_MIN_FREE_MEMORY", "512m", "memory that a new sandbox must leave free on the host"),
    Setting("SANDBOX_MIN_FREE_DISK", "256m", "disk that uploads and new sandboxes must leave free for commits"),
    Setting("SANDBOX_MIN_FREE_PIDS", "1024", "processes that a new sandbox must leave free on the host"),
    Setting("SANDBOX_DEFAULT_EXEC_TIMEOUT_MS", "120000", "limit of a run that names none"),
    Setting("SANDBOX_EXEC_TIMEOUT_CAP_MS", "600000", "ceiling of every run's limit"),
    Setting("SANDBOX_MEMORY", "2g", "memory of a sandbox"),
    Setting("SANDBOX_CPUS", "1", "cores of a sandbox; 0.05 to 1024"),
    Setting("SANDBOX_PIDS_LIMIT", "256", "processes and threads of a sandbox"),
    Setting("SANDBOX_NOFILE_ULIMIT", "1024", "open files of a process"),
    Setting("SANDBOX_WORKSPACE_SIZE", "512m", "bytes of a workspace"),
    Setting("SANDBOX_WORKSPACE_FILES", "20000", "files, links and empty folders of a workspace"),
    Setting(
        "SANDBOX_KEEP_VERSIONS",
        "100",
        "newest versions of a conversation that are kept whatever their age; at least 100",
    ),
    Setting("SANDBOX_KEEP_DAYS", "30", "younger versions are kept however many there are; at least 1"),
    Setting(
        "SANDBOX_KEEP_EXECUTIONS_DAYS", "7", "records of executions and idempotency keys are kept so long; at least 1"
    ),
    Setting(
        "SANDBOX_COLLECT_INTERVAL_SECONDS",
        "3600",
        "how often what is no longer kept is removed from the store; 0 for never",
    ),
    Setting("SANDBOX_TMPFS_SIZE", "256m", "bytes of /tmp"),
    Setting("SANDBOX_MAX_UPLOAD_BYTES", "256m", "one uploaded file"),
    Setting("SANDBOX_MAX_UPLOAD_FILES", "1000", "files of one upload of many"),
    Setting("SANDBOX_LINK_SECRET", "one of its own, in the data folder", "signs links to files; 32 characters or more"),
    Setting("SANDBOX_MAX_BODY_BYTES", "56m", "every other request body"),
    Setting("SANDBOX_BODY_TIMEOUT_SECONDS", "30", "a request body that makes no progress for this long is refused"),
    Setting("SANDBOX_MIN_BODY_RATE", "1k", "bytes a second; a body that comes more slowly on the whole is refused"),
    Setting("SANDBOX_MAX_BODY_MEMORY", "256m", "bodies held in memory, of all requests together; uploads need none"),
    Setting("SANDBOX_MAX_CONNECTIONS", "1000", "connections open at once"),
    Setting("SANDBOX_MAX_HEAD_BYTES", "64k", "address and headers of a request"),
    Setting("SANDBOX_HEAD_TIMEOUT_SECONDS", "20", "a request whose head is not complete by then is refused"),
    Setting("SANDBOX_SEND_TIMEOUT_SECONDS", "60", "a client who takes nothing of its answer for this long is cut off"),
    Setting("SANDBOX_MAX_CODE_BYTES", "1m", "code of a run"),
    Setting("SANDBOX_MAX_STDIN_BYTES", "16m", "standard input of a run"),
    Setting("SANDBOX_MAX_ENV_BYTES", "64k", "names and values of a run's `env` together"),
    Setting("SANDBOX_MAX_ARTIFACTS", "20000", "files that a run may create or change"),
    Setting("SANDBOX_MAX_ARTIFACT_BYTES", "SANDBOX_WORKSPACE_SIZE", "one file that a run creates or changes"),
    Setting("SANDBOX_MAX_OUTPUT_BYTES", "64k", "head and tail of each output stream in a result; 1k to 64m"),
    Setting("FOLIOBOX_CACHE_DIR", "/var/cache/foliobox or the user's cache folder", "root file systems, downloads"),
    Setting("FOLIOBOX_DEBIAN_MIRROR", "the build tool's own", "Debian mirror for building the root file system"),
)
SECRET = frozenset(("SANDBOX_API_KEY", "SANDBOX_LINK_SECRET"))
