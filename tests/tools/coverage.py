"""What of the compiler the suite runs, from the counters of a build with -DFG_COVERAGE=ON.

    coverage.py --build B --source S [--refusals] [--missed FOLDER]

Prints a table of folders: lines that ran, branches that were taken. With --refusals: every place of the checker and the read-back
that refuses a program and was not reached; ends with 1 when there is one. With --missed: the lines of a folder that did not run.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys

FOLDERS = ("base", "ir", "frontend", "passes", "readback", "codegen", "tools", "runtime/host", "runtime/launch", "runtime/trainer")
# Where a program is refused, and the functions that do it.
PROOF = re.compile(r"passes/(check\w*|trace)\.c$|readback/\w+\.c$")
REFUSES = re.compile(r"\b(fg_check_fail|fg_check_fail_module|fg_rb_fail|fg_rb_unsafe|fg_diag|FAIL|DIFFER|wrong|wrong_content|refuse|fail)\(")


def counters(build):
    for where, _, names in os.walk(build):
        for name in names:
            if name.endswith(".gcda"):
                yield os.path.join(where, name)


def read(gcda):
    done = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", gcda], capture_output=True, text=True,
                          cwd=os.path.dirname(gcda))  # fmt: skip
    return [json.loads(line) for line in done.stdout.split("\n") if line.startswith("{")]


def collect(build, source):
    """file -> line -> [count, [count of each branch]]"""
    found = {}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for units in pool.map(read, counters(build)):
            for unit in units:
                for file in unit["files"]:
                    path = os.path.normpath(os.path.join(unit["current_working_directory"], file["file"]))
                    name = os.path.relpath(path, source)
                    if name.startswith("..") or not name.endswith(".c"):
                        continue
                    add(found.setdefault(name, {}), file["lines"])
    return found


def add(lines, more):
    """A file may be compiled more than once, and a line have code in more than one function."""
    for row in more:
        branches = [branch["count"] for branch in row["branches"]]
        old = lines.setdefault(row["line_number"], [0, []])
        old[0] += row["count"]
        if len(old[1]) == len(branches):
            old[1] = [a + b for a, b in zip(old[1], branches)]
        else:
            old[1] = branches if len(branches) > len(old[1]) else old[1]


def share(part, whole):
    return f"{100 * part / whole:.1f} % of {whole:,}" if whole else "-"


def table(found):
    print("| folder | lines | branches |\n|---|---|---|")
    rows = [(folder, [lines for name, lines in found.items() if name.startswith(folder + "/")]) for folder in FOLDERS]
    rows.append(("the checker (passes/check*.c)", [lines for name, lines in found.items() if re.match(r"passes/check", name)]))
    for title, files in rows:
        counts = [line for lines in files for line in lines.values()]
        branches = [count for line in counts for count in line[1]]
        ran = sum(1 for line in counts if line[0])
        taken = sum(1 for count in branches if count)
        print(f"| {title} | {share(ran, len(counts))} | {share(taken, len(branches))} |")


def refusals(found, source):
    """Places that refuse: (file, line, text, times reached)."""
    for name in sorted(found):
        if not PROOF.search(name):
            continue
        with open(os.path.join(source, name)) as f:
            texts = f.read().split("\n")
        for number, text in enumerate(texts, 1):
            if REFUSES.search(text) and text.startswith(" ") and not text.lstrip().startswith("*"):
                lines = found[name]
                at = next((n for n in range(number, number + 4) if n in lines), None)
                if at:  # otherwise this build leaves it out
                    yield name, number, text.strip(), lines[at][0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--refusals", action="store_true")
    parser.add_argument("--missed")
    given = parser.parse_args()
    found = collect(os.path.abspath(given.build), os.path.abspath(given.source))
    if given.missed:
        for name in sorted(found):
            missed = [number for number, line in sorted(found[name].items()) if not line[0]]
            if name.startswith(given.missed) and missed:
                print(f"{name}: {' '.join(str(number) for number in missed)}")
        return 0
    if given.refusals:
        places = list(refusals(found, given.source))
        missed = [place for place in places if not place[3]]
        for name, number, text, _ in missed:
            print(f"{name}:{number}: not reached: {text}")
        print(f"{len(places)} places that refuse, {len(places) - len(missed)} reached")
        return 1 if missed or not places else 0
    table(found)
    return 0


sys.exit(main())
