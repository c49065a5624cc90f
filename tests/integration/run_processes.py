"""Programs of the cuda target on a pretended device (tests/pretend): one process a rank, their files, ends and failures.

    run_processes.py --build B --source S

Kernels are the host's and two ranks add alike in any order, so results must be the host's, bit by bit.
"""
import os
import re
import signal
import subprocess
import time

from common import Cases, Wrong, checkpoint, open_tools, pretend_program, read_log, require, same_bytes, write_tokens

FLAGS = ("--ranks", 2, "--batch", 2, "--clip", 0.5, "--accumulate", 3)
SHELL = {"LOCAL_RANK": "", "MASTER_PORT": "no port"}  # RANK, WORLD_SIZE and MASTER_ADDR stand, and no launcher's own
FOREVER = 100000000


class Programs:
    def __init__(self, tools, name="", flags=FLAGS):
        self.tools, self.name = tools, name
        self.host, self.cuda, self.data = (tools.path(name + x) for x in ("host", "cuda", "data.bin"))
        model = tools.example("tiny-llama.json")
        tools.call(tools.foregather, "compile", model, *flags, "-o", self.host)
        tools.call(tools.foregather, "tokens", "--bytes", os.path.join(tools.source, "docs", "ops.md"), "-o", self.data)
        pretend_program(tools, model, flags, self.cuda)

    def command(self, program, *options):
        return [program, "--data", self.data, "--lr", "1e-3", *(str(word) for word in options)]

    def ranks(self, *options):
        return self.command(self.cuda, "--local-ranks", 2, *options)


def steps(log):
    rows = read_log(log)
    return [(rows[s]["loss"], rows[s]["grad_norm"], rows[s]["learning_rate"]) for s in sorted(rows)]


def as_host(p, *options):
    """Losses, norms and the checkpoint of six steps."""
    t = p.tools
    name = p.name + "as-host" + "".join(options)
    logs, saves = [t.path(f"{name}-{x}.jsonl") for x in "ab"], [t.path(f"{name}-{x}") for x in "ab"]
    t.call(*p.command(p.host, "--steps", 6, "--log", logs[0], "--save", saves[0]))
    t.call(*p.ranks("--steps", 6, "--log", logs[1], "--save", saves[1], *options))
    require(len(steps(logs[0])) == 6 and steps(logs[0]) == steps(logs[1]), f"{steps(logs[0])} against {steps(logs[1])}")
    same_bytes(checkpoint(saves[0]), checkpoint(saves[1]), "checkpoints")


def scaled(p):
    """fp16: overflows are skipped and the scale grows, as on the host, in graphs, one step ahead. (In 16 bits, sums of two
    ranks are the host's where they are rounded once: without micro-steps.)"""
    runs = []
    for name, command in (("a", p.command(p.host)), ("b", p.ranks())):
        log, save = p.tools.path(f"scaled-{name}.jsonl"), p.tools.path(f"scaled-{name}")
        p.tools.call(*command, "--steps", 10, "--loss-scale-init", 2**26, "--loss-scale-window", 2, "--log", log, "--save", save)
        rows = read_log(log)
        runs.append([[rows[s][key] for key in ("loss", "grad_norm", "loss_scale", "skipped")] for s in sorted(rows)])
    require(runs[0] == runs[1], f"{runs[0]} against {runs[1]}")
    require(len({row[3] for row in runs[0]}) == 2, f"all or none are skipped: {runs[0]}")
    same_bytes(checkpoint(p.tools.path("scaled-a")), checkpoint(p.tools.path("scaled-b")), "checkpoints")


def custom(p):
    """Custom functions, called with a stream, captured and launched; their kernels are the host twins. Gradients come in parts, by a communicator of their own."""
    tools, model = p.tools, p.tools.example("custom-activation.json")
    host, cuda, runs = tools.path("custom", "host"), tools.path("custom", "cuda"), []
    said, _ = tools.call(tools.foregather, "compile", model, "--ranks", 2, "--reduce", "parts", "-o", host)
    require("come in parts, which updates add up" in said, said)
    pretend_program(tools, model, ("--ranks", 2, "--reduce", "parts"), cuda, sources=(tools.example("custom-activation.c"),))
    for program, options in ((host, ()), (cuda, ("--local-ranks", 2))):
        log = program + ".jsonl"
        tools.call(*p.command(program, "--steps", 3, "--log", log, *options))
        runs.append(steps(log))
    require(runs[0] == runs[1], f"losses differ: {runs[0]} against {runs[1]}")


def chains(p):
    """Fused chains: the kernels that the program holds do what its functions for the host do, bit by bit."""
    tools, model = p.tools, os.path.join(p.tools.source, "tests", "data", "chains", "model.json")
    flags = ("--ranks", 2, "--precision", "bf16")
    host, cuda, data = (tools.path("chains", name) for name in ("host", "cuda", "data.bin"))
    tools.call(tools.foregather, "compile", model, *flags, "-o", host)
    pretend_program(tools, model, flags, cuda)
    with open(cuda + ".cu") as f:
        require(f.read().count("FG_KERNEL ") >= 2, "the program has no kernels")
    write_tokens(data, 600, 24, 3)
    runs = []
    for program, options in ((host, ()), (cuda, ("--local-ranks", 2)), (cuda, ("--local-ranks", 2, "--no-graph"))):
        log = program + ".jsonl"
        tools.call(program, "--data", data, "--lr", "1e-2", "--steps", 4, "--log", log, *options)
        runs.append(steps(log))
    require(len(runs[0]) == 4 and len(set(runs[0])) == 4 and runs[0] == runs[1] == runs[2], f"losses differ: {runs}")


def gradients(p):
    a, b = p.tools.path("a.grads"), p.tools.path("b.grads")
    p.tools.call(*p.command(p.host, "--dump-grads", a))
    p.tools.call(*p.ranks("--dump-grads", b))
    with open(a, "rb") as x, open(b, "rb") as y:
        same_bytes({"gradients": x.read()}, {"gradients": y.read()}, "gradients")


def resumes(p):
    logs = [p.tools.path(f"resume-{x}.jsonl") for x in "abc"]
    save = p.tools.path("resume-save")
    p.tools.call(*p.ranks("--steps", 8, "--log", logs[0]))
    p.tools.call(*p.ranks("--steps", 4, "--log", logs[1], "--save", save))
    p.tools.call(*p.ranks("--steps", 8, "--log", logs[2], "--resume", save))
    require(steps(logs[0]) == steps(logs[1]) + steps(logs[2]), "a resumed run goes another way")


def table(path):
    with open(path) as f:
        return [line.split("\t") for line in f.read().strip().split("\n")]


def profiles(p):
    path = p.tools.path("profile.tsv")
    p.tools.call(*p.ranks("--steps", 2, "--profile", path))
    rows = table(path)
    require(rows[0][:3] == ["node", "op", "calls"] and len(rows) > 50, f"{len(rows)} rows: {rows[:2]}")
    require({"gather", "reduce_scatter", "linear", "adamw"} <= {row[1] for row in rows}, "ops are missing")
    calls = {row[0]: row[2] for row in rows[1:] if row[1] in ("gather", "adamw")}
    p.tools.call(*p.ranks("--steps", 2, "--profile", path, "--profile-ops", "gather,adamw"))
    some = {row[0]: row[2] for row in table(path)[1:]}
    require(some == calls, f"of gather and adamw alone: {some}, {calls} among all")


def begin(p, *options):
    return subprocess.Popen(p.ranks("--steps", FOREVER, *options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def until_step(process, count):
    said = ""
    for line in process.stdout:
        said += line
        if f"step {count}/" in line:
            return said
    raise Wrong(f"ended with {process.wait()} before step {count}:\n{said}")


def ending(process, limit=60):
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Wrong(f"the run did not end within {limit} s")
    return process.returncode, said


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return sorted(int(word) for word in f.read().split())


def stops(p):
    """SIGTERM: all stop after one step, and what they save is what a run of so many steps has."""
    save, other = p.tools.path("stop-save"), p.tools.path("stop-other")
    process = begin(p, "--save", save)
    until_step(process, 2)
    process.send_signal(signal.SIGTERM)
    status, said = ending(process)
    require(status == 0 and "stopped  by signal 15 after step" in said, f"ended with {status}:\n{said}")
    (name,) = (name for name in os.listdir(save) if name.startswith("step-"))
    p.tools.call(*p.command(p.host, "--steps", int(name.split("-")[1]), "--save", other))
    same_bytes(checkpoint(save), checkpoint(other), "checkpoints")
    process = begin(p)
    until_step(process, 2)
    os.kill(children(process.pid)[1], signal.SIGTERM)  # one rank alone
    status, said = ending(process)
    require(status == 128 + signal.SIGTERM and "stopped  by signal 15" in said, f"ended with {status}:\n{said}")


def dies(p, victim):
    process = begin(p)
    said = until_step(process, 2)
    os.kill(children(process.pid)[victim], signal.SIGKILL)
    start = time.monotonic()
    status, rest = ending(process)
    took = time.monotonic() - start
    require(status == 137 and took < 30, f"ended with {status} after {took:.0f} s")
    for text in (f"rank {victim} was ended by signal 9", f"rank {victim} (", "is gone", "was at step"):
        require(text in said + rest, f"no '{text}' in:\n{rest}")


def launched(p, ranks, *options, limit="20", **more):
    """As torchrun would start the ranks; (status, output) of each."""
    port = 20000 + os.getpid() % 12000
    processes = []
    for rank in ranks:
        env = dict(os.environ, RANK=str(rank), MASTER_ADDR="127.0.0.1",
                   **{"MASTER_PORT": str(port), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True", **more})  # fmt: skip
        processes.append(subprocess.Popen(p.command(p.cuda, "--steps", 2, "--join-timeout", limit, *options), stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True, env=env))  # fmt: skip
    return [ending(process) for process in processes]


def torchrun(p):
    (a, said), (b, silent) = launched(p, (0, 1))
    require(a == 0 and b == 0 and "step 2/2" in said and silent == "", f"{a}, {b}:\n{said}\n{silent}")
    ((a, said),) = launched(p, (0,), limit="1")
    require(a == 1 and "missing: 1" in said, f"{a}:\n{said}")
    ((a, said),) = launched(p, (0,), WORLD_SIZE="3")
    require(a == 1 and "torchrun started 3 processes" in said and "for 2 ranks" in said, f"{a}:\n{said}")


def left_in_the_shell(p):
    """--local-ranks wins over a launcher's variables that are still exported, and not over a launcher."""
    (((a, said),), ((b, refused),)) = (launched(p, (0,), "--local-ranks", 2, **{**SHELL, **more}) for more in ({}, {"LOCAL_RANK": "0"}))
    require(a == 0 and "step 2/2" in said, f"{a}:\n{said}")
    require(b == 1 and "does not go with torchrun" in refused and "unset LOCAL_RANK" in refused, f"{b}:\n{refused}")


def counts_memory(p):
    """What is planned stands beside what the driver counts before and after; more than was reserved is told, more than was offered refused."""
    said = {}
    for beside, status in ((0, 0), (300 << 20, 0), (1 << 40, 1)):
        command = ["env", f"PRETEND_BESIDE={beside}", *p.ranks("--steps", 1)]
        _, said[beside] = p.tools.call(*command, expect=status)
    line = r"memory   planned ([\d.]+) (\w+) a rank \(states .*, arena .*\), measured ([\d.]+) (\w+)\n"
    planned, unit, measured, same = re.search(line, said[0]).groups()
    require(unit == same == "MiB" and 0 <= float(measured) - float(planned) < 0.1, said[0])
    require("were planned" not in said[0], said[0])
    found = re.search(line, said[300 << 20]).groups()
    require(found[:2] == (planned, "MiB") and found[3] == "MiB", said[300 << 20])
    require(abs(float(found[2]) - float(planned) - 300) < 1, said[300 << 20])
    require(re.search(r"takes \d+ MiB, \d+ were planned: beside the plan 30[01] MiB, where 0 were reserved; \"reserved\": \"30[01] MiB\"", said[300 << 20]), said[300 << 20])
    require("before the first step, more than the" in said[1 << 40], said[1 << 40])


def nodes(p):
    """Three ranks, each the only one of its node: the host's bits."""
    logs = [p.tools.path(f"nodes-{x}.jsonl") for x in "ab"]
    p.tools.call(*p.command(p.host, "--steps", 2, "--log", logs[0]))
    ends = launched(p, range(3), "--log", logs[1], WORLD_SIZE="3", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    require(all(status == 0 for status, _ in ends), f"{ends}")
    require(len(steps(logs[0])) == 2 and steps(logs[0]) == steps(logs[1]), f"{steps(logs[0])} against {steps(logs[1])}")


def mistakes(p):
    _, said = p.tools.call(*p.command(p.cuda), expect=1)
    require("--local-ranks 2 starts them all" in said, said)
    _, said = p.tools.call(*p.ranks("--weights", "nowhere"), expect=1)
    require(said.count("nowhere: cannot be opened") == 1, f"said other than once:\n{said}")
    _, said = p.tools.call(*p.ranks("--checked"), expect=1)
    require("--target host" in said, said)
    _, said = p.tools.call(*p.ranks("--deterministic", "--gemm-cache", "nowhere"), expect=1)
    require("measures no algorithms, and nowhere is not there" in said, said)
    bad = p.tools.path("bad.bin")
    with open(p.data, "rb") as f:
        data = bytearray(f.read())
    data[1024 + 2 * 70 : 1024 + 2 * 70 + 2] = b"\xff\xff"
    with open(bad, "wb") as f:
        f.write(data)
    _, said = p.tools.call(p.cuda, "--local-ranks", 2, "--data", bad, "--steps", 3, expect=1)
    require("embedding" in said and "out of range" in said and "tiny-llama.json:" in said, said)


def tunes(p):
    """Who makes the file of algorithms, and who reads it: PROGRAM.gemm by itself, another where it is named."""
    t, beside, named = p.tools, p.cuda + ".gemm", p.tools.path("named.gemm")
    run = p.ranks("--steps", 1)
    _, said = t.call(*run)
    require("products" not in said and not os.path.exists(beside), f"without a file:\n{said}")
    _, said = t.call(p.cuda, "--tune", "--local-ranks", 2)
    require(said.count("tuned    ") == 1 and beside in said and "products 3 measured" in said, said)
    with open(beside, "a") as f:  # as if it were another device's
        f.write("more\n")
    _, said = t.call(*run)
    require(said.count("has no algorithms for the pretended device") == 1, said)
    _, said = t.call(*run, "--gemm-cache", named)
    require("has no algorithms" not in said and os.path.exists(named), f"a named file that was not there:\n{said}")
    with open(beside, "w") as f:
        f.write("something else\n")
    _, said = t.call(*run, expect=1)
    require(said.count(beside) == 1 and "not what was written" in said, said)
    os.remove(beside)
    _, said = t.call(p.cuda, "--tune", "--local-ranks", 2, "--gemm-cache", os.path.join(t.path("absent"), "x.gemm"), expect=1)
    require("x.gemm: cannot be written" in said, said)
    _, said = t.call(p.cuda, "--tune", "--local-ranks", 2, "--save", t.path("s"), expect=2)
    require("--tune stops before the first step" in said, said)
    _, said = t.call(p.host, "--tune", expect=2)
    require("--tune is for cuda programs" in said, said)


def early_release(text):
    """A gathered bucket is released before its first use in a step instead of after its last."""
    lines = text.split("\n")
    for at, line in enumerate(lines):
        found = re.search(r"fg_rt_release\(cx, \d+, FG_COMPUTE, (\d+),", line)
        begin = max((i for i in range(at) if lines[i].startswith("{")), default=0)
        uses = [i for i in range(begin, at) if found and f" {found[1]}," in lines[i] and "FG_COMPUTE" in lines[i]]
        if uses:
            lines.insert(uses[0], lines.pop(at))
            return "\n".join(lines)
    raise Wrong("no release to move")


def poisons(p):
    """What is read after its release turns into NaN."""
    bad = p.tools.path("early")
    pretend_program(p.tools, p.tools.example("tiny-llama.json"), FLAGS, bad, early_release)
    run = p.command(bad, "--local-ranks", 2, "--steps", 3)
    p.tools.call(*run)
    _, said = p.tools.call(*run, "--poison", expect=1)
    require("is not finite" in said or "out of range" in said, said)


def main():
    tools, _ = open_tools()
    cases = Cases()
    p = Programs(tools)
    cases.run("processes: as the host, bitwise", as_host, p)
    cases.run("processes: call by call as in graphs", as_host, p, "--no-graph")
    cases.run("processes: released memory is poisoned", as_host, p, "--poison")
    cases.run("processes: poison is seen", poisons, p)
    cases.run("processes: algorithms of products are kept", tunes, p)
    cases.run("processes: custom functions", custom, p)
    cases.run("processes: kernels of chains, as the host, bitwise", chains, p)
    cases.run("processes: gradients", gradients, p)
    sharded = Programs(tools, "sharded-", FLAGS + ("--vocab", "sharded", "--vocab-chunk", 20))
    cases.run("processes: vocabulary sharded, as the host, bitwise", as_host, sharded)
    cases.run("processes: vocabulary sharded, gradients", gradients, sharded)
    half = Programs(tools, "fp16-", ("--ranks", 2, "--batch", 2, "--clip", 0.5, "--precision", "fp16", "--seq", 16))
    cases.run("processes: fp16, as the host, bitwise", scaled, half)
    cases.run("processes: resume", resumes, p)
    cases.run("processes: profile", profiles, p)
    cases.run("processes: signals", stops, p)
    cases.run("processes: rank 0 dies", dies, p, 0)
    cases.run("processes: rank 1 dies", dies, p, 1)
    cases.run("processes: torchrun's environment", torchrun, p)
    cases.run("processes: memory, planned and counted", counts_memory, p)
    cases.run("processes: environment left in the shell", left_in_the_shell, p)
    three = Programs(tools, "three-", ("--ranks", 3, "--batch", 1, "--reduce", "parts"))
    cases.run("processes: three nodes of one rank", nodes, three)
    cases.run("processes: mistakes", mistakes, p)
    tools.close()
    cases.end()


main()
