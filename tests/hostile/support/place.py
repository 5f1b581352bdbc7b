"""A conversation under attack together with the processes of its sandbox as the host sees them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.hostile.support import outside
from tests.support import sandboxes
from tests.support.runner import Chat, Runner, quote


@dataclass
class Place:
    """One conversation of one service, strong or weakened."""

    runner: Runner
    chat: Chat
    token: str = field(default_factory=lambda: secrets.token_hex(8))

    def run(self, code: str, **fields: Any) -> dict[str, Any]:
        """Execute; every outcome is allowed."""
        return self.chat.run(code, **fields)

    def say(self, code: str, **fields: Any) -> str:
        """Execute a cell that must be ``ok``; gives what it printed."""
        text: str = self.chat.ok(code, **fields)["stdout"]
        return text

    def raw(self, method: str, path: str) -> httpx.Response:
        """A request for a file, its path sent as it stands."""
        target = f"/v1/conversations/{self.chat.id}/files/{path}"
        url = httpx.URL(self.runner.url).copy_with(raw_path=target.encode())
        return self.chat.http.request(method, url, content=b"x" if method == "PUT" else None)

    def http_delete(self, path: str) -> int:
        """Status of the deletion of a file."""
        return self.raw("DELETE", quote(path)).status_code

    def listing(self) -> list[dict[str, Any]]:
        """All files as listed."""
        found: list[dict[str, Any]] = self.chat.http.get(f"/v1/conversations/{self.chat.id}/files").json()["files"]
        return found

    def processes(self) -> list[int]:
        """Host pids of everything in the sandbox, bwrap's outer process not among them; PID 1 comes first.

        The sandbox is told from others by a file in its own /tmp.
        """
        self.say(f"open('/tmp/{self.token}', 'w').close()")
        found = [pid for pid in sandboxes.processes(self.runner) if self._is_here(pid)]
        return sorted(found, key=outside.inner_pid)

    def _is_here(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/root/tmp/{self.token}"):
                return outside.namespace(pid, "mnt") != outside.namespace("self", "mnt")
        except OSError:
            return False

    @property
    def agent(self) -> int:
        """Host pid of the agent."""
        return next(pid for pid in self.processes() if "foliobox_agent.server" in command_line(pid))

    @property
    def template(self) -> int:
        """Host pid of the template: the one Python the agent started itself."""
        found = [pid for pid in self.processes() if "foliobox_agent.template" in command_line(pid)]
        return found[0]

    @property
    def interpreter(self) -> int:
        """Host pid of the interpreter that runs this conversation's cells."""
        inner = int(self.say("import os; print(os.getpid())"))
        return next(pid for pid in self.processes() if outside.inner_pid(pid) == inner)


def command_line(pid: int) -> str:
    """Arguments of a process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
