"""Names of fetched files, and the spellings by which a model may name a file."""

from __future__ import annotations

import pytest

from runner.model import FileEntry
from runner.tools import naming, references
from runner.tools.references import Index, attachments, slug


@pytest.mark.parametrize(("name", "stem"), [
    ("photo.jpg", "photo"), ("archive.tar.gz", "archive-tar"), (".hidden", "hidden"), ("a/b/c.png", "c"),
    ("a\\b\\c.png", "c"), ("", "x"), ("...", "x"), ("---", "x"), ("ünï.png", "n"), ("a b&c", "a-b-c"),
    ("x" * 100, "x" * 80), ("x" * 79 + "-y", "x" * 79), ("a\0b", "a-b"), ("con", "con"),
])  # fmt: skip
def test_stems(name: str, stem: str) -> None:
    assert naming.stem(name, "x") == stem


def test_downloads_are_the_same_for_the_same_request() -> None:
    url = "https://example.com/a/Photo%20one.JPG?size=2"
    assert naming.download(url, None, "image") == naming.download(url, "", "image")
    assert naming.download(url, None, "image").startswith("downloads/Photo-one-")
    assert naming.download(url, "logo.svg", "image").startswith("downloads/logo-")
    assert naming.download(url, None, "image") != naming.download(url + "1", None, "image")
    assert naming.download("https://example.com/", None, "image").startswith("downloads/image-")
    assert naming.download("https://example.com/%2e%2e%2f%2e%2e", None, "image").startswith("downloads/image-")


@pytest.mark.parametrize(("name", "ending"), [
    ("a.CSV", ".csv"), ("a", ""), (".bashrc", ""), ("a.", ""), ("a.b c", ""), ("a.toolongforthis", ""), ("a.p/hp", ""),
])  # fmt: skip
def test_endings(name: str, ending: str) -> None:
    assert naming.ending(name) == ending


FILES = {
    path: FileEntry(path, 1, "0" * 64, "b", modified_ns=age)
    for age, path in enumerate(
        [
            "uploads/report.pdf",
            "outputs/report.pdf",
            "outputs/My Summary.docx",
            "scratch/x.txt",
            "downloads/cat-1a2b.png",
        ]
    )
}


@pytest.mark.parametrize(("reference", "path"), [
    ("outputs/report.pdf", "outputs/report.pdf"), ("/workspace/uploads/report.pdf", "uploads/report.pdf"),
    ("/work/scratch/x.txt", "scratch/x.txt"), ("report.pdf", "outputs/report.pdf"),
    ("att:report.pdf", "outputs/report.pdf"),
    ("attachment: uploads/report.pdf", "uploads/report.pdf"), ("FILE:x.txt", "scratch/x.txt"),
    ("7f3a/report.pdf", "outputs/report.pdf"), ("my summary", "outputs/My Summary.docx"),
    ("document:My Summary.docx", "outputs/My Summary.docx"), ("my-summary", "outputs/My Summary.docx"),
    ("nothing.pdf", None), ("", None), ("../etc/passwd", None), ("/etc/passwd", None), ("a/b/c/report.pdf", None),
    ("\0", None), ("report", None),
])  # fmt: skip
def test_references(reference: str, path: str | None) -> None:
    found = Index(FILES).find(reference)
    assert (found and found.path) == path


def test_attachments_are_the_newest_first() -> None:
    assert [entry.path for entry in attachments(FILES)] == [
        "downloads/cat-1a2b.png", "outputs/My Summary.docx", "outputs/report.pdf", "uploads/report.pdf",
    ]  # fmt: skip
    assert slug("  Über — Report 7! ") == "ber-report-7"


def entries(*paths: str) -> dict[str, FileEntry]:
    return {path: FileEntry(path, 1, "0" * 64, "b", modified_ns=age) for age, path in enumerate(paths)}


@pytest.mark.parametrize(("reference", "path"), [
    ("doc:plan.txt", "doc:plan.txt"), ("att:a.txt", "outputs/att:a.txt"), ("file:x/a.txt", "file:x/a.txt"),
    ("doc:x/a.txt", "x/a.txt"), ("att:plan.txt", "outputs/plan.txt"), ("plan.txt", "outputs/plan.txt"),
])  # fmt: skip
def test_files_that_are_called_as_if_they_had_a_prefix(reference: str, path: str) -> None:
    files = entries("doc:plan.txt", "outputs/plan.txt", "outputs/att:a.txt", "x/a.txt", "file:x/a.txt")
    found = Index(files).find(reference)
    assert found is not None and found.path == path


async def test_many_files_are_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[str]()

    def counted(title: str) -> str:
        seen.append(title)
        return slug(title)

    monkeypatch.setattr(references, "slug", counted)
    made = await references.index(entries(*(f"outputs/r-{number}.txt" for number in range(3000))))
    for number in range(64):
        assert made.find(f"R {number}") is not None and made.find(f"none {number}.pdf") is None
    assert len(seen) == 3000 + 2 * 64
