"""A page of docs/ that a tool makes from a table of the source."""
import sys


def write_or_check(page, text, tool):
    """Writes the page; with --check on the command line only says whether it is stale. Exit status."""
    if "--check" not in sys.argv[1:]:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"docs/{page.name} is stale: run tools/{tool}")
    return 1
