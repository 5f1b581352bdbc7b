"""Settings of the workspace layer: where the store lies and how much a conversation may keep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner import environment

DATA_DIR: Final = "SANDBOX_DATA_DIR"
WORKSPACE_SIZE: Final = "SANDBOX_WORKSPACE_SIZE"
WORKSPACE_ALIAS: Final = "SANDBOX_WORKSPACE_TMPFS_SIZE"
WORKSPACE_FILES: Final = "SANDBOX_WORKSPACE_FILES"
MIB: Final = 1 << 20
MAX_DAYS: Final = 36_500


@dataclass(frozen=True, slots=True)
class WorkspaceConfig:
    """Sizes in bytes. ``max_files`` counts files, links and empty folders together.

    ``max_upload_bytes`` defaults to what ``/v1`` takes; the sessions surface keeps its contract's own default.
    ``keep_versions`` must exceed the versions whose blobs a conversation may name again (see ``reuse``) by some.
    ``collect_interval_s`` 0 means that nothing is ever removed.
    """

    data_dir: Path
    max_upload_bytes: int = 256 * MIB
    workspace_bytes: int = 512 * MIB
    max_files: int = 20_000
    keep_versions: int = 100
    keep_days: int = 30
    keep_executions_days: int = 7
    collect_interval_s: float = 3600

    @classmethod
    def from_env(cls, env: environment.Env, *, uid: int | None = None) -> WorkspaceConfig:
        """Read from an environment; ``uid`` (default: this process's) decides where data lies by default.

        Raises ``ConfigurationError`` naming the variable, its value and the accepted form.
        """
        return cls(
            data_dir=environment.data_folder(env, uid),
            max_upload_bytes=environment.size(env, "SANDBOX_MAX_UPLOAD_BYTES", 256 * MIB),
            workspace_bytes=environment.size(env, WORKSPACE_SIZE, environment.size(env, WORKSPACE_ALIAS, 512 * MIB)),
            max_files=environment.integer(env, WORKSPACE_FILES, 20_000, minimum=1),
            keep_versions=environment.integer(env, "SANDBOX_KEEP_VERSIONS", 100, minimum=100),
            keep_days=environment.integer(env, "SANDBOX_KEEP_DAYS", 30, minimum=1, maximum=MAX_DAYS),
            keep_executions_days=environment.integer(
                env, "SANDBOX_KEEP_EXECUTIONS_DAYS", 7, minimum=1, maximum=MAX_DAYS
            ),
            collect_interval_s=environment.number(env, "SANDBOX_COLLECT_INTERVAL_SECONDS", 3600),
        )
