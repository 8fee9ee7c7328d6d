#!/usr/bin/env python3
"""Reads gcov's counters of the two libraries: coverage_report.py BUILD ROOT.

Prints the lines of deepspeed/ by sub-folder and how many of them ran; writes the others to BUILD/bare_lines.txt. A line
counts as run where any copy of it ran: templates and inline functions are compiled many times. Left out, and named at
the end, are folders of device code (DEVICE_FOLDERS) and sources that this build does not compile, which are the twins
of folders that it does. A line of nothing but brackets is no line: gcov counts what an exception would destroy there.
"""

import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys

DEVICE_FOLDERS = {"cuda", "nccl"}  # their code needs a GPU
BRACKETS_ALONE = re.compile(r"[\s(){};,]*")


def counts_of(notes):
    """The counts of one compiled file: (source, line) -> times."""
    counters = notes.with_suffix(".gcda")
    subject = counters if counters.exists() else notes  # without counters all lines are bare
    text = subprocess.run(
        ["gcov", "--json-format", "--stdout", str(subject)],
        cwd=notes.parent,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout
    counts = collections.Counter()
    for document in text.splitlines():
        parsed = json.loads(document)
        for source in parsed["files"]:
            path = pathlib.Path(parsed["current_working_directory"], source["file"]).resolve()
            for line in source["lines"]:
                counts[path, line["line_number"]] += line["count"]
    return counts


def ranges_of(lines):
    """[1, 2, 3, 7] as "1-3 7"."""
    parts = []
    for line in sorted(lines):
        if parts and parts[-1][1] == line - 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def print_row(name, ran, lines):
    print(f"{name:<38}{lines:>8}{ran:>8}{100 * ran / max(lines, 1):>8.1f} %")


def main(build, root):
    notes = sorted((build / "deepspeed").rglob("*.gcno"))
    if not notes:
        sys.exit(f"coverage: no compiled file with counters in {build / 'deepspeed'}; build the preset coverage")
    total = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for counts in pool.map(counts_of, notes):
            for key, count in counts.items():
                total[key] += count  # a sum of two counters would drop the lines that never ran
    counts_of_files = collections.defaultdict(dict)
    for (path, line), count in total.items():
        counts_of_files[path][line] = count
    files = {}
    left_out = collections.defaultdict(list)
    for path in sorted((root / "deepspeed").rglob("*.*")):
        name = path.relative_to(root)
        device = DEVICE_FOLDERS & set(name.parts)
        if device or (path.suffix == ".cpp" and path not in counts_of_files):
            left_out[str(name.parent), "device code" if device else "not compiled in this build"].append(name.name)
        elif path in counts_of_files:
            text = path.read_text().splitlines()
            files[name] = {line: count for line, count in counts_of_files[path].items() if not BRACKETS_ALONE.fullmatch(text[line - 1])}

    folders = collections.defaultdict(lambda: [0, 0])
    with open(build / "bare_lines.txt", "w") as bare_lines:
        for path, lines in sorted(files.items()):
            bare = [line for line, count in lines.items() if count == 0]
            ran = len(lines) - len(bare)
            for name in (str(path.parent), "deepspeed, all"):
                folders[name][0] += ran
                folders[name][1] += len(lines)
            if bare:
                bare_lines.write(f"{path}: {len(bare)} of {len(lines)}: {ranges_of(bare)}\n")
    print(f"{'folder':<38}{'lines':>8}{'run':>8}")
    for name, (ran, lines) in sorted(folders.items(), key=lambda item: (item[0] == "deepspeed, all", item[0])):
        print_row(name, ran, lines)
    for (folder, reason), names in sorted(left_out.items()):
        print(f"left out, {reason}: {folder}: {' '.join(names)}")
    print(f"lines that no test ran: {build / 'bare_lines.txt'}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
