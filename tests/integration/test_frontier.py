"""The frontier and the explanations: data against compile's own reports, plots that parse, figures that add up."""
import json
import re
import xml.etree.ElementTree as xml

from common import Cases, near, open_tools, require

MIB = 1 << 20
TINY = ("--machine", "2xH200", "--batch", 2)
LLAMA = ("--machine", "2xH200", "--precision", "bf16", "--batch", 4, "--seq", 2048)
LEVERS = {"plan", "buckets", "gathers", "ahead", "kept", "regathered", "recomputed", "offloaded_bytes"}
PLAN = {"needs_bytes", "found_at_bytes", "peak_bytes", "peak_phase", "step_us", "times", "bound_us", "bound_engine",
        "over_bound", "levers"}  # fmt: skip


class Frontier:
    def __init__(self, tools, name, flags):
        self.tools, self.model, self.flags = tools, tools.example(name + ".json"), flags
        self.curve = None

    def call(self, verb, *words, expect=0):
        return self.tools.call(self.tools.foregather, verb, self.model, *self.flags, *words, expect=expect)

    def read(self, points):
        stdout, _ = self.call("frontier", "--format", "json", "--points", points)
        self.curve = json.loads(stdout)
        return self.curve

    def shape(self, points):
        curve = self.read(points)
        found = curve["points"]
        require(3 <= len(found) <= points + 1, f"{len(found)} points, asked for {points}")
        for point in found:
            require(PLAN <= set(point), f"a point without {PLAN - set(point)}")
            require(LEVERS <= set(point["levers"]), f"a point without levers {LEVERS - set(point['levers'])}")
            require(point["memory_bytes"] % MIB == 0, f"{point['memory_bytes']} is no whole number of MiB")
            require(point["needs_bytes"] <= point["memory_bytes"], f"a plan that does not fit: {point}")
            require(point["peak_bytes"] + curve["reserved_bytes"] <= point["needs_bytes"], f"{point}")
            near(point["times"], point["step_us"] / curve["fastest_us"], 1e-9, "times")
            near(1 + point["over_bound"], point["step_us"] / point["bound_us"], 1e-9, "the gap to the bound")
        for before, after in zip(found, found[1:]):
            require(before["memory_bytes"] < after["memory_bytes"], "points are not in order")
            require(before["step_us"] >= after["step_us"], f"the curve rises: {before} {after}")
        tags = [point["tag"] for point in found]
        require(tags[0].startswith("minimum") and found[0]["memory_bytes"] == curve["minimum_bytes"], f"{tags}")
        require(any("enough" in tag for tag in tags), f"no point is enough: {tags}")
        near(found[-1]["step_us"], curve["fastest_us"], 1e-3, "the step where memory is enough")

    def tenth(self):
        wanted = round(1.1 * self.curve["minimum_bytes"] / MIB) * MIB
        require(any(point["memory_bytes"] == wanted for point in self.curve["points"]), f"no point at {wanted // MIB} MiB")

    def as_compile(self):
        """Each point is what compile finds with that memory, or better; at a memory where a plan was found, the same."""
        same = 0
        for point in self.curve["points"]:
            report, _, _ = self.compile(point["memory_bytes"])
            require(point["step_us"] <= report["step_us"] * (1 + 1e-9),
                    f"compile is faster at {point['memory_bytes']}: {report['step_us']}, {point['step_us']}")  # fmt: skip
            same += point["step_us"] == report["step_us"] and point["peak_bytes"] == report["peak_bytes"]
            if point["found_at_bytes"] == point["memory_bytes"]:
                require(point["step_us"] == report["step_us"], f"{point} is not what compile finds: {report['step_us']}")
        require(same, "no point is what compile finds")
        self.compile(self.curve["minimum_bytes"] - MIB, expect=3)

    def compile(self, memory, expect=0):
        return self.tools.compile(self.model, *self.flags, "--memory", memory, "--emit", "c", "--no-verify",
                                  out=self.tools.path("f.c"), expect=expect)  # fmt: skip

    def baselines(self):
        """No baseline lies below the curve."""
        marks = self.curve["baselines"]
        require({"zero3_defaults", "zero3_minimal"} <= set(marks), f"baselines {sorted(marks)}")
        for name, mark in marks.items():
            fitting = [p["step_us"] for p in self.curve["points"] if p["memory_bytes"] <= mark["needs_bytes"]]
            best = min(fitting)
            require(best <= mark["step_us"] * (1 + 1e-9), f"{name} is faster than the curve: {mark['step_us']} {best}")

    def text(self):
        stdout, _ = self.call("frontier", "--points", 4)
        rows = re.findall(r"^ *(\d+)MiB +\S+ \S+ +\S+ \S+ +([\d.]+) +([\d.]+) %", stdout, re.M)
        require(len(rows) >= 4, f"rows: {rows}\n{stdout}")
        require("minimum" in stdout and "enough" in stdout and "ZeRO-3, DeepSpeed's defaults" in stdout, stdout)

    def svg(self):
        path = self.tools.path("f.svg")
        self.call("frontier", "--format", "svg", "--points", 4, "-o", path)
        tree = xml.parse(path).getroot()
        space = "{http://www.w3.org/2000/svg}"
        require(tree.tag == space + "svg", f"the root is {tree.tag}")
        points = [c for c in tree.iter(space + "circle") if c.get("class") == "point"]
        marks = [c for c in tree.iter(space + "path") if c.get("class") == "mark"]
        labels = " ".join("".join(t.itertext()) for t in tree.iter(space + "text"))
        require(len(points) >= 3 and len(marks) >= 2, f"{len(points)} points, {len(marks)} marks")
        for word in ("minimum", "ZeRO-3", "GiB", "step, "):
            require(word in labels, f"no label says {word}: {labels}")
        across = [float(c.get("cx")) for c in points]
        require(across == sorted(across) and across[0] >= 0 and across[-1] <= float(tree.get("width")), f"{across}")
        down = [float(c.get("cy")) for c in points]
        require(down == sorted(down), f"the drawn curve rises: {down}")
        with open(path) as f:
            require(not re.search(r"(href|src|url\()", f.read()), "the plot takes something from outside")

    def limited(self):
        """--memory ends the curve; less than the minimum is refused as compile refuses."""
        limit = self.curve["minimum_bytes"] + 2 * MIB
        stdout, _ = self.call("frontier", "--format", "json", "--memory", limit)
        require(all(p["memory_bytes"] <= limit for p in json.loads(stdout)["points"]), stdout)
        _, stderr = self.call("frontier", "--memory", self.curve["minimum_bytes"] - MIB, expect=3)
        require(f"--memory {self.curve['minimum_bytes'] // MIB}MiB" in stderr, stderr)


class Explain:
    def __init__(self, tools, name, flags):
        self.tools, self.model, self.flags = tools, tools.example(name + ".json"), flags

    def call(self, *words, expect=0):
        return self.tools.call(self.tools.foregather, "explain", self.model, *words, *self.flags, expect=expect)

    def data(self, *words):
        return json.loads(self.call(*words, "--format", "json")[0])

    def report(self, *words):
        report, _, _ = self.tools.compile(self.model, *self.flags, *words, "--emit", "c", "--no-verify",
                                          out=self.tools.path("e.c"))  # fmt: skip
        return report

    def summary(self, *words):
        """The path adds up to the step, the engines to the step, what is exposed to compile's figure."""
        data, report = self.data(*words), self.report(*words)
        for key in ("bound", "streams", "collectives", "critical_path"):
            require(data[key] == report[key], f"explain and --report differ in {key}")
        near(data["step_us"], report["step_us"], 1e-12, "the step")
        near(sum(run["us"] * run["times"] for run in data["critical_path"]), data["step_us"], 1e-9, "the critical path")
        for name, stream in data["streams"].items():
            near(stream["busy_us"] + stream["idle_us"], data["step_us"], 1e-9, f"busy and idle of {name}")
        near(sum(s["exposed_us"] for s in data["streams"].values()), report["exposed_us"], 1e-9, "what is exposed")
        require(sum(c["exposed_us"] for c in data["collectives"]) <= report["exposed_us"] * (1 + 1e-9), "collectives exceed it")
        gathers = sum(c["times"] for c in data["collectives"] if c["stream"] == "gather")
        require(gathers == report["gathers"], f"{gathers} gathers, not {report['gathers']}")
        require(data["bound"]["us"] == report["bound_us"] and data["bound"]["name"], f"{data['bound']}")
        text, _ = self.call(*words)
        for word in ("bound ", "streams ", "exposed ", "path ", "compute "):
            require(re.search(f"^ *{word}", text, re.M), f"no {word} in:\n{text}")

    def bucket(self, *words):
        """Each gather: where it stands, why it starts when it does, who needs it, what stops it."""
        data = self.data("layers.1", *words)
        gathers = [n for n in data["nodes"] if n["op"] == "gather"]
        require(gathers and any(n["op"].startswith("adamw") for n in data["nodes"]), f"{[n['name'] for n in data['nodes']]}")
        for n in gathers:
            awaited = n["starts"]
            require(awaited["why"] in ("start", "engine", "data", "overwrite", "memory"), f"{awaited}")
            if awaited["why"] != "start":
                near(awaited["end_us"], n["start_us"], 1e-9, "the end of what it awaits")
            require(n["needed_by"] and n["waited_us"] >= 0 and n["slack_us"] >= -1e-9, f"{n}")
            room = n["earlier"]
            require(room["barrier"] in ("start", "release", "update", "memory"), f"{room}")
            if room["barrier"] == "memory":
                require(sum(x["bytes"] for x in room["lives"]) == room["live_bytes"], f"{room}")
                require(room["left_bytes"] < room["needs_bytes"], f"memory stops it, and there is room: {room}")
        require(data["groups"] and {g["phase"] for g in data["groups"]} >= {"forward", "backward"}, f"{data['groups']}")
        require(data["more"]["memory_bytes"] == data["memory_bytes"] + (1 << 30), f"{data['more']}")
        require(data["more"]["step_us"] <= data["step_us"], f"more memory is slower: {data['more']}")
        text, _ = self.call("layers.1", *words)
        for word in ("starts", "needed", "earlier", "exposed", r"\+1 GiB"):
            require(len(data["nodes"]) > 12 or re.search(rf"^ *{word} ", text, re.M), f"no {word} in:\n{text}")

    def ways(self):
        """A bucket, an @name, a parameter, a node's name and its id lead to the same place."""
        bucket = self.data("layers.1")
        gather = next(n for n in bucket["nodes"] if n["op"] == "gather")
        require(self.data("@layers.1")["nodes"] == bucket["nodes"], "@layers.1 is not layers.1")
        one = self.data(f"#{gather['node']}")["nodes"]
        require(one == [gather], f"{one}")
        require(self.data(str(gather["node"]))["nodes"] == [gather], "an id without # is not found")
        parameter = self.data("model.layers.1.self_attn.q_proj.weight")
        require(gather["name"] in [n["name"] for n in parameter["nodes"]], "the parameter is not in its bucket")
        compute = self.data(gather["needed_by"]["name"].split()[1])["nodes"]
        require(gather["needed_by"]["node"] in [n["node"] for n in compute], f"{compute}")

    def held(self):
        """A layer whose parameters lie in a bucket of another name leads there."""
        data = json.loads(self.tools.call(self.tools.foregather, "explain", self.model, "layers.1", "--ranks", 2, "--schedule", "zero3",
                                          "--format", "json")[0])  # fmt: skip
        require([n for n in data["nodes"] if n["name"].startswith("gather @persistent")], f"{[n['name'] for n in data['nodes']]}")

    def unknown(self):
        _, stderr = self.call("layers.l", expect=2)
        require("did you mean" in stderr and "'layers.1'" in stderr, stderr)
        _, stderr = self.call("zzzzzzzzzzzz", expect=2)
        require("no node, bucket or parameter 'zzzzzzzzzzzz'" in stderr, stderr)
        self.call("#999999", expect=2)


def main():
    tools, _ = open_tools()
    cases = Cases()
    for name, flags, points in (("tiny-llama", TINY, 6), ("llama-3.2-1b", LLAMA, 5)):
        f = Frontier(tools, name, flags)
        if not cases.run(f"{name}: the frontier is monotone and complete", f.shape, points):
            continue
        cases.run(f"{name}: a tenth more than the minimum is a point", f.tenth)
        cases.run(f"{name}: points are what compile finds, or better", f.as_compile)
        cases.run(f"{name}: no baseline below the curve", f.baselines)
        if name == "tiny-llama":
            cases.run(f"{name}: the frontier as text", f.text)
            cases.run(f"{name}: the frontier as a plot", f.svg)
            cases.run(f"{name}: --memory ends the curve", f.limited)
    e = Explain(tools, "tiny-llama", ("--ranks", 2, "--zero3", "minimal"))
    for words in ((), ("--schedule", "zero3"), ("--accumulate", 4), ("--clip", "1.0"), ("--schedule", "minimum"), ("--offload", "optimizer")):
        cases.run(f"tiny-llama {' '.join(map(str, words))}: figures of a step add up", e.summary, *words)
        cases.run(f"tiny-llama {' '.join(map(str, words))}: a bucket explained", e.bucket, *words)
    cases.run("tiny-llama: ways to name a node", e.ways)
    cases.run("tiny-llama: a layer in another bucket", e.held)
    cases.run("tiny-llama: unknown names", e.unknown)
    big = Explain(tools, "llama-3.2-1b", ("--machine", "2xH200", "--precision", "bf16", "--memory", "12085MiB"))
    cases.run("llama-3.2-1b: a bucket explained where memory is short", big.bucket)
    tools.close()
    cases.end()


main()
