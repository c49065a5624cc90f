"""Every message id of base/diags.def is expected by a golden test of tests/lit: a message that no case shows may have
lost its place, its note, or its sense."""
import os
import re

from common import Cases, open_tools, require

# What only a fault of our own can raise.
UNREACHABLE = {"BAD_PASS"}


def ids(source):
    with open(os.path.join(source, "base", "diags.def")) as f:
        return re.findall(r"^FG_DIAG\((\w+),", f.read(), re.M)


def shown(source):
    """The ids in brackets that the golden tests expect."""
    found = set()
    for where, _, names in os.walk(os.path.join(source, "tests", "lit")):
        for name in names:
            if name.endswith((".test", ".fg")):
                with open(os.path.join(where, name), errors="replace") as f:
                    found.update(re.findall(r"\[([a-z-]+)\]", f.read()))
    return {word.upper().replace("-", "_") for word in found}


def every_id(source):
    known = ids(source)
    require(len(known) > 20, "base/diags.def could not be read")
    missing = set(known) - shown(source) - UNREACHABLE
    require(not missing, "no golden test expects: " + ", ".join(sorted(missing)))


def main():
    tools, _ = open_tools()
    cases = Cases()
    cases.run("diags: every id is expected by a test", every_id, tools.source)
    tools.close()
    cases.end()


main()
