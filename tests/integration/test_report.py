"""The report that this project starts from: Llama 3.2 1B on two devices of 14.57 GiB, batch 1, 512 tokens, bf16, full
recomputation. What the plans take, what is refused, and what does not change with accumulation."""
import re

from common import Cases, open_tools, require

MIB = 1 << 20
BASE = ("--machine", "2xT4", "--batch", 1, "--seq", 512, "--precision", "bf16", "--recompute", "full", "--emit", "c")


class Report:
    def __init__(self, tools):
        self.tools = tools
        self.model = tools.example("llama-3.2-1b.json")

    def compile(self, *flags, expect=0):
        return self.tools.compile(self.model, *BASE, *flags, expect=expect, out=self.tools.path("llama.c"))

    def parameters(self):
        _, stdout, _ = self.compile()
        require("1,235,814,400" in stdout, f"the summary does not count 1,235,814,400 parameters:\n{stdout}")

    def peak(self, limit, *flags):
        report, _, _ = self.compile("--schedule", "minimum", *flags)
        require(report["fits"], "it does not fit")
        require(report["peak_bytes"] <= limit, f"the peak is {report['peak_bytes']:,} bytes, more than {limit:,.0f}")
        print(f"  peak {report['peak_bytes']:,} at {report['peak_phase']}")
        self.states(report)

    def states(self, report):
        """Moments (8 bytes a parameter over two ranks) and masters are in the plan."""
        ledger = report["ledger"]
        require(sum(ledger.values()) == report["peak_bytes"], f"the classes add up to {sum(ledger.values()):,}")
        optimizer = sum(bytes_ for name, bytes_ in ledger.items() if re.search("moment|optim|adam", name))
        require(optimizer >= 1235814400 * 4, f"{optimizer:,} bytes of optimizer state: {ledger}")

    def compiled_within(self, *flags):
        report, _, _ = self.compile(*flags)
        require(report["fits"] and report["peak_bytes"] <= report["budget_bytes"], f"{report}")
        require(report["budget_bytes"] == report["memory_bytes"] - report["reserved_bytes"], f"{report}")
        zero3, _, _ = self.compile("--schedule", "zero3", *flags)
        if zero3["fits"]:
            require(report["step_us"] <= zero3["step_us"], f"{report['step_us']} us against {zero3['step_us']} of zero3")
        self.states(report)

    def refuses(self, *flags):
        report, _, stderr = self.compile("--memory", "6GB", *flags, expect=3)
        smallest = report["smallest_budget_bytes"]
        require(report["fits"] is False and smallest > 6e9, f"{report}")
        require(smallest % MIB == 0, f"{smallest} is no whole number of MiB")
        require(f"--memory {smallest // MIB}MiB" in stderr, f"the message does not name {smallest // MIB} MiB:\n{stderr}")
        fits, _, _ = self.compile("--memory", smallest, *flags)
        require(fits["fits"] and fits["peak_bytes"] <= fits["budget_bytes"], f"{fits}")
        less, _, _ = self.compile("--memory", smallest - MIB, *flags, expect=3)
        require(less["smallest_budget_bytes"] == smallest, f"{less['smallest_budget_bytes']} is named now, not {smallest}")

    def accumulation(self):
        sizes = {}
        for k in (2, 3, 64):
            self.compile("--accumulate", k)
            with open(self.tools.path("llama.c")) as f:
                text = f.read()
            sizes[k] = (text.count("\n"), sum(line.lstrip().startswith("fg_rt_") for line in text.splitlines()))
        # More micro-steps weigh @middle more, so the best plan may be another one; the bodies are the same three.
        for few, many in zip(sizes[3], sizes[64]):
            require(abs(many - few) <= 0.02 * few, f"lines and calls by accumulation: {sizes}")
        print(f"  lines and calls: {sizes}")

    def same_plan(self):
        first, _, _ = self.compile()
        second, _, _ = self.compile()
        require(first["fingerprint"] == second["fingerprint"], "two compiles made two plans")


def main():
    tools, _ = open_tools()
    cases, report = Cases(), Report(tools)
    cases.run("1B: 1,235,814,400 parameters", report.parameters)
    cases.run("1B: minimum takes at most 10.3 GB", report.peak, 10.3e9)
    cases.run("1B: minimum with clipping takes at most 10.8 GB", report.peak, 10.8e9, "--clip", "1.0")
    cases.run("1B: minimum with clipping and fp32 reduction takes at most 12.5 GB", report.peak, 12.5e9, "--clip", "1.0",
              "--reduce-dtype", "fp32")  # fmt: skip
    cases.run("1B: compiled stays within the budget, no slower than zero3", report.compiled_within)
    cases.run("1B: compiled with clipping stays within the budget, no slower than zero3", report.compiled_within, "--clip", "1.0")
    cases.run("1B: too little is refused, what is named works, 1 MiB less does not", report.refuses)
    cases.run("1B: the same with clipping", report.refuses, "--clip", "1.0")
    cases.run("1B: the program does not grow with accumulation", report.accumulation)
    cases.run("1B: the same plan again", report.same_plan)
    tools.close()
    cases.end()


main()
