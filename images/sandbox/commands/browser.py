"""Let Playwright find Debian's browser where it looks for its own: browser.py FOLDER, while the image is made.

Playwright starts the browsers of its own downloads, by folder and revision. Its driver takes the folder from
PLAYWRIGHT_BROWSERS_PATH; a line added to the installed package names ours where that variable is not set, so that
it holds for every program, whatever environment it was started with.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PROGRAM = Path("/usr/lib/chromium/chromium-headless-shell")
# Name in Playwright's list -> program below the folder of that revision.
LINKS = {
    "chromium": "chrome-linux64/chrome",
    "chromium-headless-shell": "chrome-headless-shell-linux64/chrome-headless-shell",
}
MARKERS = ("INSTALLATION_COMPLETE", "DEPENDENCIES_VALIDATED")
ANCHOR = "    env = os.environ.copy()\n"


def main(folder: Path) -> None:
    """Lay out the folder and name it in the package."""
    import playwright

    package = Path(playwright.__file__).parent
    listed = json.loads((package / "driver/package/browsers.json").read_text(encoding="utf-8"))["browsers"]
    revisions = {browser["name"]: browser["revision"] for browser in listed}
    for name, program in LINKS.items():
        home = folder / f"{name.replace('-', '_')}-{revisions[name]}"
        (home / program).parent.mkdir(parents=True, exist_ok=True)
        (home / program).symlink_to(PROGRAM)
        for marker in MARKERS:
            (home / marker).touch()
    driver = package / "_impl/_driver.py"
    text = driver.read_text(encoding="utf-8")
    if text.count(ANCHOR) != 1:
        sys.exit("browser.py: this release of Playwright makes its environment in another way; adapt ANCHOR")
    line = f'    env.setdefault("PLAYWRIGHT_BROWSERS_PATH", "{folder}")\n'
    driver.write_text(text.replace(ANCHOR, ANCHOR + line), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
