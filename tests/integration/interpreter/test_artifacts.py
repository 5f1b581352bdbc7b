"""What a run did to the files, as the agent sees it, and how they come out."""

from __future__ import annotations

import hashlib

from tests.integration.interpreter.jail import Jail


def test_writes_through_mappings_are_seen(jail: Jail) -> None:
    jail.put("uploads/deep/m.bin", b"0" * 4096)
    jail.put("other.bin", b"0" * 4096)
    jail.ok("1")
    ran = jail.ok("""
import mmap
f = open('uploads/deep/m.bin', 'r+b'); m = mmap.mmap(f.fileno(), 0)
with open('other.bin', 'r+b') as g, mmap.mmap(g.fileno(), 0) as n: n[0:1] = b'1'
""")
    assert "other.bin" in ran.changed("modified")
    assert jail.get("other.bin")[:2] == b"10"
    jail.ok("1")
    ran = jail.ok("m[0:1] = b'2'")
    assert ran.changed("modified") == {"uploads/deep/m.bin"}
    assert jail.get("uploads/deep/m.bin")[:2] == b"20"
    assert jail.ok("1").changed("modified") == set()
    assert jail.ok("f.close(); m[1:2] = b'3'").changed("modified") == {"uploads/deep/m.bin"}
    ran = jail.ok("import numpy as np\na = np.memmap('other.bin', mode='r+'); a[1] = 65; a.flush(); del a")
    assert ran.changed("modified") == {"other.bin"}
    assert jail.ok("print(open('other.bin', 'rb').read(2))").changed("modified") == set()


def test_a_file_opened_in_one_run_may_be_mapped_in_a_later_one(jail: Jail) -> None:
    for name in ("a.bin", "b.bin"):
        jail.put(name, b"0" * 4096)
    jail.ok("import mmap, os\nf = open('a.bin', 'r+b'); g = open('b.bin', 'r+b')")
    jail.ok("os.rename('b.bin', 'c.bin')")
    jail.ok("m = mmap.mmap(f.fileno(), 0); n = mmap.mmap(g.fileno(), 0)")
    assert jail.ok("m[0:1] = b'1'").changed("modified") == {"a.bin"}
    assert jail.ok("n[0:1] = b'1'").changed("modified") == {"c.bin"}
    assert jail.get("c.bin")[:2] == b"10"


def test_a_file_mapped_under_a_name_that_goes_is_seen_under_its_other_one(jail: Jail) -> None:
    jail.ok("import mmap, os\nopen('a', 'wb').write(bytes(4096)); os.link('a', 'b')")
    jail.ok("f = open('a', 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); os.unlink('a')")
    for value in (66, 67, 68):
        assert jail.ok(f"m[0] = {value}").changed("modified") == {"b"}
    assert jail.get("b")[:1] == b"D"


def test_a_mapping_beside_more_new_files_than_are_asked_about(jail: Jail) -> None:
    jail.put("m.bin", b"0" * 4096)
    jail.ok("import mmap\nf = open('m.bin', 'r+b'); m = mmap.mmap(f.fileno(), 0)")
    jail.ok("for n in range(200): open(f'{n}', 'w')")
    assert jail.ok("m[0:1] = b'1'").changed("modified") == {"m.bin"}
    for n in range(4):
        assert jail.ok(f"m[0:1] = b'{n + 2}'").changed("modified") == {"m.bin"}


def test_changes_of_a_run(jail: Jail) -> None:
    for name in ("stay", "edit", "gone", "was_file"):
        jail.put(name, b"1")
    jail.ok("1")
    ran = jail.ok("""
import os
open('outputs/new é 中.txt', 'w').write('x')
open('edit', 'a').write('2')
os.remove('gone'); os.remove('was_file'); os.makedirs('was_file/in'); open('was_file/in/f', 'w').close()
os.symlink('stay', 'link'); os.makedirs('hollow/deep')
os.rename('stay', 'moved')
""")
    assert ran.changed("created") == {"outputs/new é 中.txt", "was_file/in/f", "moved"}
    assert ran.changed("modified") == {"edit"}
    assert ran.changed("deleted") == {"gone", "was_file", "stay"}
    assert ran.over.links == {"link": "stay"}
    assert ran.over.folders == ["hollow/deep"]
    assert ran.over.skipped == []
    assert jail.get("edit") == b"12"


def test_files_and_folders_without_permissions_come_out(jail: Jail) -> None:
    jail.put("closed/f", b"inside")
    jail.ok("1")
    ran = jail.ok("import os\nopen('secret', 'w').write('s'); os.chmod('secret', 0); os.chmod('closed', 0)")
    assert ran.changed("created") == {"secret"}
    assert ran.changed("deleted") == set()
    assert jail.get("secret") == b"s"
    assert jail.ok("print(oct(os.stat('secret').st_mode & 0o777))").out == "0o0"
    assert jail.ok("1").changed("modified") == set()


def test_many_changes_come_in_pieces(jail: Jail) -> None:
    ran = jail.ok("import os\nfor i in range(12_000):\n    os.close(os.open(f'{i:05}-' + 'x' * 150, os.O_CREAT))")
    assert len(ran.changed("created")) == 12_000
    assert not ran.over.truncated
    assert jail.ok("1").over.changes == []
    assert len(jail.ok("for n in os.listdir('.'):\n if n[0].isdigit(): os.remove(n)").changed("deleted")) == 12_000


def test_more_files_than_the_limit_is_told(jail: Jail) -> None:
    ran = jail.ok("import os\nfor i in range(20_500): os.close(os.open(f'{i}', os.O_CREAT))")
    assert ran.over.truncated
    assert len(ran.over.changes) <= 20_000


def test_a_large_file_goes_in_and_out_whole(jail: Jail) -> None:
    code = "import hashlib\nd = bytes(range(256)) * (1 << 17)\nopen('big', 'wb').write(d)\n"
    ran = jail.ok(code + "print(hashlib.sha256(d).hexdigest())")
    assert hashlib.sha256(jail.get("big")).hexdigest() == ran.out


def test_background_writers_are_dead_before_the_look(jail: Jail) -> None:
    ran = jail.ok("""
import os, time
open('x', 'w').close()
if os.fork() == 0:
    os.setsid()
    n = 0
    while True:
        n += 1
        with open('x', 'w') as f: f.write(str(n))
time.sleep(0.05)
""")
    assert ran.changed("created") == {"x"}
    assert jail.ok("1").over.changes == []
