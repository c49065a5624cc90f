"""What the integration tests share: running the command and trained programs, reading safetensors, reporting cases.

A test prints one line a case, `name ok` or `name FAILED` after what was wrong, and ends with 1 when a case failed. The
standard library is all it takes.
"""
import argparse
import array
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import traceback


class Wrong(Exception):
    """A case that did not come out as it should."""


def require(condition, text):
    if not condition:
        raise Wrong(text)


class Cases:
    def __init__(self):
        self.failed = 0
        self.ran = 0

    def run(self, name, function, *arguments):
        """Runs one case; what it returns, or None when it failed."""
        self.ran += 1
        start = time.monotonic()
        try:
            result = function(*arguments)
        except Wrong as wrong:
            print(f"  {wrong}")
        except Exception:
            traceback.print_exc(file=sys.stdout)
        else:
            print(f"{name} ok", flush=True)
            return result if result is not None else True
        self.failed += 1
        print(f"  after {time.monotonic() - start:.1f} s")
        print(f"{name} FAILED", flush=True)
        return None

    def end(self):
        sys.exit(1 if self.failed or not self.ran else 0)


class Tools:
    """The command of a build, the repository it was built from, and a folder that goes away."""

    def __init__(self, build, source):
        self.build, self.source = build, source
        self.foregather = os.path.join(build, "bin", "foregather")
        self.folder = tempfile.mkdtemp(prefix="foregather-test-")

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, *parts):
        path = os.path.join(self.folder, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def data(self, *parts):
        return os.path.join(self.source, "tests", "data", *parts)

    def example(self, name):
        return os.path.join(self.source, "examples", name)

    def call(self, *command, expect=0, timeout=240):
        """Runs a command; its (stdout, stderr). Wrong when it ends otherwise than expected."""
        command = [str(word) for word in command]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{' '.join(command)}\n  did not end within {timeout} s")
        if done.returncode != expect:
            text = (done.stdout[-1500:] + done.stderr[-3000:]).replace("\n", "\n    ")
            raise Wrong(f"{' '.join(command)}\n  ended with {done.returncode}, not {expect}:\n    {text}")
        return done.stdout, done.stderr

    def compile(self, model, *flags, expect=0, out=None):
        """Compiles a model; its report (with the figures' names of docs/command.md) and the outputs."""
        report = self.path("report.json")
        if os.path.exists(report):
            os.remove(report)
        where = ["-o", out] if out else []
        stdout, stderr = self.call(self.foregather, "compile", model, *flags, "--report", report, *where, expect=expect)
        with open(report) as f:
            return json.load(f), stdout, stderr


def pretend_program(tools, model, flags, path, edit=None, sources=()):
    """Compiles a model for the cuda target and links it with that runtime on a pretended device (tests/pretend). `edit` changes the
    emitted text; `sources` hold its custom functions in C. Kernels of chains run as C++ (tests/pretend/device.cuh)."""
    tools.call(tools.foregather, "compile", model, *flags, "--target", "cuda", "--emit", "c", "-o", path + ".cu")
    if edit:
        with open(path + ".cu") as f:
            text = edit(f.read())
        with open(path + ".cu", "w") as f:
            f.write(text)
    with open(os.path.join(tools.build, "tests", "link-flags.txt")) as f:
        link = f.read().split()
    lib = os.path.join(tools.build, "lib", "foregather")
    tools.call("cc", "-x", "c", "-std=c11", "-O1", f"-I{lib}/include", "-c", path + ".cu", "-o", path + ".o")
    with open(path + ".cu") as f:
        kernels, n = re.subn(r"(kernel_\w+)<<<(.*)>>>\((.*)\);", r"PRETEND_LAUNCH(\1, \2, \3);", f.read())
    if n:
        with open(path + ".kernels.cc", "w") as f:
            f.write(kernels)
        tools.call("c++", "-std=c++17", "-O1", "-ffp-contract=off", "-fno-exceptions", "-include", os.path.join(tools.source, "tests/pretend/device.cuh"),
                   f"-I{tools.source}", f"-I{lib}/include", "-c", path + ".kernels.cc", "-o", path + ".kernels.o")  # fmt: skip
        sources = (*sources, path + ".kernels.o")
    # Whole: what runtime/cuda defines takes the place of weak definitions (tests/pretend/kernels.c).
    tools.call("cc", path + ".o", "-O2", "-ffp-contract=off", f"-I{lib}/include", *sources, f"{lib}/libfg_trainer.a", "-Wl,--whole-archive", f"{tools.build}/tests/libfg_rt_pretend.a", "-Wl,--no-whole-archive", f"{lib}/libfg_launch.a",
               *link, "-ldl", "-lpthread", "-lrt", "-lm", "-o", path)  # fmt: skip


def open_tools():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("rest", nargs="*")
    given = parser.parse_args()
    return Tools(os.path.abspath(given.build), os.path.abspath(given.source)), given.rest


def write_tokens(path, count, vocabulary, seed):
    """A token file of random tokens, the same each time."""
    source = random.Random(seed)
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240801, 7, count, *([0] * 253)))
        f.write(struct.pack(f"<{count}I", *(source.randrange(vocabulary) for _ in range(count))))


def read_tensors(path):
    """name -> (dtype, shape, bytes) of a safetensors file."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    base = 8 + size
    return {
        name: (row["dtype"], row["shape"], data[base + row["data_offsets"][0] : base + row["data_offsets"][1]])
        for name, row in header.items()
    }


def floats(tensor):
    """The entries of a float tensor."""
    dtype, _, data = tensor
    if dtype == "BF16":
        halves = array.array("H", data)
        return array.array("f", struct.pack(f"<{len(halves)}I", *(h << 16 for h in halves)))
    require(dtype == "F32", f"a tensor of {dtype}, not of floats")
    return array.array("f", data)


def read_log(path):
    """The step records of a run's log, by step."""
    steps = {}
    with open(path) as f:
        for line in f:
            row = json.loads(line)
            if "step" in row and "loss" in row:
                steps[row["step"]] = row
    return steps


def files_under(folder):
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = f.read()
    return found


def same_bytes(left, right, what):
    """Two folders, or two dicts name -> bytes, hold the same bytes."""
    left = files_under(left) if isinstance(left, str) else left
    right = files_under(right) if isinstance(right, str) else right
    require(left, f"{what}: nothing was written")
    require(sorted(left) == sorted(right), f"{what}: {sorted(left)} against {sorted(right)}")
    for name in left:
        if left[name] != right[name]:
            a, b = left[name], right[name]
            at = next((i for i in range(min(len(a), len(b))) if a[i] != b[i]), min(len(a), len(b)))
            raise Wrong(f"{what}: {name} differs from byte {at} of {len(a)} and {len(b)}")


def checkpoint(folder):
    """The files of a checkpoint; its manifest without the fingerprint of the plan that made it."""
    found = files_under(folder)
    for name in found:
        if os.path.basename(name) == "manifest.json":
            manifest = json.loads(found[name])
            require("fingerprint" in manifest, f"the manifest has no fingerprint: {manifest}")
            del manifest["fingerprint"]
            found[name] = json.dumps(manifest).encode()
    return found


def near(value, wanted, tolerance, what):
    error = abs(value - wanted) / max(abs(wanted), 1e-300)
    require(error <= tolerance, f"{what} is {value!r}, not {wanted!r}: off by {error:.3g}, allowed {tolerance:g}")
    return error
