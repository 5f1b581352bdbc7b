"""The judge judged: traces made by hand in which a sync is missing, late, early or of the wrong file are reported."""

from __future__ import annotations

import pytest

from tests.durability.support.model import Model
from tests.durability.support.proof import Verdict, after_cut, prove
from tests.durability.support.trace import TraceError, steps

BASE = """\
7 mkdir("/d/s", 0700) = 0
7 openat(AT_FDCWD</>, "/d", O_RDONLY|O_CLOEXEC|O_DIRECTORY) = 3</d>
7 fsync(3</d>) = 0
7 close(3</d>) = 0
"""
WRITE = """\
8 openat(AT_FDCWD</>, "/d/s/part", O_WRONLY|O_CREAT|O_EXCL, 0600) = 4</d/s/part>
8 write(4</d/s/part>, "a\\0b\\n\\303\\244\\"", 7) = 7
"""
SYNC = "8 fsync(4</d/s/part>) = 0\n"
LINK = '8 link("/d/s/part", "/d/s/object") = 0\n'
FOLDER = '8 openat(AT_FDCWD</>, "/d/s", O_RDONLY|O_DIRECTORY) = 5</d/s>\n8 fsync(5</d/s>) = 0\n8 close(5</d/s>) = 0\n'
UNLINK = '8 unlink("/d/s/part") = 0\n'
ANSWER = (
    "7 sendto(9<TCP:[127.0.0.1:80->127.0.0.1:99]>, "
    '"HTTP/1.1 201 Created\\r\\nx-request-id: r1\\r\\n\\r\\n", 44, 0, NULL, 0) = 44\n'
)
THREAD = "7 clone3({flags=CLONE_VM|CLONE_THREAD|CLONE_SIGHAND, child_tid=0x1}, 88) = 8\n"
GOOD = THREAD + BASE + WRITE + SYNC + LINK + FOLDER + ANSWER


def judge(text: str) -> Verdict:
    return prove(steps(text.splitlines()), "/d", ignore=lambda path: path == "s/part")


def images(text: str) -> dict[str, dict[str, bytes | None]]:
    """What is there after a power cut at the answer."""
    found: dict[str, dict[str, bytes | None]] = {}

    def observe(model: Model, answer: object) -> None:
        if answer is not None:
            found.update({name: image.content for name, image in after_cut(model).items()})

    prove(steps(text.splitlines()), "/d", observe=observe)
    return found


def said(verdict: Verdict) -> set[str]:
    return {f"{fault.what}: {fault.path}" for fault in verdict.faults}


def test_the_right_order_is_no_fault() -> None:
    verdict = judge(GOOD)
    assert verdict.faults == []
    assert [(answer.name, answer.status) for answer in verdict.answers] == [("r1", 201)]
    content = b'a\0b\n\xc3\xa4"'
    assert images(GOOD)["nothing unsynced"] == {"s": None, "s/part": content, "s/object": content}


NAME, BYTES = "a name that is not durable", "bytes that are not durable"
EARLY = "a name before its bytes were durable"
NOT_SYNCED = {f"{EARLY}: s/object", f"{BYTES}: s/object"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (THREAD + BASE + WRITE + LINK + FOLDER + ANSWER, NOT_SYNCED),
        (THREAD + BASE + WRITE + SYNC + LINK + ANSWER, {f"{NAME}: s/object"}),
        (THREAD + BASE + WRITE + SYNC + FOLDER + LINK + ANSWER, {f"{NAME}: s/object"}),
        (THREAD + BASE + WRITE + LINK + FOLDER + SYNC + ANSWER, {f"{EARLY}: s/object"}),
        (THREAD + BASE + WRITE + SYNC + LINK + FOLDER.replace('"/d/s"', '"/d"') + ANSWER, {f"{NAME}: s/object"}),
        (THREAD + BASE.replace("fsync(3", "close(3") + WRITE + SYNC + LINK + FOLDER + ANSWER, {f"{NAME}: s"}),
        (GOOD.replace(SYNC, SYNC + '8 write(4</d/s/part>, "more", 4) = 4\n'), NOT_SYNCED),
        (GOOD.replace(ANSWER, UNLINK.replace("part", "object") + ANSWER), {"a removal that is not durable: s/object"}),
        (GOOD.replace(SYNC, SYNC.replace("= 0", "= -1 EIO (Input/output error)")), NOT_SYNCED),
        (GOOD.replace(SYNC, SYNC.replace("= 0", "= 0 (INJECTED)")), NOT_SYNCED),
        (GOOD.replace(LINK, '8 rename("/d/s/part", "/d/s/object") = 0\n').replace(FOLDER, ""), {f"{NAME}: s/object"}),
        (GOOD.replace(ANSWER, "8 ftruncate(4</d/s/part>, 2) = 0\n" + ANSWER), {f"{BYTES}: s/object"}),
        (GOOD.replace(SYNC, SYNC.replace("4</d/s/part>", "6</other>")), NOT_SYNCED),
    ],
    ids=[
        "bytes never synced", "folder never synced", "folder synced before the name", "bytes synced after the name",
        "wrong folder synced", "new folder's parent never synced", "written again after its sync",
        "removed, folder not synced",
        "sync failed", "sync only pretended", "renamed, folder not synced", "cut after its sync", "another file synced",
    ],
)  # fmt: skip
def test_every_way_to_answer_too_early_is_reported(text: str, expected: set[str]) -> None:
    assert said(judge(text)) == expected


def test_a_sync_that_had_not_ended_does_not_count() -> None:
    begun = FOLDER.replace("8 fsync(5</d/s>) = 0", "8 fsync(5</d/s> <unfinished ...>").replace(
        "8 close(5</d/s>) = 0\n", ""
    )
    late = THREAD + BASE + WRITE + SYNC + LINK + begun + ANSWER + "8 <... fsync resumed>) = 0\n"
    assert said(judge(late)) == {f"{NAME}: s/object"}
    in_time = THREAD + BASE + WRITE + SYNC + LINK + begun + "8 <... fsync resumed>) = 0\n" + ANSWER
    assert judge(in_time).faults == []


def test_a_sync_covers_only_what_had_ended_when_it_began() -> None:
    other = "7 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 9\n"
    racing = (
        '8 link("/d/s/part", "/d/s/object" <unfinished ...>\n'
        '9 openat(AT_FDCWD</>, "/d/s", O_RDONLY|O_DIRECTORY) = 5</d/s>\n'
        "9 fsync(5</d/s>) = 0\n"
        "8 <... link resumed>) = 0\n"
    )
    assert said(judge(THREAD + other + BASE + WRITE + SYNC + racing + ANSWER)) == {f"{NAME}: s/object"}


def test_whoever_met_a_name_saw_it() -> None:
    """A link in flight that made another one fail has happened, so a sync after that covers it."""
    other = "7 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 9\n"
    racing = (
        '8 link("/d/s/part", "/d/s/object" <unfinished ...>\n'
        '9 link("/d/s/part", "/d/s/object") = -1 EEXIST (File exists)\n'
        '9 openat(AT_FDCWD</>, "/d/s", O_RDONLY|O_DIRECTORY) = 5</d/s>\n'
        "9 fsync(5</d/s>) = 0\n"
        "8 <... link resumed>) = 0\n"
    )
    assert judge(THREAD + other + BASE + WRITE + SYNC + racing + ANSWER).faults == []


def test_syncfs_covers_all() -> None:
    assert (
        judge(THREAD + BASE + WRITE + "8 syncfs(4</d/s/part>) = 0\n" + LINK + "8 syncfs(4<x>) = 0\n" + ANSWER).faults
        == []
    )


def test_syncfs_covers_files_that_have_no_name_yet() -> None:
    text = (
        THREAD + BASE + '8 openat(AT_FDCWD</>, "/d/s", O_WRONLY|O_TMPFILE, 0600) = 4</d/s/#1>(deleted)\n'
        '8 write(4</d/s/#1>(deleted), "x", 1) = 1\n8 syncfs(6</d/s>) = 0\n'
        '8 linkat(6</d/s>, "/proc/self/fd/4", AT_FDCWD</>, "/d/s/object", AT_SYMLINK_FOLLOW) = 0\n'
    )
    assert judge(text + FOLDER + ANSWER).faults == []
    assert said(judge(text.replace("8 syncfs(6</d/s>) = 0\n", "") + FOLDER + ANSWER)) == NOT_SYNCED


def test_an_error_acknowledges_nothing() -> None:
    text = THREAD + BASE + WRITE + ANSWER.replace("201 Created", "507 Full   ")
    assert judge(text).faults == []
    assert judge(text).answers[0].status == 507


def test_what_survives_by_luck() -> None:
    text = THREAD + BASE + WRITE + LINK + ANSWER
    found = images(text)
    assert found["nothing unsynced"] == found["unsynced data only"] == {"s": None}
    assert found["unsynced names only"] == {"s": None, "s/part": b"", "s/object": b""}
    half = images(THREAD + BASE + WRITE + SYNC + LINK + FOLDER + '8 pwrite64(4</d/s/part>, "XY", 2, 5) = 2\n' + ANSWER)
    assert half["nothing unsynced"]["s/object"] == b'a\0b\n\xc3\xa4"'
    assert half["unsynced data only"]["s/object"] == b"a\0b\n\xc3XY"


def test_a_file_without_a_name_is_linked_by_its_descriptor() -> None:
    text = (
        THREAD + BASE + '8 openat(AT_FDCWD</>, "/d/s", O_WRONLY|O_TMPFILE, 0600) = 4</d/s/#1>(deleted)\n'
        '8 write(4</d/s/#1>(deleted), "x", 1) = 1\n8 fsync(4</d/s/#1>(deleted)) = 0\n'
        '8 linkat(AT_FDCWD</>, "/proc/self/fd/4", AT_FDCWD</>, "/d/s/object", AT_SYMLINK_FOLLOW) = 0\n'
    )
    assert judge(text + FOLDER + ANSWER).faults == []
    assert said(judge(text + ANSWER)) == {f"{NAME}: s/object"}


@pytest.mark.parametrize(
    "line",
    [
        "8 mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_SHARED, 4</d/s/part>, 0) = 0x7f0000000000",
        "8 sendfile(4</d/s/part>, 6</etc/passwd>, NULL, 100) = 100",
        '8 write(4</d/s/part>, "abbreviat"..., 100) = 100',
        '55 unlink("/d/s/part") = 0',
        '8 link("/d/s/unknown", "/d/s/object") = 0',
    ],
    ids=["shared mapping", "sendfile", "abbreviated", "another process", "unknown source"],
)
def test_what_cannot_be_followed_is_no_proof(line: str) -> None:
    with pytest.raises(TraceError):
        judge(THREAD + BASE + WRITE + line + "\n" + ANSWER)


def test_arguments_with_anything_in_them() -> None:
    line = '7 write(3<TCP:[1.1.1.1:1->2.2.2.2:2]>, "a, (b) \\"<c>\\" ] = -1 EIO", 24) = 24'
    begin, end = steps([line])
    assert end.call.args[0] == "3<TCP:[1.1.1.1:1->2.2.2.2:2]>"
    assert end.call.text(1) == b'a, (b) "<c>" ] = -1 EIO'
    assert (begin.phase, end.phase, end.call.result) == ("begin", "end", 24)
