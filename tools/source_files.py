"""The files of the repository, for the checks that read them."""
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def source_files():
    """Paths, relative to the root, of every file that is tracked or would be by `git add -A`."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = sorted({Path(name) for name in listing.split("\0") if name})
    return [path for path in paths if (ROOT / path).is_file()]


def read_text(path):
    """The text of a file, or None for a binary one."""
    data = (ROOT / path).read_bytes()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def markdown_table(path, first_heading):
    """The rows, as lists of cells, of the table whose first heading cell is first_heading."""
    rows, inside = [], False
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            if inside:
                break
        elif cells[0] == first_heading:
            inside = True
        elif inside and not set(line) <= set("|-: "):
            rows.append(cells)
    if not rows:
        raise SystemExit(f"{path}: there is no table with the heading '{first_heading}'")
    return rows
