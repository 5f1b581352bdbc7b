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
    Setting("SANDBOX_EGRESS_NETWORK", "none", "network of sandboxes that may have one; empty: none has"),
    Setting("SANDBOX_EGRESS_PROXY", "none", "http://HOST:PORT, the one way out of such sandboxes"),
    Setting("SANDBOX_FETCH", "off", "the service itself fetches from the public web: fetch_image and fetch_file"),
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
    Setting(
        "SANDBOX_STORAGE_HOSTS",
        "none",
        "hosts that requests may name as object storage, such as `s3.example.com:9000, *.example.net`",
    ),
    Setting("SANDBOX_LOCAL_STORAGE_DIR", "none", "folder of the storage provider `local`"),
    Setting("SANDBOX_S3_MAX_ATTEMPTS", "3", "attempts of one call of object storage; 1 to 100"),
    Setting("SANDBOX_S3_CONNECT_TIMEOUT_S", "10", "seconds to reach S3"),
    Setting("SANDBOX_S3_READ_TIMEOUT_S", "120", "seconds for an answer of object storage"),
    Setting("SANDBOX_OSS_CONNECT_TIMEOUT_S", "30", "seconds to reach OSS"),
    Setting(
        "SANDBOX_STORAGE_DEFAULT_TTL",
        "3600",
        "seconds that a signed address of storage is valid, where a request names none",
    ),
    Setting("SANDBOX_STORAGE_MAX_TTL", "86400", "the most that a request may name; up to 604800"),
    Setting("SANDBOX_MAX_ARCHIVE_BYTES", "200m", "one archive of a session, packed"),
    Setting("SANDBOX_ARCHIVE_TIMEOUT_S", "120", "seconds to pack and write, or to read, one archive"),
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
    Setting(
        "SANDBOX_ONESHOT_AUTH",
        "key",
        "none: the one-shot surface needs no key on its own listener or, without one, on loopback; refuses proxies",
    ),
    Setting(
        "SANDBOX_ONESHOT_BIND",
        "none",
        "host:port of a listener of its own for the one-shot surface; the main port then wants a key for it",
    ),
    Setting("SANDBOX_ONESHOT_MAX_CONCURRENT", "SANDBOX_MAX_CONCURRENT", "one-shot runs at once"),
    Setting("SANDBOX_MAX_CONCURRENT", "6", "one-shot runs at once"),
    Setting("SANDBOX_ONESHOT_QUEUE_SECS", "2", "how long a one-shot run waits for a place; 0: it is refused at once"),
    Setting("SANDBOX_ONESHOT_TIMEOUT_SECS", "SANDBOX_TIMEOUT_SECS", "limit of a one-shot run that names none"),
    Setting("SANDBOX_TIMEOUT_SECS", "60", "limit of a one-shot run that names none"),
    Setting("SANDBOX_ONESHOT_MAX_TIMEOUT_SECS", "SANDBOX_MAX_TIMEOUT_SECS", "ceiling of one-shot limits"),
    Setting("SANDBOX_MAX_TIMEOUT_SECS", "300", "ceiling of one-shot limits"),
    Setting(
        "SANDBOX_ONESHOT_MAX_OUTPUT_BYTES",
        "SANDBOX_MAX_OUTPUT_BYTES, else 128k",
        "both streams of a one-shot answer together",
    ),
    Setting(
        "SANDBOX_ONESHOT_MAX_ARTIFACT_BYTES",
        "SANDBOX_MAX_ARTIFACT_BYTES, else 64m",
        "a larger file is not delivered by a one-shot answer",
    ),
    Setting("SANDBOX_ONESHOT_LEASE_TTL_SECS", "SANDBOX_LEASE_TTL_SECS", "after this an idle lease ends"),
    Setting("SANDBOX_LEASE_TTL_SECS", "600", "after this an idle lease ends"),
    Setting("SANDBOX_ONESHOT_MAX_LEASES", "SANDBOX_MAX_LEASES", "leases at once"),
    Setting("SANDBOX_MAX_LEASES", "6", "leases at once"),
    Setting("SANDBOX_ONESHOT_MEMORY", "SANDBOX_MEMORY", "memory of a one-shot sandbox; if less, no spare is used"),
    Setting("SANDBOX_ONESHOT_CPUS", "SANDBOX_CPUS", "cores of a one-shot sandbox; if fewer, no spare is used"),
    Setting("SANDBOX_ONESHOT_PIDS_LIMIT", "SANDBOX_PIDS_LIMIT", "its processes; if fewer, no spare is used"),
    Setting("SANDBOX_ONESHOT_WORK_SIZE", "SANDBOX_WORK_SIZE", "its work folder; if smaller, no spare is used"),
    Setting("SANDBOX_WORK_SIZE", "SANDBOX_WORKSPACE_SIZE", "work folder of a one-shot sandbox"),
    Setting("SANDBOX_TMP_SIZE", "none", "accepted, without effect: see SANDBOX_TMPFS_SIZE"),
    Setting("SANDBOX_WORK_ROOT", "none", "accepted, without effect: no host folder is used"),
    Setting("SANDBOX_PODMAN", "none", "accepted, without effect"),
    Setting("SANDBOX_IMAGE_CHECK_SECS", "none", "accepted, without effect: the image is looked up at a start"),
    Setting("SANDBOX_AGENT_WORK", "none", "accepted, without effect"),
    Setting("SANDBOX_ARTIFACTS_INPLACE", "none", "accepted, without effect"),
    Setting(
        "SANDBOX_SESSIONS_RESET_ANSWER", "later", "answer of `/files/reset-inputs`: later (`session_gone`) or base"
    ),
    Setting(
        "SANDBOX_SESSIONS_INTERPRETER", "keep", "keep: variables live across `/exec`; fresh: a new interpreter for each"
    ),
    Setting(
        "SANDBOX_SESSIONS_ON_DISCONNECT", "interrupt", "a caller who leaves `/exec` ends its run; keep: it goes on"
    ),
    Setting("SANDBOX_SESSIONS_IDLE_TTL_SECONDS", "SANDBOX_IDLE_TTL_SECONDS", "idle time of a session that names none"),
    Setting("SANDBOX_IDLE_TTL_CAP_SECONDS", "86400", "ceiling of `idle_ttl_sec`"),
    Setting(
        "SANDBOX_IDLE_REAPER_SWEEP_INTERVAL", "300", "how often idle sessions with storage are archived, in seconds"
    ),
    Setting("SANDBOX_MAX_CONCURRENT_EXECS", "4", "runs of sessions at once; 0: no limit but that of sandboxes"),
    Setting("SANDBOX_MAX_CONCURRENT_CREATES", "2", "sessions made at once; 0: no limit"),
    Setting(
        "SANDBOX_SESSIONS_QUEUE_TIMEOUT_SECONDS",
        "SANDBOX_QUEUE_TIMEOUT_SECONDS",
        "how long a call of a session waits, all its waits together",
    ),
    Setting(
        "SANDBOX_SESSIONS_DEFAULT_EXEC_TIMEOUT_MS",
        "SANDBOX_DEFAULT_EXEC_TIMEOUT_MS",
        "limit of `/exec` that names none",
    ),
    Setting("SANDBOX_SESSIONS_EXEC_TIMEOUT_CAP_MS", "SANDBOX_EXEC_TIMEOUT_CAP_MS", "ceiling of `timeout_ms`"),
    Setting(
        "SANDBOX_SESSIONS_MAX_OUTPUT_BYTES",
        "SANDBOX_MAX_OUTPUT_BYTES, else 32k",
        "each stream in an answer of `/exec`, head and tail",
    ),
    Setting("SANDBOX_SESSIONS_MAX_CODE_BYTES", "SANDBOX_MAX_CODE_BYTES", "code of `/exec`"),
    Setting("SANDBOX_SESSIONS_MAX_UPLOAD_BYTES", "SANDBOX_MAX_UPLOAD_BYTES, else 40m", "a file sent to `/files`"),
    Setting("SANDBOX_SESSIONS_MAX_BODY_BYTES", "SANDBOX_MAX_BODY_BYTES", "a body of the sessions surface"),
    Setting("SANDBOX_MAX_STORAGE_BODY_BYTES", "300m", "a body of `/storage/put`"),
    Setting(
        "SANDBOX_SESSIONS_MAX_ARTIFACT_BYTES", "SANDBOX_MAX_ARTIFACT_BYTES, else 20m", "a file in an answer of `/exec`"
    ),
    Setting("SANDBOX_MAX_FILES_PER_EXEC", "20", "files in an answer of `/exec`"),
    Setting("SANDBOX_MAX_TOTAL_ARTIFACT_BYTES", "50m", "all files in an answer of `/exec` together"),
    Setting("SANDBOX_MAX_COLLECT_SECONDS", "none", "no effect: files are in the store before a run has its result"),
    Setting("SANDBOX_COLLECT_FILE_TIMEOUT_S", "none", "no effect: files are in the store before a run has its result"),
    Setting("SANDBOX_WORKSPACE_TMPFS_SIZE", "none", "other name of `SANDBOX_WORKSPACE_SIZE`, which goes before it"),
    Setting("SANDBOX_DOCKER_CALL_TIMEOUT_S", "none", "other name of `SANDBOX_DOCKER_TIMEOUT`, which goes before it"),
    Setting("SANDBOX_PULL_ON_START", "none", "no effect: whether the image is there is looked at in any case"),
    Setting("SANDBOX_READ_ONLY_ROOTFS", "none", "no effect: the root of a sandbox is always read-only"),
    Setting("SANDBOX_DISK_SIZE", "none", "no effect: files of a sandbox lie in memory"),
    Setting("SANDBOX_SECCOMP_PROFILE", "none", "no effect: sandboxes have the profile of this release"),
    Setting("FOLIOBOX_CACHE_DIR", "/var/cache/foliobox or the user's cache folder", "root file systems, downloads"),
    Setting("FOLIOBOX_DEBIAN_MIRROR", "the build tool's own", "Debian mirror for building the root file system"),
)
SECRET = frozenset(("SANDBOX_API_KEY", "SANDBOX_LINK_SECRET"))
