"""Faults in trained programs: events of a small model, on the host all of them, and some of a larger one.

    run_faults.py --build B --source S host|pretend

`host` has its ranks as threads of one process; `pretend` is the cuda runtime on a pretended device, a process a rank.
"""
import os
import sys

from common import Cases, open_tools, pretend_program, require
from faults import KINDS, Dumping, Saving, Sweep, run, small_model

FLAGS = ("--ranks", 2, "--clip", 0.5, "--precision", "bf16")
ALL = 1000000


def program(tools, kind, model, name):
    """What starts a run of the model with more options."""
    path, data = tools.path(name), tools.path("data.bin")
    if kind == "host":
        tools.call(tools.foregather, "compile", model, *FLAGS, "-o", path)
    else:
        pretend_program(tools, model, FLAGS, path)
    if not os.path.exists(data):
        tools.call(tools.foregather, "tokens", "--bytes", os.path.join(tools.source, "docs", "ops.md"), "-o", data)
    ranks = ["--local-ranks", "2"]
    return lambda *options: [path, "--data", data, *ranks, *(str(word) for word in options)]


def sweep(tools, kind, scenario, kinds, most, wanted):
    n = Sweep(tools, scenario, 2, kind != "host").all(kinds, most)
    print(f"  {n} faults")
    require(n >= wanted, f"only {n} faults: the sweep does not reach what it should")


def wrong_faults(command):
    status, said = run(command("--steps", 1), "write:x")
    require(status == 2 and "FG_FAULT is 'write:x'; it is KIND:N or KIND:N:RANK" in said, f"{status}:\n{said}")


def main():
    tools, (kind,) = open_tools()
    cases = Cases()
    small = program(tools, kind, small_model(tools), "small")
    large = program(tools, kind, tools.example("tiny-llama.json"), "large")
    host = kind == "host"
    saving = cases.run(f"faults: {kind}, a run without", Saving, tools, "small-saving", small)
    dumping = cases.run(f"faults: {kind}, a dump without", Dumping, tools, "small-dumping", small)
    bigger = cases.run(f"faults: {kind}, a larger run without", Saving, tools, "large-saving", large)
    if not (saving and dumping and bigger):
        cases.end()
    for each in KINDS:
        most = ALL if host else 10
        cases.run(f"faults: {kind}, {'every' if host else 'some'} {each} of a run that saves", sweep, tools, kind, saving, (each,), most, 3)
    cases.run(f"faults: {kind}, files that are replaced", sweep, tools, kind, dumping, ("read", "write", "copy"), 12 if host else 6, 20)
    cases.run(f"faults: {kind}, some of a larger run", sweep, tools, kind, bigger, KINDS[1:], 6 if host else 3, 25)
    if host:
        cases.run("faults: one that is none", wrong_faults, small)
    tools.close()
    cases.end()


if __name__ == "__main__":
    sys.exit(main())
