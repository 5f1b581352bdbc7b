"""What the host noted for whichever host comes next: opaque here, replaced as a whole, told at the welcome."""

from __future__ import annotations

from typing import Any

from .protocol import Json


class Mark:
    """The last note, and whether the host has changed files since. What runs change is told by their reports."""

    def __init__(self) -> None:
        self.value: Any = None
        self.touched = False

    def take(self, body: Json) -> None:
        """Keep the note that came along with a request, if one did."""
        if "mark" in body:
            self.value, self.touched = body["mark"], False

    def touch(self) -> None:
        """Files are about to be changed for the host."""
        self.touched = True

    def told(self) -> Json:
        """For the welcome."""
        return {"mark": self.value, "touched": self.touched}
