#!/usr/bin/env python3
"""Checks #include lines against the two tables of docs/ARCHITECTURE.md.

Between folders: a file includes only what the row of its folder allows; a *_test.cc may include
everything below its folder too, and tests/. Third-party headers: only in the files of their row.
"""
import fnmatch
import re
import sys

from source_files import ROOT, markdown_table, read_text, source_files

ARCHITECTURE = "docs/ARCHITECTURE.md"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
CODE = {".h", ".cc", ".cu", ".cuh", ".mm"}

# Headers without a row in the table: those of C++, C and POSIX.
SYSTEM = set("""
algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono
cinttypes climits clocale cmath compare complex concepts condition_variable coroutine csignal
cstdarg cstddef cstdint cstdio cstdlib cstring ctime deque exception execution filesystem
forward_list fstream functional future initializer_list iomanip ios iosfwd iostream iterator latch
limits list locale map memory memory_resource mutex new numbers numeric optional ostream queue
random ranges ratio scoped_allocator semaphore set shared_mutex source_location span sstream stack
stdexcept stop_token streambuf string string_view system_error thread tuple type_traits typeindex
typeinfo unordered_map unordered_set utility valarray variant vector version
cpuid.h dirent.h errno.h fcntl.h poll.h pthread.h sched.h signal.h spawn.h stdlib.h sys/auxv.h sys/file.h
sys/mman.h sys/random.h sys/resource.h sys/socket.h sys/stat.h sys/statvfs.h sys/syscall.h
sys/time.h sys/types.h sys/uio.h
sys/un.h sys/wait.h netinet/in.h netinet/tcp.h arpa/inet.h termios.h
unistd.h sys/ioctl.h linux/futex.h malloc.h elf.h link.h
""".split())


def allowed_folders():
    """Folder to the set of folders that it may include, itself left out."""
    table = {}
    for folders, allowed in markdown_table(ARCHITECTURE, "folder"):
        for folder in folders.split(","):
            table[folder.strip()] = {name.strip() for name in allowed.split(",")}
    for folder, allowed in table.items():
        if allowed == {"(nothing of ours)"}:
            table[folder] = set()
        elif allowed == {"all"}:
            table[folder] = set(table) - {folder}
    return table


def below(folder, table):
    """Every folder that can be reached from this one."""
    found, open_ = set(), [folder]
    while open_:
        for name in table[open_.pop()]:
            if name not in found:
                found.add(name)
                open_.append(name)
    return found


def third_party_rows():
    """(pattern of the header, patterns of the files that may include it)"""
    rows = []
    for header, files, _ in markdown_table(ARCHITECTURE, "header"):
        patterns = [name.strip().strip("`") for name in files.split(",")]
        rows.append((header.strip("`<>"), patterns))
    return rows


def may_include_system(path, name, rows):
    if name in SYSTEM:
        return True
    for pattern, files in rows:
        if fnmatch.fnmatchcase(name, pattern):
            return any(fnmatch.fnmatchcase(path, file) for file in files)
    return False


def check_ours(path, name, table):
    """An error text, or None, for an #include "name" in a file of src/ or tests/."""
    if name.startswith("tests/"):
        is_test = path.endswith("_test.cc") or path.startswith(("tests/", "bench/"))
        return None if is_test and (ROOT / name).is_file() else "only tests and bench/ include tests/"
    if not (ROOT / "src" / name).is_file():
        if path.startswith("tests/") and (ROOT / "tests" / name).is_file():
            return None
        return "there is no such file below src/ (paths are relative to src/)"
    target = name.split("/")[0]
    if not path.startswith("src/"):
        return None
    folder = path.split("/")[1]
    if folder not in table:
        return f"the folder {folder} has no row in {ARCHITECTURE}"
    reach = below(folder, table) if path.endswith("_test.cc") else table[folder]
    if target == folder or target in reach:
        return None
    return f"{folder} may include {', '.join(sorted(table[folder])) or 'nothing of ours'}"


def main():
    table, rows = allowed_folders(), third_party_rows()
    errors, n_files = [], 0
    for file in source_files():
        path = file.as_posix()
        if file.suffix not in CODE or file.parts[0] not in ("src", "tests", "bench"):
            continue
        n_files += 1
        for number, line in enumerate((read_text(file) or "").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            kind, name = match.groups()
            if kind == '"':
                error = check_ours(path, name, table)
            elif may_include_system(path, name, rows):
                error = None
            else:
                error = f"a third-party header that {ARCHITECTURE} does not allow here"
            if error:
                errors.append(f"{path}:{number}: {name}: {error}")
    print("\n".join(errors))
    print(f"{n_files} files, {len(errors)} include lines that are not allowed")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())
