"""The error tree: stable codes, who is to blame, and what the caller should change.

    FolioboxError
    ├── CallerError                the request is wrong; sending it again unchanged fails again
    │   ├── InvalidRequest         invalid_arguments
    │   ├── InvalidPath            invalid_path
    │   ├── NotFound               not_found
    │   │   ├── UnknownBlob        unknown_blob
    │   │   └── UnknownTool        unknown_tool
    │   ├── Conflict               conflict
    │   │   ├── OwnedElsewhere     owned_elsewhere
    │   │   ├── ArchiveSuperseded  archive_superseded
    │   │   └── ToolUnavailable    tool_unavailable
    │   ├── KeyReused              idempotency_key_reused
    │   ├── PreconditionFailed     precondition_failed
    │   ├── TooLarge               too_large
    │   ├── UrlRefused             url_refused
    │   ├── UnsupportedFormat      unsupported_format
    │   ├── Corrupt                corrupt
    │   ├── UnsupportedMedia       unsupported_media_type
    │   ├── RangeNotSatisfiable    range_not_satisfiable
    │   ├── BadArchive             bad_archive
    │   ├── StorageRejected        storage_rejected
    │   │   └── StorageHostRefused storage_host_refused
    │   ├── EgressUnavailable      egress_unavailable
    │   ├── Unauthorized           unauthorized
    │   └── Forbidden              forbidden
    ├── LimitReached               the request is fine; a limit of this deployment stands in the way
    │   ├── Busy                   busy
    │   ├── QueueFull              queue_full
    │   ├── RateLimited            rate_limited
    │   ├── CapacityReached        capacity_reached
    │   ├── EventsDropped          events_dropped
    │   └── QuotaExceeded          quota_exceeded
    └── ServiceError               neither the request nor a limit: something here broke
        ├── BackendUnavailable     backend_unavailable
        ├── EgressLost             egress_lost
        ├── SessionFault           session_fault (SessionMisuse: by what the caller sent)
        ├── HostPressure           host_pressure
        ├── SandboxLost            sandbox_lost
        ├── ProtocolError          agent_protocol
        ├── Stopping               stopping
        ├── FetchFailed            fetch_failed
        │   └── FetchTimeout       fetch_timeout
        ├── ToolFailed             tool_failed
        ├── StoreFailed            store_failed
        │   └── StoreFull          store_full
        ├── StorageFailed          storage_failed
        └── ConfigurationError     configuration

Nothing here knows HTTP: ``runner/api/errors.py`` maps each class to a status. ``detail`` is sent to
the caller and says what to change; ``cause`` is logged and says what happened.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Blame = Literal["caller", "limit", "service"]


class FolioboxError(Exception):
    """Root of all errors raised on purpose. ``fields`` holds machine-readable extras (limit, allowed …)."""

    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something went wrong here"
    blame: ClassVar[Blame] = "service"

    def __init__(self, detail: str, *, cause: str | None = None, **fields: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.cause = cause
        self.fields = fields


class CallerError(FolioboxError):
    """The request cannot be served as it is."""

    code = "invalid_arguments"
    title = "The request cannot be served as it is"
    blame = "caller"


class InvalidRequest(CallerError):
    """A field is missing, has the wrong type or an impossible value."""

    title = "Invalid arguments"


class InvalidPath(CallerError):
    """A workspace path that is absolute elsewhere, climbs out, or is too long."""

    code = "invalid_path"
    title = "Invalid workspace path"


class NotFound(CallerError):
    """No such conversation, file, version or execution, or it belongs to somebody else."""

    code = "not_found"
    title = "Not found"


class UnknownBlob(NotFound):
    """No version of this conversation that is kept holds bytes with this SHA-256."""

    code = "unknown_blob"
    title = "Unknown content"


class UnknownTool(NotFound):
    """No tool has this name."""

    code = "unknown_tool"
    title = "Unknown tool"


class Conflict(CallerError):
    """The state of the conversation does not allow this."""

    code = "conflict"
    title = "Conflict"


class OwnedElsewhere(Conflict):
    """Another runner owns this conversation's live sandbox."""

    code = "owned_elsewhere"
    title = "Another runner serves this conversation"


class ToolUnavailable(Conflict):
    """A tool that this deployment does not serve."""

    code = "tool_unavailable"
    title = "This deployment does not serve the tool"


class ArchiveSuperseded(Conflict):
    """Another archive is there than the one that was to be replaced: it is newer, and stays."""

    code = "archive_superseded"
    title = "A newer archive is there"


class KeyReused(CallerError):
    """An ``Idempotency-Key`` came again with another request."""

    code = "idempotency_key_reused"
    title = "Idempotency-Key used before for another request"


class PreconditionFailed(CallerError):
    """``If-Match`` or ``If-None-Match`` did not hold."""

    code = "precondition_failed"
    title = "Precondition failed"


class TooLarge(CallerError):
    """More bytes than the stated limit."""

    code = "too_large"
    title = "Too large"


class UrlRefused(CallerError):
    """An address that the service does not fetch from."""

    code = "url_refused"
    title = "The address is not fetched from"


class UnsupportedFormat(CallerError):
    """A file of another kind than the call is for."""

    code = "unsupported_format"
    title = "The file is of another kind"


class Corrupt(CallerError):
    """A file that cannot be opened although its kind is right."""

    code = "corrupt"
    title = "The file is damaged"


class UnsupportedMedia(CallerError):
    """A body of a kind that this call does not take."""

    code = "unsupported_media_type"
    title = "Unsupported media type"


class RangeNotSatisfiable(CallerError):
    """The requested byte range lies outside the file."""

    code = "range_not_satisfiable"
    title = "Range not satisfiable"


class BadArchive(CallerError):
    """An archive that is damaged, of another kind than said, or holds what a workspace cannot."""

    code = "bad_archive"
    title = "The archive cannot be taken"


class EgressUnavailable(CallerError):
    """A sandbox with network was asked for, and this deployment gives none."""

    code = "egress_unavailable"
    title = "Sandboxes have no network here"


class StorageRejected(CallerError):
    """Object storage that a request names cannot be used as it is named there. The text is the sessions contract's."""

    code = "storage_rejected"
    title = "The storage cannot be used"


class StorageHostRefused(StorageRejected):
    """The operator has not listed the host of the storage."""

    code = "storage_host_refused"
    title = "The storage's host is not allowed"


class Unauthorized(CallerError):
    """No key, or a wrong one."""

    code = "unauthorized"
    title = "Unauthorized"


class Forbidden(CallerError):
    """The key is known and may not do this."""

    code = "forbidden"
    title = "The key does not allow this"


class LimitReached(FolioboxError):
    """A limit of this deployment stands in the way; later, or with less, it may work."""

    code = "limit_reached"
    title = "Limit reached"
    blame = "limit"


class Busy(LimitReached):
    """The conversation is running something else and the bounded wait is over."""

    code = "busy"
    title = "The conversation is busy"


class QueueFull(LimitReached):
    """As many requests wait as may wait."""

    code = "queue_full"
    title = "Too many requests wait"


class RateLimited(LimitReached):
    """The key has sent as many requests as it may for now."""

    code = "rate_limited"
    title = "Too many requests"


class CapacityReached(LimitReached):
    """All sandboxes that this host may run are busy."""

    code = "capacity_reached"
    title = "All sandboxes are busy"


class EventsDropped(LimitReached):
    """A listener asked for events of a run that are not kept any more."""

    code = "events_dropped"
    title = "Events are gone"


class QuotaExceeded(LimitReached):
    """The workspace is full, or holds too many files."""

    code = "quota_exceeded"
    title = "Workspace quota exceeded"


class ServiceError(FolioboxError):
    """Something on this side broke; the request may be sent again."""


class SessionFault(ServiceError):
    """A call of the sessions protocol that could not be done; its text begins as the protocol says."""

    code = "session_fault"
    title = "The call could not be done"


class SessionMisuse(SessionFault):
    """The same for what the caller asked for: nothing on this side broke, whatever status the protocol has for it."""

    blame = "caller"


class BackendUnavailable(ServiceError):
    """No sandbox can be started at all."""

    code = "backend_unavailable"
    title = "No sandbox can be started"


class EgressLost(ServiceError):
    """A sandbox with network was asked for, and the way out that this deployment has is down."""

    code = "egress_lost"
    title = "The network of sandboxes is down"


class HostPressure(ServiceError):
    """The host runs short of memory, disk space or processes; what runs goes on, nothing new is started."""

    code = "host_pressure"
    title = "The host is short of resources"


class SandboxLost(ServiceError):
    """The sandbox died; the conversation and its stored files did not."""

    code = "sandbox_lost"
    title = "The sandbox was lost"


class ProtocolError(ServiceError):
    """The agent's side of the stream broke the protocol; its sandbox is dropped."""

    code = "agent_protocol"
    title = "The sandbox's agent broke the protocol"


class Stopping(ServiceError):
    """The service is being stopped and takes no new work."""

    code = "stopping"
    title = "The service is stopping"


class FetchFailed(ServiceError):
    """The server that a file was to come from did not give it."""

    code = "fetch_failed"
    title = "The file could not be fetched"


class FetchTimeout(FetchFailed):
    """A fetch took longer than it may."""

    code = "fetch_timeout"
    title = "The fetch took too long"


class ToolFailed(ServiceError):
    """A step of a tool inside its sandbox did not end as it should."""

    code = "tool_failed"
    title = "The tool failed"


class StoreFailed(ServiceError):
    """The store could not keep or give back bytes."""

    code = "store_failed"
    title = "The store failed"


class StoreFull(StoreFailed):
    """The disk that holds the store is full, or nearly so."""

    code = "store_full"
    title = "The store is full"


class StorageFailed(ServiceError):
    """Object storage that a request names did not do what it was asked."""

    code = "storage_failed"
    title = "The object storage failed"


class ConfigurationError(ServiceError):
    """A setting that cannot work; raised at start."""

    code = "configuration"
    title = "Configuration error"
