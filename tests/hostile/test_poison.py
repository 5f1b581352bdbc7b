"""Case 16, finding 17: files that programs run or read by habit are run by nobody but the attacker's own cells.

Each poison appends who ran it to a file; the host reads that file. The template is killed after planting, so
that a new one starts with everything in place. Control: a template started as plain Python runs the poison.
"""

from __future__ import annotations

from pathlib import Path

from tests.hostile.support import outside
from tests.hostile.support.place import Place

PLANT = """
import os, pathlib, signal, sys
mark = "import os, sys; open('/tmp/ran', 'a').write(f'{os.getpid()} {sys.orig_argv[:4]}\\\\n')\\n"
home, work = pathlib.Path("/home/sandbox"), pathlib.Path("/workspace")
version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
site = home / ".local/lib" / version / "site-packages"
names = {
    site / "poison.pth": mark, site / "usercustomize.py": mark, site / "sitecustomize.py": mark,
    home / ".ipython/profile_default/startup/00.py": mark, home / ".ipython/profile_default/ipython_config.py": mark,
    home / ".pythonrc": mark, home / ".bashrc": "echo bash >> /tmp/ran\\n", home / ".profile": "echo sh >> /tmp/ran\\n",
    home / ".config/matplotlib/matplotlibrc": "backend: module://poison\\n",
    work / "matplotlibrc": "backend: module://poison\\n", work / "poison.py": mark,
    work / "sitecustomize.py": mark, work / "usercustomize.py": mark,
    work / ".git/hooks/post-checkout": "#!/bin/sh\\necho git >> /tmp/ran\\n", home / "pip.conf": "[global]\\n",
}
for module in ("json", "numpy", "pandas", "IPython", "socket", "site", "os", "signal", "matplotlib", "weasyprint"):
    names[work / f"{module}.py"] = mark
    names[home / f"{module}.py"] = mark
for path, text in names.items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
os.environ["PYTHONSTARTUP"] = str(home / ".pythonrc")
os.environ["LD_PRELOAD"] = "/workspace/evil.so"
"""
KILL_TEMPLATE = "import os, signal; os.kill({template}, signal.SIGKILL); os._exit(1)"
LOOK = "import json, numpy; print(json.__file__, numpy.__file__)"


def ran(agent: int) -> str:
    """Who ran a poison, read from outside."""
    path = Path(f"/proc/{agent}/root/tmp/ran")
    return path.read_text() if path.exists() else ""


def new_template(place: Place) -> None:
    """Kill the template and the interpreter, and wait until the new ones work."""
    agent, template = place.agent, place.template
    place.run(KILL_TEMPLATE.format(template=outside.inner_pid(template)))
    outside.wait_for(lambda: "-c" in ran(agent), "the poison is run")
