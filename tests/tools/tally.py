"""Runs one test entry and counts its single cases.

    tally.py FOLDER NAME -- COMMAND...

Cases are lines of the command's output: `what it is ok` / `what it is FAILED` (our own programs), or lit's `PASS: ...`
and its other results. The counts go to FOLDER/NAME; scripts/test adds them up. The entry fails when the command does,
when a case failed or did not run (skipped, unsupported), and when there was no case at all.
"""
import os
import re
import subprocess
import sys

OURS = re.compile(r"^\S.* (ok|FAILED)$")
LIT = re.compile(r"^(PASS|XFAIL|FAIL|XPASS|UNRESOLVED|UNSUPPORTED|TIMEOUT|SKIPPED|EXCLUDED|FLAKYPASS): ")


def main():
    folder, name, dashes, *command = sys.argv[1:]
    if dashes != "--" or not command:
        sys.exit("usage: tally.py FOLDER NAME -- COMMAND...")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write("0 1\n")  # what stands there if this process is killed
    passed = failed = 0
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in child.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        ours, lit = OURS.match(line.rstrip("\n")), LIT.match(line)
        if ours:
            good = ours.group(1) == "ok"
        elif lit:
            good = lit.group(1) in ("PASS", "XFAIL")
        else:
            continue
        passed += good
        failed += not good
    code = child.wait()
    if code != 0 and failed == 0:
        print(f"{name}: the command ended with {code}")
        failed = 1
    if passed + failed == 0:
        print(f"{name}: no case ran")
        failed = 1
    with open(path, "w") as f:
        f.write(f"{passed} {failed}\n")
    sys.exit(1 if failed else 0)


main()
