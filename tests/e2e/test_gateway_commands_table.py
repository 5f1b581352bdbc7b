"""The tables of docs/image.md are true of the image: what is there answers, what is not says what to use instead."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from images.sandbox.commands import absent
from tests.support.runner import Chat

TEXT = (Path(__file__).parents[2] / "docs/image.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of the table below a heading, without its head."""
    section = TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def coded(cell: str) -> list[str]:
    """What a cell has in back quotes."""
    return re.findall(r"`([^`]+)`", cell)


def of_kind(kind: str) -> list[list[str]]:
    """Rows of what is left out, by kind."""
    return [row for row in rows("Left out or different") if row[1] == kind]


def test_every_command_of_the_table_is_there(chat: Chat) -> None:
    names = [name for row in rows("Commands") for name in coded(row[1])]
    assert len(names) > 50
    answer = chat.ok(
        f"for name in {' '.join(names)}; do command -v $name >/dev/null || echo $name; done", language="bash"
    )
    assert answer["stdout"] == ""


@pytest.mark.parametrize(("kind", "known"), [("command", absent.COMMANDS), ("module", absent.MODULES)])
def test_stubs_and_table_name_the_same(kind: str, known: dict[str, absent.Absent]) -> None:
    told = {name: row[3] for row in of_kind(kind) for name in coded(row[0])}
    assert set(told) == set(known)
    for name, answer in told.items():
        assert [word for word in coded(answer) if word not in known[name].instead] == []


def test_commands_left_out_say_what_to_use(chat: Chat) -> None:
    for name, entry in absent.COMMANDS.items():
        result = chat.run(f"{name} -in x.pdf", language="bash")
        assert (result["exit_code"], result["stderr"]) == (127, entry.line(name) + "\n")


def test_modules_left_out_say_what_to_use(chat: Chat) -> None:
    for name, entry in absent.MODULES.items():
        error = chat.run(f"import {name}")["error"]
        assert (error["name"], error["message"]) == ("ModuleNotFoundError", entry.line(name))


def test_fonts_left_out_are_not_there(chat: Chat) -> None:
    wanted = [name.strip() for row in of_kind("font") for name in row[0].split(",")]
    found = set(chat.ok("fc-list -f '%{family}\\n' | tr ',' '\\n'", language="bash")["stdout"].splitlines())
    assert {"Inter", "Roboto", "Lato", "Montserrat", "Noto Sans CJK SC", "Noto Color Emoji"} <= found
    assert [name for name in wanted if name in found] == []


def test_what_is_there_in_another_form_is_there(chat: Chat) -> None:
    names = [name for row in of_kind("other") for name in coded(row[0])]
    answer = chat.ok(
        f"for name in {' '.join(names)}; do command -v $name >/dev/null || echo $name; done", language="bash"
    )
    assert answer["stdout"] == ""
    assert chat.ok("yq -y .a", language="bash", stdin="a: {b: 1}\n")["stdout"] == "b: 1\n"
    assert chat.ok("yq -c .a", language="bash", stdin="a: {b: 1}\n")["stdout"] == '{"b":1}\n'
    assert "42" in chat.ok("duckdb -csv -c 'select 6 * 7'", language="bash")["stdout"]


def test_imagemagick_writes_pdf_and_reading_one_names_the_way(chat: Chat) -> None:
    result = chat.run("magick -size 40x40 xc:red a.pdf && magick a.pdf b.png", language="bash")
    assert result["exit_code"] != 0
    assert "use pdftoppm" in result["stderr"]
    assert chat.files() == ["a.pdf"]


def test_nothing_under_the_agpl_is_installed(chat: Chat) -> None:
    record = json.loads(chat.ok("print(open('/etc/foliobox/image.json').read())")["stdout"])
    assert [
        name for name in record["debian"] if re.match(r"ghostscript|libgs\d|libgs-|fonts-urw|mupdf|libmupdf", name)
    ] == []
    assert set(record["python"]) & {"pymupdf", "pymupdfb", "pdf2docx", "ghostscript"} == set()


def test_a_typst_package_in_the_cache_of_packages_works(chat: Chat) -> None:
    chat.put(
        "cache/preview/gribouille/0.7.0/typst.toml",
        b'[package]\nname = "gribouille"\nversion = "0.7.0"\nentrypoint = "lib.typ"\n',
    )
    chat.put("cache/preview/gribouille/0.7.0/lib.typ", b'#let hello = "from the package"\n')
    chat.put("in.typ", b'#import "@preview/gribouille:0.7.0": hello\n#hello\n')
    chat.ok("typst compile in.typ", language="bash", env={"TYPST_PACKAGE_CACHE_PATH": "/workspace/cache"})
    assert "in.pdf" in chat.files()
