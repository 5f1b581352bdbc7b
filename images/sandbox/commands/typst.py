"""``typst``: the command line of Typst over its Python package, with the messages and exit codes of the original."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import typst

from . import typst_files

ENDED_WELL, FAILED, MISUSED = 0, 1, 2
STDIN_NAME = "__typst_py_bytes__.typ"
FORMATS = ("pdf", "png", "svg", "html")
FEATURES = ("html", "bundle", "a11y-extras")
ELSEWHERE = {
    "watch": "run `typst compile` again after each change",
    "w": "run `typst compile` again after each change",
    "init": "templates come from a server that a sandbox does not reach; write the file yourself",
    "update": "the version belongs to the image of the sandbox",
}


class Failed(Exception):
    """What ends the command with exit code 1; the text goes to standard error as it is."""


def error(text: str, *hints: str) -> Failed:
    """A failure without a place in a source file."""
    return Failed("\n".join([f"error: {text}", *(f"  = hint: {hint}" for hint in hints)]) + "\n")


def listed(name: str) -> list[str]:
    """The paths of a variable that holds several, as PATH does."""
    return [part for part in os.environ.get(name, "").split(os.pathsep) if part]


def truthy(name: str) -> bool:
    """Whether a variable switches something on."""
    return os.environ.get(name, "").lower() in {"1", "true", "yes", "on"}


def pair(text: str) -> tuple[str, str]:
    """``key=value`` of ``--input``."""
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise argparse.ArgumentTypeError("input must be a key and a value separated by an equal sign")
    return key.strip(), value


def add_world(parser: argparse.ArgumentParser) -> None:
    """The options that say what a document can see."""
    environ = os.environ.get
    parser.add_argument("--root", metavar="DIR", default=environ("TYPST_ROOT"))
    parser.add_argument("--input", metavar="key=value", action="append", type=pair, default=[], dest="inputs")
    parser.add_argument("--font-path", metavar="DIR", action="append", default=[], dest="font_paths")
    parser.add_argument("--ignore-system-fonts", action="store_true", default=truthy("TYPST_IGNORE_SYSTEM_FONTS"))
    parser.add_argument("--ignore-embedded-fonts", action="store_true", default=truthy("TYPST_IGNORE_EMBEDDED_FONTS"))
    parser.add_argument("--package-path", metavar="DIR", default=environ("TYPST_PACKAGE_PATH"))
    parser.add_argument("--package-cache-path", metavar="DIR", default=environ("TYPST_PACKAGE_CACHE_PATH"))
    parser.add_argument("--creation-timestamp", metavar="UNIX", type=int, default=environ("SOURCE_DATE_EPOCH"))
    parser.add_argument("--features", action="append", default=[environ("TYPST_FEATURES", "")])
    parser.add_argument("--diagnostic-format", choices=["human", "short"], default="human")
    # Accepted and without effect: the package decides these by itself.
    parser.add_argument("-j", "--jobs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--color", choices=["auto", "always", "never"], help=argparse.SUPPRESS)
    parser.add_argument("--cert", help=argparse.SUPPRESS)


def build_parser() -> argparse.ArgumentParser:
    """The command line; argparse ends a wrong one with exit code 2, as the original does."""
    parser = argparse.ArgumentParser(prog="typst", description="The Typst compiler.", allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=f"typst {typst.__version__} (Python package)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    make = commands.add_parser("compile", aliases=["c"], help="compile a document", allow_abbrev=False)
    make.add_argument("source", metavar="INPUT", help="path of the main file; - reads standard input")
    make.add_argument("output", metavar="OUTPUT", nargs="?", help="path to write; - writes standard output")
    make.add_argument("-f", "--format", choices=FORMATS)
    make.add_argument("--pages", type=typst_files.page_ranges, metavar="PAGES", help="such as 1,3-6,8-")
    make.add_argument("--pdf-standard", action="append", default=[], metavar="STANDARD")
    make.add_argument("--no-pdf-tags", action="store_true")
    make.add_argument("--ppi", type=float, default=144.0)
    make.add_argument("--pretty", action="store_true")
    add_world(make)
    query = commands.add_parser("query", help="print elements of a document", allow_abbrev=False)
    query.add_argument("source", metavar="INPUT")
    query.add_argument("selector", metavar="SELECTOR")
    query.add_argument("--field")
    query.add_argument("--one", action="store_true")
    query.add_argument("--format", choices=["json", "yaml"], default="json")
    query.add_argument("--pretty", action="store_true", help=argparse.SUPPRESS)
    add_world(query)
    fonts = commands.add_parser("fonts", help="list the fonts that documents can use", allow_abbrev=False)
    fonts.add_argument("--variants", action="store_true")
    add_world(fonts)
    for name, instead in ELSEWHERE.items():
        without = commands.add_parser(name, help=argparse.SUPPRESS, add_help=False, prefix_chars="\0")
        without.add_argument("rest", nargs="*")
        without.set_defaults(instead=instead)
    return parser


def fonts_of(options: argparse.Namespace) -> typst.Fonts:
    """The fonts of the system and of the named folders."""
    paths: list[typst.Input] = [*listed("TYPST_FONT_PATHS"), *options.font_paths]
    return typst.Fonts(
        include_system_fonts=not options.ignore_system_fonts,
        include_embedded_fonts=not options.ignore_embedded_fonts,
        font_paths=paths,
    )


def source_of(options: argparse.Namespace) -> tuple[str | bytes, str]:
    """The main file (or the bytes of standard input) and the root folder."""
    if options.source == "-":
        return sys.stdin.buffer.read(), options.root or os.getcwd()
    path = Path(options.source)
    if not path.exists():
        raise error(f"input file not found (searched at {options.source})")
    if path.is_dir():
        raise error(f"failed to load file (is a directory: {options.source})")
    return options.source, options.root or str(path.resolve().parent)


def compiler_of(options: argparse.Namespace) -> typst.Compiler:
    """A compiler for the document, seeing what the options let it see."""
    source, root = source_of(options)
    return typst.Compiler(
        source,
        root=root,
        font_paths=fonts_of(options),
        sys_inputs=dict(options.inputs),
        package_path=options.package_path,
        package_cache_path=options.package_cache_path,
    )


def format_of(options: argparse.Namespace) -> str:
    """The wanted format: by the option, else by the output's extension, else PDF."""
    wanted = options.format
    if wanted is None and options.output not in (None, "-"):
        wanted = Path(options.output).suffix.lstrip(".").lower()
        if wanted not in FORMATS:
            hint = "consider providing the format manually with `--format/-f`"
            raise Failed(f"error: could not infer output format for path {options.output}.\n{hint}\n")
    wanted = wanted or "pdf"
    features = {name.strip() for group in options.features for name in group.split(",") if name.strip()}
    if unknown := sorted(features - set(FEATURES)):
        raise error(f"invalid value '{unknown[0]}' for '--features <FEATURES>'")
    if wanted == "html" and "html" not in features:
        raise error("html export is only available when `--features html` is passed")
    return str(wanted)


def told(diagnostic: str, options: argparse.Namespace) -> str:
    """A diagnostic in the wanted form, with the name that the original gives to standard input."""
    text = diagnostic.replace(STDIN_NAME, "<stdin>").rstrip("\n") + "\n"
    return typst_files.short(text) if options.diagnostic_format == "short" else text


def compile_document(options: argparse.Namespace) -> None:
    """``typst compile``."""
    if options.output is None:
        if options.source == "-":
            print("error: the following required arguments were not provided:\n  [OUTPUT]", file=sys.stderr)
            raise SystemExit(MISUSED)
        options.output = str(Path(options.source).with_suffix(f".{options.format or 'pdf'}"))
    wanted = format_of(options)
    data, warnings = compiler_of(options).compile_with_warnings(
        format=wanted,
        ppi=options.ppi,
        pdf_standards=options.pdf_standard,
        timestamp=None if options.creation_timestamp is None else int(options.creation_timestamp),
        pretty=options.pretty,
        pdf_tags=not options.no_pdf_tags,
    )
    for warning in warnings:
        sys.stderr.write(told(warning.diagnostic, options))
    pages = data if isinstance(data, list) else [data or b""]
    try:
        typst_files.deliver(pages, wanted, options.output, options.pages)
    except typst_files.ManyPagesError as many:
        raise error(str(many)) from None
    except OSError as cause:
        what = {"pdf": "PDF", "png": "PNG", "svg": "SVG", "html": "HTML"}[wanted]
        raise error(f"failed to write {what} file ({cause.strerror or cause} (os error {cause.errno}))") from None


def query_document(options: argparse.Namespace) -> None:
    """``typst query``."""
    found = compiler_of(options).query(options.selector, options.field, options.one, options.format)
    print(found)


def list_fonts(options: argparse.Namespace) -> None:
    """``typst fonts``."""
    fonts = fonts_of(options)
    for family in sorted(fonts.families(), key=str.lower):
        print(family)
        if options.variants:
            for font in (each for each in fonts.fonts() if each.family == family):
                print(f"- Style: {font.style}, Weight: {font.weight}, Stretch: {font.stretch}, Path: {font.path}")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    options = build_parser().parse_args(arguments)
    if instead := getattr(options, "instead", ""):
        print(f"error: `typst {options.command}` is not in this sandbox: {instead}", file=sys.stderr)
        return FAILED
    steps = {"compile": compile_document, "c": compile_document, "query": query_document, "fonts": list_fonts}
    try:
        steps[options.command](options)
    except Failed as failed:
        sys.stderr.write(str(failed))
        return FAILED
    except typst.TypstError as wrong:
        sys.stderr.write(told(wrong.diagnostic or f"error: {wrong.message}", options))
        return FAILED
    except (OSError, RuntimeError, ValueError) as wrong:
        sys.stderr.write(f"error: {wrong}\n")
        return FAILED
    return ENDED_WELL


if __name__ == "__main__":
    sys.exit(main())
