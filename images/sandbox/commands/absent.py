"""What is left out of the image for its licence, and what to use instead: stubs that answer with one clear line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

NOT_FOUND = 127


@dataclass(frozen=True)
class Absent:
    """One program or module: why it is not here and what does its work."""

    reason: str
    instead: str

    def line(self, name: str) -> str:
        """The one line that whoever asks for it gets."""
        return f"{name} is not in this sandbox ({self.reason}); use {self.instead}"


GHOSTSCRIPT = "Ghostscript is under the AGPL"
MUPDF = "MuPDF is under the AGPL"
TO_PICTURES = "pdftoppm or pdftocairo to turn PDF into pictures, qpdf to join, split and compress PDF"
FROM_POSTSCRIPT = "another source than PostScript: PostScript cannot be read here"

COMMANDS = {
    "gs": Absent(GHOSTSCRIPT, TO_PICTURES),
    "ghostscript": Absent(GHOSTSCRIPT, TO_PICTURES),
    "ps2pdf": Absent(GHOSTSCRIPT, FROM_POSTSCRIPT),
    "eps2eps": Absent(GHOSTSCRIPT, FROM_POSTSCRIPT),
    "pdf2ps": Absent(GHOSTSCRIPT, "pdftops"),
    "mutool": Absent(MUPDF, "qpdf, pdftoppm, pdftotext, pdfimages"),
    "pdf2docx": Absent("it needs PyMuPDF, which is under the AGPL", "pdfplumber and python-docx"),
}
MODULES = {
    "pymupdf": Absent("AGPL", "pypdfium2 to draw pages, pdfplumber for text and tables, pikepdf and pypdf to edit"),
    "fitz": Absent("AGPL", "pypdfium2 to draw pages, pdfplumber for text and tables, pikepdf and pypdf to edit"),
    "pdf2docx": Absent("it needs PyMuPDF, which is under the AGPL", "pdfplumber and python-docx"),
}


def place(binaries: Path, modules: Path) -> None:
    """Write the stubs of commands and modules; what a package brought stays as it is."""
    for name, absent in COMMANDS.items():
        path = binaries / name
        if not path.exists():
            path.write_text(f"#!/bin/sh\necho '{absent.line(name)}' >&2\nexit {NOT_FOUND}\n", encoding="utf-8")
            path.chmod(0o755)
    for name, absent in MODULES.items():
        text = absent.line(name)
        path = modules / f"{name}.py"
        if not path.exists() and not (modules / name).exists():
            body = f'"""{name} is left out of this image."""\nraise ModuleNotFoundError({text!r}, name={name!r})\n'
            path.write_text(body, encoding="utf-8")


if __name__ == "__main__":
    place(Path(sys.argv[1]), Path(sys.argv[2]))
