"""What a cell may do and see: IPython's habits, streams, modules, processes, libraries after a fork."""

from __future__ import annotations

import pytest

from runner.model import Outcome
from tests.integration.interpreter.jail import Jail


def test_the_template_imported_everything_on_its_list(jail: Jail) -> None:
    assert jail.client.preload_failed == {}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = !echo hi\nprint(x[0])", "hi"),
        ("!echo from a shell", "from a shell"),
        ("%%bash\necho magic $((1+1))", "magic 2"),
        ("import asyncio\nawait asyncio.sleep(0)\nprint('awaited')", "awaited"),
        ("print(__name__)", "__main__"),
        ("print(type(get_ipython()).__name__)", "Shell"),
        ("import os\nprint(os.getcwd(), os.path.samefile('/work', '.'))", "/workspace True"),
        ("import sys\nprint(repr(sys.stdin.read()))", "''"),
        ("import os; os.system('echo system')", "system"),
        ("import subprocess; subprocess.run(['echo', 'sub'])", "sub"),
        ("import sqlite3; print(sqlite3.connect(':memory:').execute('select 1+1').fetchone()[0])", "2"),
    ],
)
def test_habits_of_ipython(jail: Jail, code: str, expected: str) -> None:
    assert jail.ok(code).out == expected


def test_in_out_and_underscore(jail: Jail) -> None:
    assert jail.ok("6 * 7").shown[0].body["data"] == {"text/plain": "42"}
    assert jail.ok("print(_, Out[1], In[1])").out == "42 42 6 * 7"
    assert jail.ok("_ + 1").shown[0].body["kind"] == "result"
    assert not jail.ok("7;").shown


def test_time_magic_and_matplotlib_inline(jail: Jail) -> None:
    assert "Wall time" in jail.ok("%time x = sum(range(10))").text()
    assert not jail.ok("%matplotlib inline").text("stderr")


def test_pip_says_politely_that_it_cannot(jail: Jail) -> None:
    ran = jail.run("%pip install requests")
    assert ran.outcome is Outcome.ERROR
    assert "cannot be installed" in ran.error["message"]
    assert ran.seconds < 10  # nothing is tried that would have to time out
    assert "numpy" in jail.ok("%pip list").text()


def test_input_reads_the_given_stdin_of_each_call(jail: Jail) -> None:
    assert jail.ok("print(input(), input())", stdin=b"a\nb\n").out == "a b"
    assert jail.ok("print(input('? '))", stdin="ü\n".encode()).out == "? ü"
    assert jail.run("input()").error["name"] == "EOFError"


def test_many_mime_types(jail: Jail) -> None:
    code = """
from IPython.display import display, HTML, Markdown, JSON, Latex, SVG, Image, Javascript
display(HTML('<b>h</b>'), Markdown('*m*'), JSON({'a': [1]}), Latex('$x$'), SVG('<svg xmlns="x"></svg>'))
display({'application/x-own': 'v', 'text/plain': 'p'}, raw=True, metadata={'application/x-own': {'k': 1}})
display(Image(data=__import__('base64').b64decode('iVBORw0KGgo=') , format='png'))
"""
    shown = jail.ok(code).shown
    kinds = [{*event.body["data"], *event.body["binary"]} - {"text/plain"} for event in shown]
    assert kinds == [
        {"text/html"}, {"text/markdown"}, {"application/json"}, {"text/latex"}, {"image/svg+xml"},
        {"application/x-own"}, {"image/png"},
    ]  # fmt: skip
    assert shown[2].body["data"]["application/json"] == {"a": [1]}
    assert shown[5].body["metadata"] == {"application/x-own": {"k": 1}}
    assert shown[6].attachments == (b"\x89PNG\r\n\x1a\n",)


def test_update_display_and_clear_output(jail: Jail) -> None:
    code = """
from IPython.display import display, clear_output
h = display('one', display_id='d1')
h.update('two')
clear_output(wait=True)
"""
    shown = jail.ok(code).shown
    assert [(e.body["kind"], e.body["display_id"], e.body["data"]["text/plain"]) for e in shown] == [
        ("display", "d1", "'one'"), ("update", "d1", "'two'"),
    ]  # fmt: skip


def test_long_texts_and_odd_values_are_shown(jail: Jail) -> None:
    ran = jail.ok("""
from IPython.display import display, HTML
display(HTML('é' * 300_000))
display({'text/html': '\\ud800', 'application/x': {'n': float('nan'), 'o': object}}, raw=True)
display(HTML('x' * (17 << 20)))
""")
    assert ran.shown[0].body["data"]["text/html"] == "é" * 300_000
    assert ran.shown[1].body["data"]["text/html"] == "?"
    assert "too large to show" in ran.shown[2].body["data"]["text/plain"]


def test_order_of_prints_and_displays_is_kept(jail: Jail) -> None:
    ran = jail.ok("for i in range(30):\n    print(i)\n    display(i)")
    kinds = [event.body.get("text", "").strip() or event.body["data"]["text/plain"] for event in ran.events[1:]]
    assert kinds == [str(n) for i in range(30) for n in (i, i)]


def test_classes_from_cells_can_be_pickled_and_sent_to_processes(jail: Jail) -> None:
    jail.ok("class P:\n    def __init__(self, v): self.v = v\ndef double(p): return P(p.v * 2)")
    code = """
import pickle, multiprocessing, concurrent.futures
assert pickle.loads(pickle.dumps(P(3))).v == 3
with multiprocessing.Pool(2) as pool:
    print([p.v for p in pool.map(double, [P(1), P(2)])])
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    print([p.v for p in pool.map(double, [P(3)])])
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    print(list(pool.map(len, ['ab'])))
"""
    ran = jail.ok(code)
    assert ran.out.split("\n") == ["[2, 4]", "[6]", "[2]"]
    assert ran.text("stderr") == ""


def test_modules_of_the_workspace(jail: Jail) -> None:
    jail.put("helper.py", b"def f(): return 1\n")
    jail.put("json.py", b"raise RuntimeError('shadow')\n")
    jail.put("pack/__init__.py", b"")
    jail.put("pack/part.py", b"value = 'a'\n")
    assert jail.ok("import json, helper, pack.part\nprint(json.dumps(helper.f()), pack.part.value)").out == "1 a"
    jail.put("helper.py", b"def f(): return 22\n")
    jail.put("pack/part.py", b"value = 'b'\n")
    assert jail.ok("import helper, pack.part\nprint(helper.f(), pack.part.value)").out == "22 b"
    jail.ok("open('late.py', 'w').write('x = 5')\nimport late\nassert late.x == 5")


def test_env_of_a_call_is_put_back(jail: Jail) -> None:
    code = "import os, subprocess\nprint(os.environ.get('A'), subprocess.getoutput('echo $A'))"
    jail.ok("import os; os.environ['A'] = 'own'")
    assert jail.ok(code, env={"A": "given", "B": "b"}).out == "given given"
    assert jail.ok(code).out == "own own"
    assert jail.ok("print(os.environ.get('B'))").out == "None"


def test_working_folder_and_streams_are_put_right(jail: Jail) -> None:
    jail.ok("import os, sys\nos.chdir('/tmp')\nsys.stdout = open('/dev/null', 'w')\nos.close(2)")
    assert jail.ok("print(os.getcwd())").out == "/workspace"
    jail.run("sys.stdout.close(); os.close(1)")
    assert jail.ok("print('back'); sys.stderr.write('err')").out == "back"
    jail.run("sys.__stdout__.close(); sys.stderr.close()")
    ran = jail.ok("print('again'); print('e', file=sys.stderr)")
    assert (ran.out, ran.text("stderr")) == ("again", "e\n")


def test_fresh_runs_beside_the_kept_interpreter(jail: Jail) -> None:
    jail.ok("x = 1")
    ran = jail.run("x", fresh=True)
    assert ran.error["name"] == "NameError"
    assert jail.ok("print(x)").out == "1"
    assert jail.run("import os; os._exit(3)", fresh=True).outcome is Outcome.CRASHED
    assert jail.ok("print(x)").out == "1"


def test_bash_is_new_each_time(jail: Jail) -> None:
    ran = jail.ok("x=1; echo $x $A; cat", language="bash", env={"A": "a"}, stdin=b"in")
    assert ran.out == "1 a\nin"
    assert jail.ok("echo -$x-", language="bash").out == "--"
    ran = jail.run("echo é >&2; exit 7", language="bash")
    assert (ran.outcome, ran.over.observed.exit_code, ran.text("stderr")) == (Outcome.ERROR, 7, "é\n")
    assert jail.run("kill -9 $$", language="bash").over.observed.signal == 9


def test_exits(jail: Jail) -> None:
    jail.ok("x = 5\nimport sys")
    for code, status in [("exit()", 0), ("quit()", 0), ("sys.exit(3)", 3), ("exit(4)", 4), ("raise SystemExit", 0)]:
        ran = jail.run(code)
        assert (ran.over.observed.exit_code, ran.over.interpreter, ran.over.error) == (status, "kept", None), code
    assert jail.run("sys.exit('bye')").text("stderr") == "bye\n"
    assert jail.ok("print(x)").out == "5"


LIBRARIES = {
    "pandas": "import pandas as pd, numpy as np\nprint(int(pd.DataFrame({'a': np.arange(4)}).a.sum()))",
    "arrow": "import pandas as pd\npd.DataFrame({'a': ['x', 'y']}).to_parquet('a.parquet')\n"
    "print(pd.read_parquet('a.parquet').a.str.upper().sum() and 6)",
    "matrix": "import numpy as np\na = np.ones((300, 300))\nprint(int((a @ a)[0, 0] / 50))",
    "weasyprint": "import weasyprint\nprint(6 if len(weasyprint.HTML(string='<p>é 中').write_pdf()) > 1000 else 0)",
    "pptx": "from pptx import Presentation\np = Presentation()\np.slides.add_slide(p.slide_layouts[0])\n"
    "p.save('a.pptx')\nprint(5 + len(Presentation('a.pptx').slides))",
    "docx": "import docx\nd = docx.Document(); d.add_paragraph('x'); d.save('a.docx')\n"
    "print(5 + len(docx.Document('a.docx').paragraphs))",
    "openpyxl": "import openpyxl\nw = openpyxl.Workbook(); w.active['A1'] = 6; w.save('a.xlsx')\n"
    "print(openpyxl.load_workbook('a.xlsx').active['A1'].value)",
    "polars": "import polars as pl\nprint(pl.DataFrame({'a': [1, 2, 3]}).select(pl.col('a').sum()).item())",
    "sklearn": "from sklearn.cluster import KMeans\nprint(5 + len(set(KMeans(1, n_init=1).fit([[0.], [1.]]).labels_)))",
}


@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_libraries_after_the_fork(jail: Jail, name: str) -> None:
    ran = jail.ok(LIBRARIES[name])
    assert (ran.out, ran.text("stderr")) == ("6", "")
