"""Faults one at a time: the n-th event of a kind fails on one rank (FG_FAULT, docs/runtime.md), for every n that a run has.

What is asked of a run that a fault ends: status 1 and one message that says which rank and what failed, nothing on disk lost or
half written, a log of whole records that are those of a run without faults; and that resuming from what it left gives what the run
without faults gives, bit by bit.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess

from common import Wrong, checkpoint, files_under, read_log, require

KINDS = ("alloc", "collective", "copy", "launch", "read", "write")
LIMIT = 60  # seconds that a run may take before it counts as one that hangs


def small_model(tools):
    """One layer of examples/mlp.json, tiny: few events, so that all of them can be tried."""
    with open(tools.example("mlp.json")) as f:
        model = json.load(f)
    model["name"] = "small"
    model["dims"].update({"batch": 2, "seq": 8, "hidden": 16, "layers": 1})
    path = tools.path("small.json")
    with open(path, "w") as f:
        json.dump(model, f)
    return path


def run(command, fault):
    env = dict(os.environ, **({"FG_FAULT": fault} if fault else {}))
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT, env=env)
    except subprocess.TimeoutExpired:
        raise Wrong(f"{fault}: {' '.join(command)}\n  still runs after {LIMIT} s")
    return done.returncode, done.stdout + done.stderr


def losses(path):
    rows = read_log(path) if os.path.exists(path) else {}
    return {step: (row["loss"], row["grad_norm"]) for step, row in rows.items()}


class Saving:
    """A run that resumes at step 1 and saves at steps 2 and 3."""

    def __init__(self, tools, name, command):
        self.tools, self.name, self.command = tools, name, command
        self.start, self.whole = tools.path(name, "start"), tools.path(name, "whole")
        self.resumed = {}
        tools.call(*command("--steps", 1, "--save", self.start))
        shutil.copytree(self.start, self.whole)
        self.log = tools.path(name, "whole.jsonl")
        tools.call(*self.options(self.whole, self.log))
        self.steps = {step: checkpoint(os.path.join(self.whole, step)) for step in ("step-000001", "step-000002", "step-000003")}
        self.losses = losses(self.log)
        require(len(self.losses) == 2, f"steps {sorted(self.losses)} in the log")

    def options(self, folder, log):
        return self.command("--resume", folder, "--save", folder, "--save-every", 1, "--steps", 3, "--log", log)

    def prepare(self, at):
        shutil.copytree(self.start, at)
        return self.options(at, at + ".jsonl")

    def check(self, at, fault):
        names = [name for name in os.listdir(at) if name.startswith("step-")]
        require("step-000001" in names, f"{fault}: the checkpoint that was there is gone: {sorted(os.listdir(at))}")
        for name in names:
            require(checkpoint(os.path.join(at, name)) == self.steps[name], f"{fault}: {name} is not what it should be")
        for step, row in losses(at + ".jsonl").items():
            require(row == self.losses[step], f"{fault}: step {step} has {row}, not {self.losses[step]}")
        self.check_resume(at, fault)

    def check_resume(self, at, fault):
        """What a run comes to depends on the disk alone: what was resumed from once is not tried again."""
        state = hashlib.sha256(repr(sorted(files_under(at).items())).encode()).hexdigest()
        if state in self.resumed:
            return
        self.resumed[state] = fault
        status, said = run(self.options(at, at + ".jsonl"), None)
        require(status == 0, f"{fault}: resuming ends with {status}:\n{said}")
        require(checkpoint(os.path.join(at, "step-000003")) == self.steps["step-000003"], f"{fault}: a resumed run ends elsewhere")


class Dumping:
    """A run that reads weights and replaces two files that are there: gradients and a profile."""

    def __init__(self, tools, name, command):
        self.command = command
        start = tools.path(name, "weights")
        tools.call(*command("--steps", 1, "--save", start))
        self.weights = os.path.join(start, "step-000001", "model.safetensors")
        self.grads = tools.path(name, "whole.grads")
        tools.call(*command("--weights", self.weights, "--dump-grads", self.grads))
        with open(self.grads, "rb") as f:
            self.new = f.read()

    def prepare(self, at):
        os.makedirs(at)
        for name in ("grads", "profile"):
            with open(os.path.join(at, name), "w") as f:
                f.write("old")
        return self.command("--weights", self.weights, "--dump-grads", f"{at}/grads", "--profile", f"{at}/profile", "--log", f"{at}/log")

    def check(self, at, fault):
        found = files_under(at)
        require(set(found) <= {"grads", "profile", "log"}, f"{fault}: left behind: {sorted(found)}")
        require(found["grads"] in (b"old", self.new), f"{fault}: the gradients are {len(found['grads'])} bytes of neither file")
        profile = found["profile"].decode()
        require(profile == "old" or (profile.startswith("node\top") and profile.endswith("\n")), f"{fault}: a torn profile")
        losses(f"{at}/log")


class Sweep:
    def __init__(self, tools, scenario, ranks, processes):
        self.tools, self.scenario, self.ranks, self.processes = tools, scenario, ranks, processes
        self.n = 0

    def place(self):
        self.n += 1
        return self.tools.path("runs", f"{id(self)}-{self.n}")

    def count(self, kind, rank):
        at = self.place()
        status, said = run(self.scenario.prepare(at), f"{kind}:0:{rank}")
        require(status == 0, f"ends with {status}:\n{said}")
        found = re.search(rf"fault    none came: rank {rank} had (\d+) of the kind {kind}", said)
        require(found, f"no count in:\n{said}")
        shutil.rmtree(at)
        return int(found.group(1))

    def one(self, at, kind, n, rank):
        fault = f"{kind}:{n}:{rank}"
        command = self.scenario.prepare(at)
        status, said = run(command, fault)
        require(status == 1, f"{fault}: ended with {status}:\n{said}")
        messages = [line for line in said.split("\n") if "error: " in line]
        require(len(messages) == 1, f"{fault}: {len(messages)} messages:\n{said}")
        if kind in ("read", "write"):
            require(re.search("No space left|Input/output error", messages[0]), f"{fault}: what failed?\n{said}")
        if self.processes or kind not in ("read", "write"):
            require(f"rank {rank}" in messages[0] or "out of memory" in messages[0], f"{fault}: which rank?\n{said}")
        self.scenario.check(at, fault)
        shutil.rmtree(at)
        if os.path.exists(at + ".jsonl"):
            os.remove(at + ".jsonl")

    def all(self, kinds, most):
        """Every n, or `most` of them spread evenly."""
        sites = []
        for kind in kinds:
            for rank in range(self.ranks):
                count = self.count(kind, rank)
                step = max(1.0, count / most)
                sites += [(kind, n, rank) for n in sorted({1 + int(i * step) for i in range(count)}) if n <= count]
        with concurrent.futures.ThreadPoolExecutor(4 if self.processes else 2) as pool:
            for done in [pool.submit(self.one, self.place(), *site) for site in sites]:
                done.result()
        return len(sites)
