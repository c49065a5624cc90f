"""How programs run on the GPUs that there are, and how what they print and write is judged. Standard library only.

A program's ranks are processes of one machine, one a GPU (`--local-ranks`), where there are as many GPUs. Where there are
fewer, each process is a machine of its own for NCCL (`NCCL_HOSTID`), which then takes its network, over the loopback, and
does not mind that several have one GPU: slow, but the arithmetic, the collectives' sizes and the processes of any number of
ranks, and the only way to run several nodes of one GPU without them.
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from common import Cases, Wrong, floats, near, read_log, read_tensors, require  # noqa: E402

OPTIMIZER = ("--lr", "1e-3", "--beta1", "0.9", "--beta2", "0.95", "--eps", "1e-8", "--weight-decay", "0.1")
PROGRAM_LIMIT = 90  # seconds
ENDING = 45  # seconds that the others have when one rank has ended badly: a run is over within 30

# Against torch. The host's tolerances (integration/run_oracle.py), wider by what sums in another order and of other
# sizes cost.
LOSS, GRADIENT, ADAMW = 1e-5, 2e-4, 5e-5
BF16_LOSS, BF16_GRADIENT, BF16_ADAMW = 2e-3, 6e-2, 1e-2
F16_LOSS, F16_GRADIENT, F16_ADAMW = 2e-4, 1e-2, 1e-3
NEGLIGIBLE = 1e-6


class Nodes:
    """The processes of a run, each a node of one GPU. Their outputs go to files, so that none waits for a reader."""

    def __init__(self, command, ranks, gpus, port, folder):
        self.name, self.outputs, self.processes = os.path.basename(command[0]), [], []
        for rank in range(ranks):
            # Rank 0 shares its GPU with as few as can be: alone there, what it measures of memory is its own.
            gpu = gpus - 1 - (ranks - 1 - rank) * gpus // ranks
            env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), CUDA_VISIBLE_DEVICES=str(gpu), NCCL_HOSTID=f"node-{port}-{rank}",
                       NCCL_NET="Socket", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_MNNVL_ENABLE="0", NCCL_NVLS_ENABLE="0",
                       NCCL_DEBUG="WARN")  # fmt: skip
            output = open(os.path.join(folder, f"output-{port}-{rank}"), "w+", errors="replace")
            self.outputs.append(output)
            self.processes.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=folder,
                                                   start_new_session=True))  # fmt: skip

    def said(self, rank):
        self.outputs[rank].flush()
        with open(self.outputs[rank].name, errors="replace") as f:
            return f.read()

    def wait(self, limit):
        """The ranks' exit statuses. Those that outlast the limit, or one that ended badly by ENDING seconds, are killed: None."""
        end, hurried = time.monotonic() + limit, False
        while any(p.poll() is None for p in self.processes) and time.monotonic() < end:
            if not hurried and any(p.poll() for p in self.processes):
                end, hurried = min(end, time.monotonic() + ENDING), True
            time.sleep(0.02)
        codes = [p.poll() for p in self.processes]
        self.kill()
        return codes

    def kill(self):
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def report(self, codes):
        parts = [f"-- rank {rank} ({'killed, it did not end' if code is None else code})\n{self.said(rank)}"
                 for rank, code in enumerate(codes)]  # fmt: skip
        return "\n".join(parts)

    def tails(self, bytes_each=900):
        return "\n".join(f"-- rank {rank}: {self.said(rank)[-bytes_each:].strip()}" for rank in range(len(self.processes)))


class Runner:
    def __init__(self, folder, logs):
        self.folder, self.logs = folder, logs
        self.gpus = self.count()
        self.lock = threading.Lock()
        self.port = 20000 + os.getpid() * 7 % 10000
        self.programs = open(os.path.join(logs, "programs.txt"), "w")

    @staticmethod
    def count():
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
        return len(re.findall(r"^GPU \d+", listed.stdout, re.M))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def note(self, command, said, status, took):
        with self.lock:
            self.programs.write(f"\n$ {' '.join(command)}\n{said}\n({status}, {took:.1f} s)\n")
            self.programs.flush()

    def call(self, *command, expect=0, limit=PROGRAM_LIMIT, gpu=None, env=None):
        """Runs a program; (stdout + stderr, seconds). With `gpu`, that one alone is seen."""
        command = [str(word) for word in command]
        settings = dict(os.environ, NCCL_NVLS_ENABLE="0", **(env or {}))
        if gpu is not None:
            settings["CUDA_VISIBLE_DEVICES"] = str(gpu)
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env=settings, cwd=self.folder, start_new_session=True)  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            said += f"\n(did not end within {limit} s)"
        took = time.monotonic() - start
        self.note(command, said, process.returncode, took)
        if process.returncode != expect:
            raise Wrong(f"{os.path.basename(command[0])} ended with {process.returncode}, not {expect}:\n{said[-1500:]}")
        return said, took

    def free_port(self):
        """Below the ports that connections are given by the system."""
        with self.lock:
            while True:
                self.port = 20000 + (self.port + 1) % 12000
                with socket.socket() as s:
                    try:
                        s.bind(("127.0.0.1", self.port))
                        return self.port
                    except OSError:
                        continue

    def nodes(self, ranks, *command):
        return Nodes([str(word) for word in command], ranks, self.gpus, self.free_port(), self.folder)

    def train(self, ranks, *command, limit=PROGRAM_LIMIT, gpu=None):
        """Runs a program's ranks to their end; (what rank 0 said, seconds). `gpu` is for one rank."""
        if ranks <= max(self.gpus, 1):
            return self.call(*command, *(("--local-ranks", ranks) if ranks > 1 else ()), limit=limit, gpu=gpu)
        start = time.monotonic()
        nodes = self.nodes(ranks, *command)
        codes = nodes.wait(limit)
        took = time.monotonic() - start
        self.note([str(word) for word in command] + [f"# {ranks} nodes on {self.gpus} GPUs"], nodes.report(codes), codes, took)
        if any(code != 0 for code in codes):
            raise Wrong(f"{nodes.name}: ranks ended with {codes}:\n{nodes.tails()}")
        return nodes.said(0), took


class Tee:
    def __init__(self, *streams):
        self.streams = streams

    def write(self, text):
        for stream in self.streams:
            stream.write(text)
            stream.flush()

    def flush(self):
        pass


class Selected(Cases):
    def __init__(self, word):
        super().__init__()
        self.word = word

    def has(self, name):
        return self.word in name

    def run(self, name, function, *arguments):
        return super().run(name, function, *arguments) if self.has(name) else None


def scale_of(name):
    """Below where any gradient of the small models overflows: which step the first one would be is a matter of roundings."""
    return ("--loss-scale", 1024) if "fp16" in name else ()


def largest_error(a, b):
    return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, b))


def norm_error(a, b):
    return (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(y * y for y in b)) ** 0.5


def oracle(run, name, model, ranks, precision, gpu, *options):
    """One program against torch: loss, gradients, ten AdamW losses. Its losses."""
    data = lambda file: run.path("data", model, file)  # noqa: E731
    fp32 = precision == "fp32"
    loss, gradient, adamw = {
        "fp32": (LOSS, GRADIENT, ADAMW),
        "bf16": (BF16_LOSS, BF16_GRADIENT, BF16_ADAMW),
        "fp16": (F16_LOSS, F16_GRADIENT, F16_ADAMW),
    }[precision]
    expected = json.load(open(data("expected.json")))
    common = [run.path(name), "--inputs", data("inputs.safetensors"), "--weights", data("weights.safetensors"),
              "--global-batch", 2, *OPTIMIZER, *options, *scale_of(precision)]  # fmt: skip
    tag = name + "".join(options)
    grads, log = run.path(f"{tag}.grads"), run.path(f"{tag}.jsonl")
    run.train(ranks, *common, "--steps", 1, "--dump-grads", grads, gpu=gpu)
    run.train(ranks, *common, "--steps", 10, "--log", log, gpu=gpu)
    steps = read_log(log)
    losses = [steps[s]["loss"] for s in range(1, 11)]
    errors = [near(losses[0], expected["loss"], loss, "loss")]
    got, worst = read_tensors(grads), 0.0
    wanted = read_tensors(data("grads.safetensors"))
    require(sorted(got) == sorted(wanted), f"gradients of {sorted(got)}, not of {sorted(wanted)}")
    for tensor, row in wanted.items():
        a, b = floats(got[tensor]), floats(row)
        if max(map(abs, b)) >= NEGLIGIBLE:
            error = (largest_error if fp32 else norm_error)(a, b)
            require(error <= gradient, f"gradient of {tensor} is off by {error:.3g}, allowed {gradient:g}")
            worst = max(worst, error)
    errors.append(worst)
    errors.append(max(near(a, b, adamw, f"loss of step {i + 1}")
                      for i, (a, b) in enumerate(zip(losses, expected["adamw"]["losses"]))))  # fmt: skip
    return losses, "errors: loss %.1e, gradients %.1e, AdamW losses %.1e" % tuple(errors)


def losses_of(log):
    rows = read_log(log)
    return [rows[s]["loss"] for s in sorted(rows)], [rows[s]["grad_norm"] for s in sorted(rows)]


def as_host(name, here, there, steps):
    """Losses and norms of a run beside the host's."""
    narrow = "bf16" in name or "fp16" in name
    worst = max(abs(x - y) / abs(y) for x, y in zip(here[0], there[0]))
    norms = max(abs(x - y) / abs(y) for x, y in zip(here[1], there[1]))
    require(len(here[0]) == steps, f"{len(here[0])} steps")
    require(worst <= (1e-2 if narrow else 1e-4), f"losses off by {worst:.2e}: {here[0]}, host {there[0]}")
    require(norms <= (1e-1 if narrow else 2e-3), f"norms off by {norms:.2e}: {here[1]}, host {there[1]}")
    return f"losses within {worst:.1e}, norms within {norms:.1e}"


def memory_as_planned(said):
    """What the driver counts is no more than was planned, by 1 %."""
    for line in said.split("\n"):
        if line.startswith(("memory", "time", "attention")):
            print(f"  {line}")
    measured = re.search(r"planned ([\d.]+) GiB.* measured ([\d.]+) GiB", said)
    require(measured, "no line of memory")
    planned, used = float(measured[1]), float(measured[2])
    require(used <= planned * 1.01, f"planned {planned} GiB, the driver counts {used}")
