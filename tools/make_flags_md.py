#!/usr/bin/env python3
"""Writes docs/FLAGS.md from src/apps/flags.def, the commands of src/apps/command_line.cc and
src/base/limits.h; with --check says whether it is stale."""
import re
import sys

from generated_page import write_or_check
from source_files import ROOT

FLAGS = ROOT / "src/apps/flags.def"
COMMANDS = ROOT / "src/apps/command_line.cc"
LIMITS = ROOT / "src/base/limits.h"
PAGE = ROOT / "docs/FLAGS.md"
FLAG = re.compile(r'^ROOST_FLAG\(([\w |]+), \w+, ([\w:<>]+), (.*?), "([-\w,]+)", "(.*?)", "(.*)"\)\s*$')
COMMAND = re.compile(r'\{(k\w+), "(\w+)", "([^"]*)", "([^"]*)",\s*"([^"]*)"\}')
LIMIT = re.compile(r"inline constexpr (?:size_t|int64_t|int) (k\w+) =\s*([^;]+);((?:[ ]*//.*(?:\n[ ]*//.*)*)?)")
HEAD = """# Commands, flags, limits

Every flag of every command, and every bound on what comes from outside. `roost COMMAND --help`, the
man page (`roost man`) and the completions of shells (`roost completion bash|zsh|fish`) say the same.

Made by `tools/make_flags_md.py` from `src/apps/flags.def`, `src/apps/command_line.cc` and
`src/base/limits.h`; not edited by hand.
"""


def commands():
    text = COMMANDS.read_text(encoding="utf-8")
    found = COMMAND.findall(text[text.index("kCommands[]"):])
    return [(kind, ("bench " if kind == "kBenchServe" else "") + name, what, argument, about)
            for kind, name, what, argument, about in found]


def flags():
    out = []
    for number, line in enumerate(FLAGS.read_text(encoding="utf-8").splitlines(), 1):
        match = FLAG.match(line)
        if match:
            kinds, type_, default, spelling, value, what = match.groups()
            out.append((kinds.replace(" ", "").split("|"), type_, default, spelling, value, what))
        elif line.startswith("ROOST_FLAG"):
            raise SystemExit(f"{FLAGS.name}:{number}: not a row that this tool can read")
    return out


def cell(text):
    return text.replace("|", "\\|")


def default_of(type_, default):
    if type_ == "bool" or default in ('""', "{}", "std::nullopt"):
        return ""
    return f"`{cell(default.strip(chr(34)))}`"


def number_of(expression, is_bytes):
    expression = re.sub(r"(size_t|int64_t)\{([\d']+)\}", r"\2", expression).replace("'", "")
    value = eval(expression, {"__builtins__": {}})  # shifts and products of a header of ours
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if is_bytes and value >= unit and value % unit == 0:
            return f"{value // unit} {name}"
    return f"{value:,}"


def limits():
    rows = []
    for name, expression, comment in LIMIT.findall(LIMITS.read_text(encoding="utf-8")):
        words = re.sub(r"(?<!^)([A-Z])", lambda m: " " + m[1].lower(), name[1:])
        comment = " ".join(part.strip(" /") for part in comment.splitlines()).strip()
        value = number_of(expression, "Bytes" in name)
        rows.append(f"| {words[0].lower() + words[1:]} | {value} | {cell(comment)} |")
    return rows


def page():
    out = [HEAD]
    rows = flags()
    for kind, name, what, argument, about in commands():
        out.append(f"## roost {name} {argument}".rstrip() + f"\n\n{what[0].upper() + what[1:]}."
                   + (f" {argument}: {about}." if argument else "") + "\n")
        own = [row for row in rows if kind in row[0]]
        if own:
            out.append("| flag | default | what |\n|---|---|---|")
            for _, type_, default, spelling, value, what_flag in own:
                names = ", ".join(f"`{one}`" for one in spelling.split(","))
                shown = f" {cell(value)}" if value else ""
                out.append(f"| {names}{shown} | {default_of(type_, default)} | {cell(what_flag)} |")
            if kind == "kServe":
                out.append("| `--config` FILE |  | file of flags, in a section [serve]; the command line wins |\n"
                           "| `--print-config` |  | print the flags as such a file, and end |")
            out.append("")
    out.append("## Limits\n\nFixed when roost is built; those of a request are also in `/props`.\n")
    out.append("| limit | value | what |\n|---|---|---|")
    return "\n".join(out + limits()) + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), "make_flags_md.py"))
