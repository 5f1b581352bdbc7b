"""The host's requests about files: write, remove, fetch."""

from __future__ import annotations

import contextlib
import os

from .link import Link
from .marks import Mark
from .protocol import ABORT, DATA, Frame, Json
from .tree import Tree


class _Upload:
    """A file coming in on a channel."""

    def __init__(self, body: Json, fd: int, part: str) -> None:
        self.body, self.fd, self.part = body, fd, part
        self.error: OSError | None = None


class Files:
    """Does to the tree what the host asks; large files come and go on channels of their own."""

    def __init__(self, tree: Tree, link: Link, mark: Mark) -> None:
        self._tree, self._link, self._mark = tree, link, mark
        self._uploads: dict[int, _Upload] = {}
        link.on_frame = self._on_frame
        link.requests |= {
            "put": self._put,
            "upload": self._upload,
            "remove": self._remove,
            "clear": self._clear,
            "get": self._get,
            "get_many": self._get_many,
        }

    def forget_uploads(self) -> None:
        """The host that sent them is gone."""
        for channel in list(self._uploads):
            self._drop(channel)

    def _put(self, body: Json, attachments: list[bytes]) -> Json:
        """Many small files, links and empty folders in one message."""
        self._mark.touch()
        contents = iter(attachments)
        for item in body["files"]:
            if "link" in item:
                self._tree.link(item["path"], item["link"])
            elif item.get("folder"):
                self._tree.folder(item["path"])
            else:
                fd, part = self._tree.begin()
                try:
                    _write_all(fd, next(contents))
                    self._tree.place(part, item["path"], item["mode"], item["modified_ns"])
                except BaseException:
                    self._tree.discard(part)
                    raise
                finally:
                    os.close(fd)
        return {}

    def _upload(self, body: Json, _: list[bytes]) -> None:
        """One large file; its bytes follow on a channel, the reply comes after their end."""
        self._mark.touch()
        fd, part = self._tree.begin()
        self._uploads[body["channel"]] = _Upload(body, fd, part)

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == DATA:
            self._on_data(frame)
        elif frame.kind == ABORT:
            self._drop(frame.channel)
        else:
            self._on_end(frame.channel)

    def _on_data(self, frame: Frame) -> None:
        upload = self._uploads.get(frame.channel)
        self._link.outbox.grant(frame.channel, len(frame.payload))
        if upload is not None and upload.error is None:
            try:
                _write_all(upload.fd, frame.payload)
            except OSError as error:
                upload.error = error

    def _on_end(self, channel: int) -> None:
        upload = self._uploads.pop(channel, None)
        if upload is None:
            return
        os.close(upload.fd)
        body = upload.body
        reply: Json = {"ok": True}
        try:
            if upload.error is not None:
                raise upload.error
            self._tree.place(upload.part, body["path"], body["mode"], body["modified_ns"])
        except OSError as error:
            self._tree.discard(upload.part)
            detail = error.strerror or str(error)
            reply = {"ok": False, "code": "os_error", "errno": error.errno, "detail": detail}
        self._link.say({"op": "reply", "id": body["id"], **reply})

    def _drop(self, channel: int) -> None:
        """Forget a half-sent file."""
        upload = self._uploads.pop(channel, None)
        if upload is not None:
            with contextlib.suppress(OSError):
                os.close(upload.fd)
            self._tree.discard(upload.part)

    def _remove(self, body: Json, _: list[bytes]) -> Json:
        self._mark.touch()
        for path in body["paths"]:
            self._tree.remove(path)
        return {}

    def _clear(self, _: Json, __: list[bytes]) -> Json:
        self._mark.touch()
        self._tree.clear()
        return {}

    def _get(self, body: Json, _: list[bytes]) -> Json:
        """Send a file on a channel, at most ``limit`` bytes of it."""
        size, reader = self._tree.reader(body["path"], body["limit"])
        self._link.outbox.stream(body["channel"], reader)
        return {"size": size}

    def _get_many(self, body: Json, _: list[bytes]) -> Json:
        """Send small files in one message on a channel; ``sizes`` are what the host knows of them.

        One more byte is read of each, so that the host sees when a file has grown.
        """
        contents = tuple(
            self._tree.content(path, size + 1) for path, size in zip(body["paths"], body["sizes"], strict=True)
        )
        self._link.outbox.message(body["channel"], {}, contents)
        return {}


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
