"""Write the version record of the image: what is in it and in which version."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from pathlib import Path

TOOLS = {
    "bash": ["bash", "--version"],
    "chromium": ["chromium", "--version"],
    "curl": ["curl", "--version"],
    "dot": ["dot", "-V"],
    "ffmpeg": ["ffmpeg", "-version"],
    "git": ["git", "--version"],
    "jq": ["jq", "--version"],
    "magick": ["magick", "--version"],
    "pandoc": ["pandoc", "--version"],
    "pdftoppm": ["pdftoppm", "-v"],
    "qpdf": ["qpdf", "--version"],
    "rg": ["rg", "--version"],
    "rsvg-convert": ["rsvg-convert", "--version"],
    "sqlite3": ["sqlite3", "--version"],
    "tesseract": ["tesseract", "--version"],
    "typst": ["typst", "--version"],
    "vips": ["vips", "--version"],
}


def output_of(command: list[str]) -> str:
    """Return what a command prints on both streams, or "" where it is not installed."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False
        )
    except OSError:
        return ""
    return done.stdout


def debian_packages() -> dict[str, str]:
    """Return package name -> version of everything that dpkg has installed."""
    pattern = "${db:Status-Abbrev}\t${Package}\t${Version}\n"
    rows = (line.split("\t") for line in output_of(["dpkg-query", "-W", "-f", pattern]).splitlines())
    return {row[1]: row[2] for row in rows if row[0].startswith("ii")}


def python_packages() -> dict[str, str]:
    """Return normalised name -> version of the distributions in the environment that runs this file."""
    found = importlib.metadata.distributions()
    return dict(sorted((re.sub(r"[-_.]+", "-", d.name).lower(), d.version) for d in found))


def font_families() -> list[str]:
    """Return the family names that fontconfig offers, each under its first name."""
    lines = output_of(["fc-list", "--format", "%{family[0]}\n"]).splitlines()
    return sorted({line.strip() for line in lines if line.strip()})


def tool_versions(debian: dict[str, str]) -> dict[str, str]:
    """Return tool -> first version number it prints; LibreOffice from dpkg (it is slow to ask)."""
    versions: dict[str, str] = {"python": platform.python_version()}
    for name, command in TOOLS.items():
        found = re.search(r"\d+(?:\.\d+)+", output_of(command))
        if found:
            versions[name] = found.group()
    office = debian.get("libreoffice-core-nogui", "")
    if office:
        versions["soffice"] = re.sub(r"^\d+:", "", office).split("-")[0].split("+")[0]
    return dict(sorted(versions.items()))


def record(suite: str, groups: list[str], content_hash: str, built: datetime.datetime) -> dict[str, object]:
    """Return the record as it is written."""
    debian = debian_packages()
    return {
        "name": "foliobox-sandbox",
        "hash": content_hash,
        "built": built.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "suite": suite,
        "architecture": platform.machine(),
        "groups": groups,
        "tools": tool_versions(debian),
        "python": python_packages(),
        "debian": dict(sorted(debian.items())),
        "fonts": font_families(),
    }


def main() -> None:
    """Read the arguments that install.sh gives, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True)
    parser.add_argument("--groups", required=True, help="names with blanks between")
    parser.add_argument("--hash", required=True)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    now = datetime.datetime.now(datetime.UTC)
    built = datetime.datetime.fromtimestamp(int(epoch), datetime.UTC) if epoch.isdigit() else now
    content = record(args.suite, args.groups.split(), args.hash, built)
    args.out.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
