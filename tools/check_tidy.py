#!/usr/bin/env python3
"""What no file of the repository may hold: banned words and calls, and sizes that make one think.

Sizes are exceeded with a line `// long: <reason>` (Python, shell: `# long: <reason>`): in the first
ten lines of a file, in or right above a function, or at the end of a line.
"""
import fnmatch
import re
import sys

from source_files import read_text, source_files

CPP = (".h", ".cc", ".cu", ".cuh", ".mm", ".metal")
SELF = "tools/check_tidy.py"
LONG = re.compile(r"(//|#) long: \S")

# (name, pattern, files it applies to, files that are let off)
BANS = [
    ("a note to do later", r"\b(TODO|FIXME|XXX|HACK)\b", ["*"], []),
    ("a path outside the repository", r"\.\./shared", ["*"], []),
    ("a path of a build machine",
     r"(?<![\w.])/(work|home|root|Users|mnt|tmp/(build|brief|venv)[\w-]*)(/|\b)", ["*"], []),
    ("words about how the project is made",
     r"(?i)\b(the lead (says?|said|asks?|asked|wrote|will)|the brief\b(?!ly)|workplace|sub-?agent"
     r"|(this|another|earlier|previous|later) session|session'?s? (helper|brief))\b", ["*"], []),
    ("the number of an issue", r"(?i)\b(issues?|pull requests?|PR) (number )?#?\d+\b"
     r"|(?<![\w&/#'\"(:])#\d{1,5}\b|\b[\w.-]+/[\w.-]+#\d+\b",
     ["*.md", "*.h", "*.cc", "*.cu", "*.py", "*.txt", "*.tsv", "*.def", "*.sh", "run", "check",
      ".ci/run"], []),
    ("the host of a package registry",
     r"(?i)\b(deb\.debian\.org|security\.debian\.org|pypi\.org|pythonhosted|index-url|trusted-host"
     r"|artifactory|nexus|find-links|snapshot\.debian)\b", ["*"], []),
    ("the environment is read below apps/", r"\b(secure_)?getenv\b|\benviron\b", ["src/*"],
     ["src/apps/*"]),
    ("not in the C++20 that all compilers have",
     r"\bstd::(regex|format|vformat|jthread|stop_token|expected|print(ln)?)\b",
     ["src/*", "tests/*"], []),
    ("floats are not read with from_chars", r"from_chars\([^;]*\b(float|double)\b", ["src/*"], []),
    ("an exception of our own", r"\bthrow\b(?! away)[^.]*;", ["src/*.cc", "src/*.h"],
     ["*_test.cc"]),
    ("a test that sleeps", r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|time\.sleep\(",
     ["*_test.cc", "tests/*"], []),
    ("an address in the network",
     r"https?://(?!(127\.0\.0\.1|localhost|\[::1\]|THIS-ADDRESS|[\w.-]*\bexample\b"
     r"|www\.apache\.org/licenses|www\.w3\.org/|json-schema\.org/)|[{%$<\"'])[\w.-]+",
     ["src/*", "tests/*", "tools/*", "run", "check", ".ci/*", "*.md", "CMake*"], []),
]
DATA = ["models/*", "tests/golden/*.json", "*/corpus/*", "LICENSE", "tests/fuzz/*/*"]

# What each ban must see, in the order of BANS: (file, line). Checked at every run.
PLANTED = [
    ("src/a.cc", "// TODO: later"), ("docs/a.md", "see ../shared/design.md"),
    ("docs/a.md", "built in /work/main/build"), ("docs/a.md", "in the previous session"),
    ("src/a.cc", "// see issue 12"), ("run", "pip install --index-url x"),
    ("src/a.cc", 'std::getenv("X")'), ("src/a.h", "std::format(x)"),
    ("src/a.cc", "std::from_chars(a, b, double_value)".replace("double_value", "(double&)v")),
    ("src/a.cc", "throw Error();"), ("src/a_test.cc", "sleep_for(x);"),
    ("tools/a.py", "https://somewhere.org/x"),
]

COMMENTED_OUT = re.compile(
    r"^\s*//\s*("
    r"return\b[^.]*;|if \(.*\) ?\{|\} ?else ?\{|(for|while) \(.*[{;]"
    r"|(const|auto|int|float|double|bool|size_t|u?int\d+_t|std::[\w:<>]+) [\w&*].*;"
    r"|#\s*(include|define|if|endif)\b.*|[\w:.>-]+\([^ ]*\);|\}|\};)\s*$")

SCRIPTS = ("run", "check", ".ci/run")
LINE_MAX = 100
FILE_MAX, KERNEL_FILE_MAX = 800, 400
FUNCTION_MAX, KERNEL_FUNCTION_MAX = 70, 150


def matches(path, patterns):
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def is_kernel(path):
    return path.startswith("src/") and path.endswith(("_cpu.cc", ".cu", ".metal"))


def banned(path, lines):
    if path == SELF or matches(path, DATA):
        return
    for name, pattern, applies, let_off in BANS:
        if not matches(path, applies) or matches(path, let_off):
            continue
        regex = re.compile(pattern)
        for number, line in enumerate(lines, 1):
            match = regex.search(line)
            if match:
                yield number, f"{name}: {match.group(0).strip()!r}"


def unseen_plants():
    """Bans that do not see the line that was written for them."""
    for (name, pattern, applies, let_off), (path, line) in zip(BANS, PLANTED, strict=True):
        is_seen = matches(path, applies) and not matches(path, let_off) and re.search(pattern, line)
        if not is_seen:
            yield f"{SELF}: the ban of {name} does not see {line!r} in {path}"
    if not list(unopened("src/a_test.cc", ['#include "base/b.h"'])):
        yield f"{SELF}: a file that opens with another's header is not seen"


def commented_out(path, lines):
    if path.endswith(CPP):
        for number, line in enumerate(lines, 1):
            if COMMENTED_OUT.match(line):
                yield number, "looks like commented-out code"


def too_wide(path, lines):
    # The scripts that made the bundled model are kept as they ran.
    is_code = path.endswith(CPP + (".py", ".sh", "CMakeLists.txt")) or path in SCRIPTS
    # Columns of C++ are the formatter's; a string that it cannot break may be longer.
    is_code = is_code and not path.endswith(CPP) and not path.endswith(".py")
    if is_code:
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_MAX and not LONG.search(line):
                yield number, f"{len(line)} columns, at most {LINE_MAX}"


def too_long(path, lines):
    if not path.endswith(CPP):
        return
    limit = KERNEL_FILE_MAX if is_kernel(path) else FILE_MAX
    if len(lines) > limit and not any(LONG.search(line) for line in lines[:10]):
        yield 1, f"{len(lines)} lines, at most {limit}"
    limit = KERNEL_FUNCTION_MAX if is_kernel(path) else FUNCTION_MAX
    for first, last in functions(lines):
        around = lines[max(0, first - 3):last]
        if last - first > limit and not any(LONG.search(line) for line in around):
            yield first + 1, f"a function of {last - first} lines, at most {limit}"


OWN_HEADER = re.compile(r'#include "(?:\w+/)*(\w+)\.h"')


def unopened(path, lines):
    """A file opens with a sentence on what it owns, or with the header that holds it: its own, or
    of a test the tested one's."""
    code = [line for line in lines if line.strip() and not line.startswith(("#pragma", "#!"))]
    first = code[0] if code else ""
    if path.endswith((".py", ".sh")):
        is_open = first.startswith(('"""', 'r"""', "#"))
    elif path.endswith(CPP):
        own = OWN_HEADER.match(first)
        stem = path.rsplit("/", 1)[-1].split(".")[0].removesuffix("_test")
        is_open = first.startswith("//") or bool(own and own.group(1) == stem)
    else:
        return
    if not is_open:
        yield 1, "the file does not open with a sentence on what it owns"


def functions(lines):
    """(index of the first line, index behind the last) of each function in formatted code.

    The code is laid out by clang-format: a function begins at column 0 (column 2 in a class) with
    a line that is no class, namespace or list, and ends at a brace in the same column.
    """
    other = re.compile(r"\s*(namespace|class|struct|union|enum|extern|template|using|#|//|\}"
                       r"|public:|private:|if|for|while|switch|do|else|const\w* .*="
                       r"|static const.*=)")
    for indent in ("", "  "):
        begin = None
        for index, line in enumerate(lines):
            if begin is not None:
                if line.startswith(indent + "}"):
                    yield begin, index + 1
                    begin = None
                continue
            starts_here = line.startswith(indent) and line[len(indent):len(indent) + 1].strip()
            if starts_here and not other.match(line) and "(" in line and not line.endswith(";"):
                opening = opening_line(lines, index, indent)
                begin = index if opening else None


def opening_line(lines, index, indent):
    """True if the declaration that starts here opens a body that ends on a later line."""
    for line in lines[index:index + 12]:
        if line.endswith("{"):
            return True
        if line.endswith((";", "}", "},", ")")) and not line.startswith(indent + "   "):
            return False
    return False


def untested_refusals(texts):
    """Every refusal code is given somewhere, and provoked by at least one test: by its enumerator
    or its code."""
    table = "src/base/refusals.def"
    tests = "\n".join(text for path, text in texts.items() if path.endswith("_test.cc") or
                      (path.startswith("tests/") and not matches(path, DATA)))
    product = "\n".join(text for path, text in texts.items()
                        if path.startswith("src/") and not path.endswith("_test.cc"))
    row = re.compile(r'^ROOST_REFUSAL\((\w+),\s*"([\w.]+)"')
    for number, line in enumerate(texts[table].splitlines(), 1):
        match = row.match(line)
        if match and not re.search(rf"Refusal::{match.group(1)}\b"
                                   rf"|(?<![\w.]){re.escape(match.group(2))}(?![\w.])", tests):
            yield number, f"no test provokes {match.group(2)}"
        if match and not re.search(rf"Refusal::{match.group(1)}\b", product):
            yield number, f"nothing gives {match.group(2)}"


def stale_citations(texts):
    """A comment cites a page of docs/ by the name of a section: that section must exist."""
    citation = re.compile(r"docs/(\w+)\.md,\s+(?://\s*|#\s*)?([\w'-]+(?: [\w'-]+){0,3})")
    headings = {path[5:-3]: re.findall(r"^#+ (.*)", text, re.MULTILINE)
                for path, text in texts.items() if re.fullmatch(r"docs/\w+\.md", path)}
    for path, text in texts.items():
        if not path.startswith(("src/", "tests/")):
            continue
        for match in citation.finditer(text):
            page, words = match.groups()
            cited = words.lower()
            names = [heading.lower() for heading in headings.get(page, [])]
            if not any(cited.startswith(name) or name.startswith(cited) for name in names):
                number = text.count("\n", 0, match.start()) + 1
                yield path, number, f"docs/{page}.md has no section '{words}'"


def main():
    texts = {}
    for file in source_files():
        text = read_text(file)
        if text is not None:
            texts[file.as_posix()] = text
    errors = [f"src/base/refusals.def:{n}: {what}" for n, what in untested_refusals(texts)]
    errors += [f"{path}:{n}: {what}" for path, n, what in stale_citations(texts)]
    errors += unseen_plants()
    for path, text in texts.items():
        lines = text.splitlines()
        for check in (banned, commented_out, too_wide, too_long, unopened):
            errors += [f"{path}:{number}: {what}" for number, what in check(path, lines)]
    print("\n".join(errors))
    print(f"{len(texts)} files, {len(errors)} faults")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
