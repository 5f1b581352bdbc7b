"""A small, complete chat gateway on Foliobox's ``/v1``: what it stores, what it sends, what it does when that fails.

The model is not part of it: whoever drives ``Gateway`` calls ``python`` where a model would call its tool, and shows
it the text that comes back. All else that a gateway needs of a runner is here, in the order in which a chat needs it:

    gateway = Gateway(Foliobox("http://127.0.0.1:8000", key))
    gateway.start()                                        # what this deployment can do
    branch = gateway.open("chat-7")                        # a conversation id that the gateway chooses
    gateway.attach(branch, "sales.xlsx", content)          # an original, unconverted
    gateway.ask(branch, "Plot the sales")                  # a turn begins; the model gets gateway.tools
    print(gateway.call(branch, "call_1", "python_execute", {"code": "…"}))  # and calls one
    print(gateway.link(branch, "plot.png"))                # an artifact by its file name
    other = gateway.edit(branch, 0, "Plot the costs")      # the user edits the first message: a fork
    gateway.delete("chat-7")                               # with every branch

``FOLIOBOX_URL=… FOLIOBOX_KEY=… python -m examples.gateway`` plays a short chat.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from examples.client import WHOLE, Foliobox, Problem, Say, silent

RUN_LIMIT_MS: Final = 120_000
SKILL: Final = """\
PDF: HTML and CSS with WeasyPrint, A4. Slides: python-pptx. Word: python-docx. Workbooks: openpyxl.
Read originals in uploads/, save what the user gets in outputs/, and open it again to check it before you answer.
"""


@dataclass(frozen=True)
class Artifact:
    """A file that a run made: where its bytes are for as long as the version is kept."""

    conversation: str
    path: str
    version: int | None  # none: as it is now
    sha256: str
    media_type: str

    @property
    def name(self) -> str:
        """What the chat shows."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True)
class Turn:
    """A message of the user, and what it found: to this an edit of the message goes back."""

    message: str
    version: int
    originals: dict[str, bytes]
    artifacts: list[Artifact]


@dataclass
class Branch:
    """One line of a chat: its conversation in the runner, and what a gateway keeps in its database about it.

    ``originals`` are files of the chat by their path in the workspace, as the user or a model gave them: uploads,
    pictures made earlier, documents of the canvas. ``artifacts`` are what runs made, the newest last.
    """

    chat: str
    conversation: str
    version: int = 0
    turns: list[Turn] = field(default_factory=list)
    originals: dict[str, bytes] = field(default_factory=dict)
    artifacts: list[Artifact] = field(default_factory=list)


class Gateway:
    """What a chat does, in calls of ``/v1``."""

    def __init__(self, box: Foliobox, *, skill_inline: bool = True) -> None:
        self.box, self.skill_inline = box, skill_inline
        self.network, self.tools = False, list[dict[str, Any]]()

    def start(self) -> dict[str, Any]:
        """The probe of a gateway's own start: what may be offered. Left-overs of stateless calls go, too."""
        health: dict[str, Any] = self.box.look("/healthz").json()  # the same shape with 503
        self.network = health.get("egress") is not False  # absent: not known yet, so it is offered
        self.tools = self.box.call("GET", "/v1/tools", params={"format": "openai"}).json()["tools"]
        for left in self._labelled("purpose=once"):
            self.box.call("DELETE", f"/v1/conversations/{left}")
        return health

    def open(self, chat: str) -> Branch:
        """The first branch of a chat. The id is ours, so there is nothing to be lost: the call finds or makes it."""
        branch = Branch(chat, f"{chat}.{secrets.token_hex(4)}")
        self._find(branch)
        return branch

    def attach(self, branch: Branch, name: str, content: bytes, folder: str = "uploads") -> str:
        """An original as it came, not converted; gives its path, which is told to the model."""
        safe = PurePosixPath(name.replace("\\", "/").replace("\0", "")).name or "file"
        path, number = PurePosixPath(folder, safe), 2
        while str(path) in branch.originals:
            path, number = PurePosixPath(folder, f"{PurePosixPath(safe).stem}-{number}{path.suffix}"), number + 1
        branch.originals[str(path)] = content
        return str(path)

    def generated(self, branch: Branch, name: str, picture: bytes) -> str:
        """A picture that an image model made earlier in this chat."""
        return self.attach(branch, f"generated-{name}", picture)

    def document(self, branch: Branch, title: str, text: str) -> str:
        """The newest version of a document of the canvas; a run that changes its file gives the next one."""
        path = f"uploads/documents/{title.replace('/', '-')}.md"
        branch.originals[path] = text.encode()
        return path

    def ask(self, branch: Branch, message: str) -> None:
        """A turn begins, with what was attached to its message."""
        self._find(branch)
        branch.turns.append(Turn(message, branch.version, dict(branch.originals), list(branch.artifacts)))

    def prompt(self, branch: Branch) -> str:
        """What the model is told beside its tools: what is there, and no more than there is."""
        files = "\n".join(sorted(branch.originals)) or "none"
        skill = SKILL if self.skill_inline else "Read skills/documents.md before you make a document.\n"
        network = "" if self.network else "There is no network: do not install packages.\n"
        return f"Variables and files stay between calls.\nFiles:\n{files}\n{network}{skill}"

    def call(self, branch: Branch, call_id: str, tool: str, arguments: Mapping[str, Any], say: Say = silent) -> str:
        """A tool call of the model: the text that it gets, also of what it did wrong."""
        if tool == "python_execute":
            return self.python(branch, call_id, str(arguments.get("code", "")), say)
        self._stage(branch)
        place = f"/v1/conversations/{branch.conversation}/tools/{quote(tool, safe='')}"
        try:
            body = self.box.call("POST", place, json=dict(arguments), timeout=WHOLE, repeat=False).json()
        except Problem as problem:
            if problem.status in (401, 403) or problem.status >= 500:
                raise
            return json.dumps({"error": problem.detail}, ensure_ascii=False)
        self._keep(branch, body)
        return json.dumps(body, ensure_ascii=False)

    def python(self, branch: Branch, call_id: str, code: str, say: Say = silent) -> str:
        """A cell, streamed to the user by ``say``. ``call_id`` is the model's: a repeat runs nothing twice."""
        self._stage(branch)
        body = {"code": code, "timeout_ms": RUN_LIMIT_MS}
        result = self.box.run(branch.conversation, body, f"{len(branch.turns)}:{call_id}", say)
        return told(result, self._keep(branch, result))

    def cancel(self, branch: Branch) -> bool:
        """The user pressed stop: the run ends, variables stay."""
        return bool(self.box.call("POST", f"/v1/conversations/{branch.conversation}/interrupt").json()["interrupted"])

    def artifact(self, branch: Branch, name: str) -> Artifact:
        """The newest file of that name or path in this branch. Raises KeyError."""
        for one in reversed(branch.artifacts):
            if name in (one.name, one.path):
                return one
        raise KeyError(name)

    def link(self, branch: Branch, name: str) -> str:
        """An address for the user's browser that needs no key and lives a quarter of an hour."""
        one = self.artifact(branch, name)
        body = {"path": one.path} | ({} if one.version is None else {"version": one.version})
        return str(self.box.call("POST", f"/v1/conversations/{one.conversation}/links", json=body).json()["url"])

    def download(self, branch: Branch, name: str) -> bytes:
        """The bytes of an artifact, checked: for what the gateway wants to keep longer than the runner does."""
        one = self.artifact(branch, name)
        query = {} if one.version is None else {"version": one.version}
        answer = self.box.call("GET", _file(one.conversation, one.path), params=query)
        if hashlib.sha256(answer.content).hexdigest() != one.sha256:
            raise ValueError(f"{one.path} came damaged")
        return answer.content

    def edit(self, branch: Branch, turn: int, message: str) -> Branch:
        """The user edits a message: a branch with the files as they were before it. No bytes are copied."""
        then = branch.turns[turn]
        made = Branch(branch.chat, f"{branch.chat}.{secrets.token_hex(4)}", turns=branch.turns[:turn])
        made.originals, made.artifacts = dict(then.originals), list(then.artifacts)
        body = {"id": made.conversation, "version": then.version}
        try:
            self.box.call("POST", f"/v1/conversations/{branch.conversation}/fork", json=body)
        except Problem as problem:
            if problem.status != 409:  # our id is new: it was made, and the answer to it lost
                raise
        self.ask(made, message)
        return made

    def delete(self, chat: str) -> None:
        """All branches of a chat, also those that this process does not know. May be repeated until it succeeds."""
        for conversation in self._labelled(f"chat={chat}"):
            self.box.call("DELETE", f"/v1/conversations/{conversation}")

    def once(self, code: str, files: Mapping[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
        """A call without a chat: files in, result and files out, nothing left. Gives the result and its outputs."""
        branch = Branch("", f"once.{secrets.token_hex(8)}")
        self._find(branch, purpose="once")
        try:
            for name, content in files.items():
                self.attach(branch, name, content)
            self._stage(branch)
            result = self.box.run(branch.conversation, {"code": code}, "once", silent)
            self._keep(branch, result)
            return result, {one.name: self.download(branch, one.path) for one in branch.artifacts}
        finally:
            self.box.call("DELETE", f"/v1/conversations/{branch.conversation}")

    def _find(self, branch: Branch, **labels: str) -> None:
        """Find or make the conversation; a fork has no labels of its own."""
        body = {"labels": labels or {"chat": branch.chat}}
        branch.version = self.box.call("PUT", f"/v1/conversations/{branch.conversation}", json=body).json()["version"]

    def _labelled(self, label: str) -> list[str]:
        found: list[str] = []
        query = {"label": label}
        while True:
            page = self.box.call("GET", "/v1/conversations", params=query).json()
            found += [one["id"] for one in page["conversations"]]
            if page["next"] is None:
                return found
            query["after"] = page["next"]

    def _stage(self, branch: Branch) -> None:
        """Make ``uploads/`` what the chat has: send what is new, by its hash where the runner has the bytes."""
        wanted = dict(branch.originals)
        if not self.skill_inline:
            wanted["skills/documents.md"] = SKILL.encode()
        there = self._there(branch.conversation, "uploads/") | self._there(branch.conversation, "skills/")
        for path in there.keys() - wanted.keys():
            self.box.call("DELETE", _file(branch.conversation, path))
        for path, content in wanted.items():
            if there.get(path) != (sha256 := hashlib.sha256(content).hexdigest()):
                self._put(_file(branch.conversation, path), content, sha256)

    def _there(self, conversation: str, prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        query = {"prefix": prefix}
        while True:
            page = self.box.call("GET", f"/v1/conversations/{conversation}/files", params=query).json()
            found |= {one["path"]: one.get("sha256", "") for one in page["files"]}
            if page["next"] is None:
                return found
            query["after"] = page["next"]

    def _put(self, address: str, content: bytes, sha256: str) -> None:
        try:
            self.box.call("PUT", address, params={"sha256": sha256})
        except Problem as problem:
            if problem.code != "unknown_blob":
                raise
            self.box.call("PUT", address, content=content)

    def _keep(self, branch: Branch, result: Mapping[str, Any]) -> list[Artifact]:
        """Note what a run made, and take over what it changed of the canvas."""
        made, version = [], result.get("version")
        branch.version = version or branch.version
        for one in result["files"]:
            if one["change"] == "deleted":
                continue
            if one["path"] in branch.originals:
                content = self.box.call("GET", _file(branch.conversation, one["path"])).content
                branch.originals[one["path"]] = content
            elif one["kind"] == "deliverable":
                made.append(Artifact(branch.conversation, one["path"], version, one["sha256"], one["media_type"]))
        branch.artifacts += made
        return made


def told(result: Mapping[str, Any], made: list[Artifact]) -> str:
    """A result in the words that a model can act on: how it ended, what it said, what it made, what was lost."""
    parts = [] if result["outcome"] == "ok" else [f"The run ended with: {result['outcome']}"]
    parts += [f"{stream}:\n{result[stream]}" for stream in ("stdout", "stderr") if result[stream]]
    parts += [data for one in result["results"] if not (data := one["data"].get("text/plain", "")).startswith("/v1/")]
    if result["error"]:
        parts.append(result["error"]["traceback"] or result["error"]["message"])
    if result["interpreter"] == "lost" or (result["interpreter"] == "new" and result["interpreter_reason"]):
        parts.append("All variables are gone; files are still there.")
    if result["files_error"]:
        parts.append(f"Nothing that the run wrote was kept: {result['files_error']['detail']}")
    if made:
        parts.append("Files:\n" + "\n".join(f"- {one.name} ({one.media_type}, {one.path})" for one in made))
    return "\n".join(parts) or "(no output)"


def _file(conversation: str, path: str) -> str:
    return f"/v1/conversations/{conversation}/files/{quote(path)}"


def main() -> None:
    """A short chat, told on standard output."""
    gateway = Gateway(Foliobox(os.environ["FOLIOBOX_URL"], os.environ["FOLIOBOX_KEY"]))
    health, chat = gateway.start(), f"demo-{secrets.token_hex(4)}"
    branch = gateway.open(chat)
    gateway.attach(branch, "sales.csv", b"month,sum\n1,20\n2,22\n")
    gateway.ask(branch, "Plot the sales")
    code = "import pandas as pd\nt = pd.read_csv('uploads/sales.csv')\nt.plot('month').figure.savefig('outputs/s.png')"
    lines = [f"{health['backend']}, network: {gateway.network}", gateway.prompt(branch)]
    lines += [gateway.python(branch, "call_1", code), gateway.python(branch, "call_2", "print(t['sum'].sum())")]
    lines.append(f"{len(gateway.download(branch, 's.png'))} bytes at {gateway.link(branch, 's.png')}")
    sys.stdout.write("\n".join(lines) + "\n")
    gateway.delete(chat)


if __name__ == "__main__":
    main()
