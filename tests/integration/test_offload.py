"""Programs whose states lie in host memory: the same bits as without, checkpoints that go either way, and weights that
are loaded and exported wherever they lie. Training on one, two and three ranks, with clipping, accumulation and bf16."""
import os
import random

from common import Cases, open_tools, require

SETS = ("optimizer", "parameters", "activations", "optimizer,activations,parameters")
STEPS = 4


class Offload:
    def __init__(self, tools):
        self.tools = tools
        self.model = tools.example("tiny-llama.json")
        self.runs = 0  # each has a folder of its own
        text = tools.path("text.txt")
        with open(text, "w") as f:
            f.write("".join(random.Random(1).choices("abcdefgh \n", k=20000)))
        self.tokens = tools.path("tokens.bin")
        tools.call(tools.foregather, "tokens", "--bytes", text, "-o", self.tokens)

    def program(self, name, *flags):
        out = self.tools.path(name)
        report, _, _ = self.tools.compile(self.model, "--batch", 2, "--seq", 32, *flags, out=out)
        return out, report

    def run(self, program, name, *flags, steps=STEPS):
        self.runs += 1
        folder = os.path.join(self.tools.folder, f"{name}-{self.runs}")
        self.tools.call(program, "--data", self.tokens, "--steps", steps, "--lr", 1e-2, "--print-every", 100,
                        "--save", folder, *flags)
        return os.path.join(folder, f"step-{steps:06d}")

    def same(self, a, b):
        for file in sorted(os.listdir(a)):
            if file.endswith(".safetensors"):
                with open(os.path.join(a, file), "rb") as f, open(os.path.join(b, file), "rb") as g:
                    require(f.read() == g.read(), f"{file} of {a} and {b} differ")

    def bits(self, *flags):
        """Every class and all of them against none; once in checked mode."""
        plain, _ = self.program("plain", *flags)
        want = self.run(plain, "plain-run")
        for i, classes in enumerate(SETS):
            program, report = self.program("some", *flags, "--offload", classes)
            require(report["host_bytes"] > 0, f"nothing lies in host memory with {classes}: {report}")
            require(sum(report["host_ledger"].values()) == report["host_bytes"], f"{report}")
            require(sum(report["ledger"].values()) == report["peak_bytes"], f"{report}")
            self.same(want, self.run(program, f"run-{i}", *(("--checked",) if i % 2 else ())))

    def either_way(self, *flags):
        """Half of the run without, half with; and the other way round."""
        plain, _ = self.program("plain", *flags)
        moved, _ = self.program("moved", *flags, "--offload", "optimizer,activations,parameters")
        want = self.run(plain, "whole")
        for first, second, name in ((plain, moved, "there"), (moved, plain, "back")):
            half = self.run(first, f"{name}-half", steps=STEPS // 2)
            self.same(want, self.run(second, name, "--resume", half))

    def weights(self, *flags):
        """Weights exported by one are loaded by the other."""
        plain, _ = self.program("plain", *flags)
        moved, _ = self.program("moved", *flags, "--offload", "optimizer,parameters")
        start = self.run(plain, "start", "--seed", 7, steps=1)
        file = os.path.join(start, "model.safetensors")
        self.same(self.run(plain, "from-plain", "--weights", file), self.run(moved, "from-moved", "--weights", file))

    def saves_memory(self, *flags):
        """Each class takes memory off the device, and what leaves it is found in host memory."""
        none = self.program("none", *flags, "--schedule", "minimum")[1]
        for classes in SETS:
            some = self.program("some", *flags, "--schedule", "minimum", "--offload", classes)[1]
            require(some["peak_bytes"] < none["peak_bytes"], f"{classes}: {some['peak_bytes']} of {none['peak_bytes']}")
        require(none["host_bytes"] == 0 and none["exposed_host_us"] == 0, f"{none}")

    def never_worse(self):
        """What auto moves for the baseline, which needs more moved than other plans, these may have moved too."""
        for ranks, memory in ((1, "12MiB"), (2, "12MiB"), (3, "10MiB")):
            flags = ("--ranks", ranks, "--memory", memory, "--offload", "auto", "--emit", "c")
            out = self.tools.path("never-worse.c")
            compiled, zero3 = (self.tools.compile(self.model, *flags, "--schedule", schedule, out=out)[0]
                               for schedule in ("compiled", "zero3"))
            require(zero3["fits"] and zero3["host_bytes"] > 0, f"{ranks} ranks, {memory}: ZeRO-3 should fit by offload")
            require(compiled["step_us"] <= zero3["step_us"] * (1 + 1e-9), f"{ranks} ranks, {memory}: a step of "
                    f"{compiled['step_us']} us, ZeRO-3's {zero3['step_us']}")


def main():
    tools, _ = open_tools()
    cases = Cases()
    offload = Offload(tools)
    cases.run("offload: the same bits, one rank", offload.bits, "--ranks", 1)
    cases.run("offload: the same bits, two ranks, bf16, clip", offload.bits, "--ranks", 2, "--precision", "bf16", "--clip", 1)
    cases.run("offload: the same bits, three ranks, clip, 3 micro-steps", offload.bits, "--ranks", 3, "--clip", 1,
              "--accumulate", 3)
    cases.run("offload: checkpoints go either way", offload.either_way, "--ranks", 2, "--precision", "bf16", "--clip", 1)
    cases.run("offload: checkpoints go either way, fp32", offload.either_way, "--ranks", 2)
    cases.run("offload: weights are loaded wherever they lie", offload.weights, "--ranks", 2, "--precision", "bf16")
    cases.run("offload: each class saves memory", offload.saves_memory, "--ranks", 2, "--precision", "bf16")
    cases.run("offload: auto is never slower than the baseline with auto", offload.never_worse)
    tools.close()
    cases.end()


main()
