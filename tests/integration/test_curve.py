"""A training run of 200 steps against torch's: accumulation, clipping, warm-up and cosine, on 1, 2 and 3 ranks; and
stopped and resumed, bit by bit as the run that was not. A sharded vocabulary follows the same curve, and so do gradients
that add up whole, on three ranks."""
import json
import os

from common import Cases, checkpoint, near, open_tools, read_log, require, same_bytes

LOSS, NORM, RATE = 1e-4, 2e-3, 1e-9
CLIPPED = 28  # clipping acts at the steps 26 and 27
# Ranks, rows of each; 8 rows in all, so the third rank of three has two; where gradients of micro-steps add up.
RANKS = ((1, 8, ()), (2, 4, ()), (3, 3, ("--accumulate-in", "whole")))


class Curve:
    def __init__(self, tools):
        self.tools = tools
        self.expected = json.load(open(tools.data("curve", "expected.json")))

    def compile(self, ranks, batch, schedule, *form):
        program = self.tools.path("-".join((str(ranks), schedule, *form)), "program")
        self.tools.compile(self.tools.data("curve", "model.json"), "--ranks", ranks, "--batch", batch, "--schedule",
                           schedule, "--accumulate", 2, "--clip", "1.0", "--decay", "matrices", *form, out=program)  # fmt: skip
        return program

    def train(self, program, folder, *more, steps=200):
        e, log, save = self.expected, self.tools.path(folder, "run.jsonl"), self.tools.path(folder, "save")
        self.tools.call(program, "--data", self.tools.data("curve", "tokens.bin"), "--steps", steps, "--lr", e["lr"],
                        "--warmup", e["warmup"], "--min-lr", e["min_lr"], "--lr-schedule", "cosine", "--beta1", "0.9",
                        "--beta2", "0.95", "--eps", "1e-8", "--weight-decay", "0.1", "--global-batch", 8, "--log", log,
                        "--save", save, *more)  # fmt: skip
        return read_log(log), save

    def follows(self, ranks, batch, schedule, *form):
        program = self.compile(ranks, batch, schedule, *form)
        weights = ("--weights", self.tools.data("curve", "weights.safetensors"), "--save-every", 100)
        steps, save = self.train(program, "-".join((str(ranks), schedule, "whole", *form)), *weights)
        require(sorted(steps) == list(range(1, 201)), "the log does not have the steps 1 to 200, once each")
        worst = [0.0, 0.0]
        for row in self.expected["steps_log"]:
            got, s = steps[row["step"]], row["step"]
            worst[0] = max(worst[0], near(got["loss"], row["loss"], LOSS, f"loss of step {s}"))
            worst[1] = max(worst[1], near(got["grad_norm"], row["grad_norm"], NORM, f"gradient norm of step {s}"))
            near(got["learning_rate"], row["lr"], RATE, f"rate of step {s}")
        print(f"  errors: loss {worst[0]:.1e}, norm {worst[1]:.1e}")
        return program, steps, save

    def resumes(self, ranks, schedule, whole):
        require(whole, "there is no run to compare with")
        program, steps, save = whole
        stopped = os.path.join(save, "step-000100")
        require(os.path.isdir(stopped), f"no checkpoint of step 100 among {sorted(os.listdir(save))}")
        again, save_again = self.train(program, f"{ranks}-{schedule}-resumed", "--resume", stopped)
        require(sorted(again) == list(range(101, 201)), "the resumed run does not have the steps 101 to 200")
        for s in range(101, 201):
            for key in ("loss", "grad_norm", "learning_rate"):
                require(again[s][key] == steps[s][key], f"{key} of step {s}: {again[s][key]} against {steps[s][key]}")
        same_bytes(os.path.join(save_again, "step-000200"), os.path.join(save, "step-000200"), "checkpoint of step 200")

    def agrees(self, ranks, batch):
        """The schedules, clipped and accumulated, for as many steps as clip one and more; on two ranks one of them is watched."""
        weights, runs = ("--weights", self.tools.data("curve", "weights.safetensors")), []
        for schedule in ("compiled", "zero3", "minimum"):
            program = self.tools.path(f"{ranks}-{schedule}", "program")
            if not os.path.exists(program):
                program = self.compile(ranks, batch, schedule)
            watch = ("--checked",) if (ranks, schedule) == (2, "compiled") else ()
            runs.append(self.train(program, f"{ranks}-{schedule}-short", *weights, *watch, steps=CLIPPED))
        (steps, save), *others = runs
        for other_steps, other_save in others:
            for s, row in steps.items():
                for key in ("loss", "grad_norm"):
                    require(other_steps[s][key] == row[key], f"{key} of step {s}: {other_steps[s][key]} against {row[key]}")
            last = f"step-{CLIPPED:06}"
            same_bytes(checkpoint(os.path.join(other_save, last)), checkpoint(os.path.join(save, last)), "checkpoints")


def main():
    tools, _ = open_tools()
    cases, curve, runs = Cases(), Curve(tools), {}
    for ranks, batch, sums in RANKS:
        where = f"curve on {ranks} rank{'s' if ranks > 1 else ''}"
        runs[ranks] = cases.run(f"{where}: 200 steps as torch's", curve.follows, ranks, batch, "compiled", *sums)
        cases.run(f"{where}: stopped and resumed, bitwise", curve.resumes, ranks, "compiled", runs[ranks])
        cases.run(f"{where}: 200 steps as torch's, vocabulary sharded", curve.follows, ranks, batch, "compiled",
                  "--vocab", "sharded", "--vocab-chunk", "50")  # fmt: skip
    cases.run("curve on 2 ranks: compiled, zero3 and minimum agree, bitwise", curve.agrees, 2, 4)
    tools.close()
    cases.end()


main()
