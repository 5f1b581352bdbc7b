"""Section 6.4, row by row: which files come back, under which names, and how many."""

from __future__ import annotations

from tests.conformance.oneshot.client import OneshotClient
from tests.conformance.oneshot.gateway import Turn


def made(client: OneshotClient, script: str, files: dict[str, bytes] | None = None) -> dict[str, str]:
    """Flat names by path of what a bash script made."""
    ran = client.run("bash", script, files)
    assert ran.raw["exit_code"] == 0, ran.raw["stderr"]
    return ran.paths


def test_nested_files_come_flat_with_their_path(client: OneshotClient) -> None:
    found = made(client, "mkdir -p a/b; echo 1 > top.txt; echo 2 > a/one.txt; echo 3 > a/b/two.tar.gz")
    assert found == {"top.txt": "top.txt", "a/one.txt": "a-one.txt", "a/b/two.tar.gz": "a-b-two.tar.gz"}


def test_eight_levels_and_no_more(client: OneshotClient) -> None:
    found = made(client, "mkdir -p 1/2/3/4/5/6/7/8/9; echo x > 1/2/3/4/5/6/7/in; echo x > 1/2/3/4/5/6/7/8/9/out")
    assert found == {"1/2/3/4/5/6/7/in": "1-2-3-4-5-6-7-in"}


def test_folders_that_are_skipped(client: OneshotClient) -> None:
    skipped = ".git .cache node_modules __pycache__ site-packages venv"
    script = f"for d in {skipped}; do mkdir -p $d/x a/$d; for f in $d/f $d/x/f a/$d/f; do echo 1 > $f; done; done"
    assert made(client, f"{script}; echo 1 > a/kept") == {"a/kept": "a-kept"}


def test_files_that_are_skipped(client: OneshotClient) -> None:
    found = made(client, "mkdir real; echo 1 > real/f; ln -s real folder; ln -s real/f link; mkfifo pipe; "
                         "ln -s /etc/passwd out; ln -s /etc etc")  # fmt: skip
    assert found == {"real/f": "real-f"}


def test_files_with_a_dot_in_an_allowed_folder_come(client: OneshotClient) -> None:
    assert made(client, "echo 1 > .env; mkdir a; echo 1 > a/.env") == {".env": ".env", "a/.env": "a-.env"}


def test_staged_inputs_do_not_come_back(client: OneshotClient) -> None:
    found = made(client, "cat in.txt > out.txt", {"in.txt": b"data", "other.bin": b"\0"})
    assert found == {"out.txt": "out.txt"}


def test_what_is_unchanged_in_a_lease_does_not_come_again(turn: Turn) -> None:
    first = turn.run("bash", "mkdir d; echo one > a.txt; echo two > d/b.txt")
    assert [each["name"] for each in first["artifacts"]] == ["a.txt", "d-b.txt"]
    assert turn.run("bash", "cat a.txt d/b.txt")["artifacts"] == []
    changed = turn.run("bash", "echo more >> a.txt")
    assert [(each["name"], each["size"]) for each in changed["artifacts"]] == [("a.txt", 9)]


def test_the_65th_file_is_told_of(client: OneshotClient) -> None:
    whole = client.run("bash", "for n in $(seq 101 164); do echo $n > f$n.txt; done")
    assert (len(whole.artifacts), whole.raw["artifacts_truncated"]) == (64, False)
    more = client.run("bash", "for n in $(seq 101 165); do echo $n > f$n.txt; done")
    assert (len(more.artifacts), more.raw["artifacts_truncated"]) == (64, True)
    assert "f165.txt" not in more.artifacts


def test_collisions_are_numbered_and_top_level_names_win(client: OneshotClient) -> None:
    found = made(client, "mkdir a; echo nested > a/b.txt; echo top > a-b.txt")
    assert found == {"a-b.txt": "a-b.txt", "a/b.txt": "a-b-2.txt"}
    three = made(client, "mkdir -p x/y x-y; echo 1 > x/y/z.txt; echo 2 > x-y/z.txt; echo 3 > x-y-z.txt")
    assert three["x-y-z.txt"] == "x-y-z.txt"
    assert {three["x/y/z.txt"], three["x-y/z.txt"]} == {"x-y-z-2.txt", "x-y-z-3.txt"}


def test_names_of_inputs_count_as_taken(client: OneshotClient) -> None:
    found = made(client, "mkdir a; echo 1 > a/b.txt", {"a-b.txt": b"input"})
    assert found == {"a/b.txt": "a-b-2.txt"}


TYPES = {
    "pdf": "application/pdf",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "svg": "image/svg+xml",
    "webp": "image/webp",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "json": "application/json",
    "html": "text/html",
    "zip": "application/zip",
    "mp4": "video/mp4",
    "mp3": "audio/mpeg",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "py": "application/octet-stream",
    "tar": "application/octet-stream",
    "bin": "application/octet-stream",
}


def test_types_by_extension(client: OneshotClient) -> None:
    found = client.run("bash", f"for each in {' '.join(TYPES)}; do echo 1 > made.$each; done").artifacts
    assert {name.partition(".")[2]: each.mime for name, each in found.items()} == TYPES


def test_xml_and_wav_have_one_of_their_types(client: OneshotClient) -> None:
    found = client.run("bash", "echo 1 > a.xml; echo 1 > b.wav").artifacts
    assert found["a.xml"].mime in ("application/xml", "text/xml")
    assert found["b.wav"].mime in ("audio/wav", "audio/x-wav", "audio/wave")


def test_a_file_above_64_mib_stays(client: OneshotClient) -> None:
    ran = client.run("bash", "truncate -s 67108865 big.bin; echo 1 > small")
    assert list(ran.artifacts) == ["small"]


def test_a_file_of_25_mib_comes_whole(client: OneshotClient) -> None:
    ran = client.run("python", "open('big.bin', 'wb').write(bytes(range(256)) * (25 << 12))")
    assert ran.artifacts["big.bin"].data == bytes(range(256)) * (25 << 12)


def test_names_of_other_scripts_come_as_they_are(client: OneshotClient) -> None:
    ran = client.run(
        "python", "import os\nos.mkdir('目录')\nopen('目录/файл 1.txt', 'w').write('x')\nopen('-n', 'w').write('x')"
    )
    assert ran.paths == {"目录/файл 1.txt": "目录-файл 1.txt", "-n": "-n"}


def test_nothing_of_the_script_itself_is_an_artifact(client: OneshotClient) -> None:
    ran = client.run("python", "import os; print([n for n in os.listdir('.') if os.path.isfile(n)])", {"a": b"1"})
    assert (ran.raw["stdout"], ran.artifacts) == ("['a']\n", {})
