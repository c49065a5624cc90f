"""Each verb on each example, what the exit codes say, and what programs refuse."""
import json
import os
import re
import resource
import signal
import struct
import subprocess
import time

from common import Cases, open_tools, require

EXAMPLES = ("tiny-llama", "mlp", "mixture", "frozen", "gpt2", "llama-3.2-1b")
# Large models are compiled for a machine that holds them; their programs are not run here.
FLAGS = {"gpt2": ("--ranks", 2, "--memory", "16GiB", "--seq", 128), "llama-3.2-1b": ("--machine", "2xT4", "--precision", "bf16", "--recompute", "full")}
C_FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion", "-Wstrict-prototypes", "-Wmissing-prototypes", "-fsyntax-only")  # fmt: skip


def wait_until(true, text, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        require(time.monotonic() < end, text)
        time.sleep(0.01)


def ended(pid):
    """Gone, or a zombie that nobody asks after."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Cli:
    def __init__(self, tools):
        self.tools = tools
        self.tiny = tools.example("tiny-llama.json")

    def flags(self, example):
        return FLAGS.get(example, ("--ranks", 2))

    def fg(self, *words, expect=0):
        return self.tools.call(self.tools.foregather, *words, expect=expect)

    def dumps_read_back(self, example):
        for stage in ("graph", "dist", "sched"):
            text, _ = self.fg("dump", self.tools.example(example + ".json"), *self.flags(example), "--stage", stage)
            path = self.tools.path(f"{example}-{stage}.fg")
            with open(path, "w") as f:
                f.write(text)
            require(f"level({stage})" in text.splitlines()[0], f"{stage}: starts with {text[:80]!r}")
            again, _ = self.tools.call(os.path.join(self.tools.build, "bin", "fg-opt"), path)
            require(again == text, f"{stage}: read back and printed, it is another text")

    def emits_clean_c(self, example):
        path = self.tools.path(example + ".c")
        self.tools.compile(self.tools.example(example + ".json"), *self.flags(example), "--emit", "c", out=path)
        with open(path) as f:
            text = f.read()
        body = re.sub(r'/\*.*?\*/|"[^"\n]*"', "", text, flags=re.S)
        body = re.sub(r"^static void fused_\d+\(.*?^}", "", body, flags=re.S | re.M)  # loops of chains, read by form
        found = re.findall(r"\b(?:if|for|while|switch|goto|do)\b", body)
        require(not found, f"the emitted file has control flow: {set(found)}")
        require(re.findall(r"#\s*include\s+(\S+)", body + text) and set(re.findall(r"#\s*include\s+(\S+)", text)) == {'"fg_rt.h"'},
                "it includes more than fg_rt.h")  # fmt: skip
        include = os.path.join(self.tools.build, "lib", "foregather", "include")
        self.tools.call("cc", *C_FLAGS, "-I", include, path)

    def diffs(self, example):
        model = self.tools.example(example + ".json")
        text, _ = self.fg("diff", model, *self.flags(example))
        require("zero3" in text and "compiled" in text, f"the comparison names neither side:\n{text[:500]}")
        data, _ = self.fg("diff", model, *self.flags(example), "--format", "json")
        json.loads(data)

    def diff_of_dumps(self):
        paths = {}
        for schedule in ("zero3", "compiled"):
            paths[schedule] = self.tools.path(schedule + ".fg")
            self.fg("dump", self.tiny, "--ranks", 2, "--zero3", "minimal", "--schedule", schedule, "-o", paths[schedule])
        self.fg("diff", paths["zero3"], paths["zero3"], "--exit-code")
        self.fg("diff", paths["zero3"], paths["compiled"], "--exit-code", expect=1)

    def help_and_version(self):
        text, _ = self.fg("--help")
        for verb in ("compile", "dump", "diff", "tokens", "verify", "frontier", "explain"):
            require(verb in text, f"help does not name {verb}")
            help_, _ = self.fg(verb, "--help")
            require(len(help_) > 100, f"help of {verb} is {help_!r}")
        version, _ = self.fg("--version")
        require(re.search(r"\d+\.\d+", version), f"the version is {version!r}")

    def usage(self):
        for words in (("compule",), ("compile", self.tiny, "--rank", 2), ("compile",), ("compile", self.tiny, "--ranks", "two"),
                      ("compile", self.tiny, "--schedule", "best"), ("compile", self.tiny, "--memory", "12XB"), ()):  # fmt: skip
            _, stderr = self.fg(*words, expect=2)
            require(stderr.strip(), f"{words}: nothing was said")
        _, stderr = self.fg("compile", self.tiny, "--rank", 2, expect=2)
        require("--ranks" in stderr, f"no suggestion: {stderr}")

    def bad_input(self):
        path = self.tools.path("bad.json")
        with open(self.tiny) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(text.replace('"op": "silu"', '"op": "silo"'))
        line = 1 + text[: text.index('"op": "silu"')].count("\n")
        _, stderr = self.fg("compile", path, expect=1)
        require(re.search(rf"bad\.json:{line}:\d+: error: ", stderr), f"no place:\n{stderr}")
        require("silu" in stderr and "^" in stderr, f"no suggestion or no caret:\n{stderr}")
        self.fg("compile", self.tools.path("absent.json"), expect=1)

    def does_not_fit(self):
        report, _, stderr = self.tools.compile(self.tiny, "--ranks", 2, "--memory", "1MiB", expect=3)
        require(report["fits"] is False and report["smallest_budget_bytes"] > 1 << 20, f"{report}")
        require(stderr.strip(), "nothing was said")
        self.fg("dump", self.tiny, "--ranks", 2, "--memory", "1MiB", "--stage", "graph")
        again, _, _ = self.tools.compile(self.tiny, "--ranks", 2, "--memory", report["smallest_budget_bytes"], "--emit", "c",
                                         out=self.tools.path("fits.c"))  # fmt: skip
        require(again["fits"] and again["peak_bytes"] <= again["budget_bytes"], f"{again}")

    def tokens(self):
        source, out = self.tools.path("text"), self.tools.path("data.bin")
        text = bytes(range(256)) * 3
        with open(source, "wb") as f:
            f.write(text)
        self.fg("tokens", "--bytes", source, source, "-o", out)
        with open(out, "rb") as f:
            data = f.read()
        magic, version, count = struct.unpack("<3i", data[:12])
        require((magic, version) == (20240520, 1), f"header {magic} {version}")
        require(len(data) == 1024 + 2 * count, f"{count} tokens in {len(data)} bytes")
        got = list(struct.unpack(f"<{count}H", data[1024:]))
        wanted = list(text)
        require(got[: len(wanted)] == wanted and got[-len(wanted):] == wanted, "the tokens are not the bytes")

    def outputs_replace_no_inputs(self):
        """Whatever an output is called, files that were given stay as they are; so do devices."""
        model, link = self.tools.path("own.json"), self.tools.path("link.json")
        with open(self.tiny) as f:
            text = f.read()
        with open(model, "w") as f:
            f.write(text)
        os.symlink("own.json", link)
        for words in (("compile", model, "-o", model), ("compile", model, "-o", link), ("dump", link, "-o", model),
                      ("compile", model, "--emit", "c", "-o", self.tools.path("own.c"), "--report", model),
                      ("tokens", "--bytes", model, "-o", link)):  # fmt: skip
            _, stderr = self.fg(*words, expect=2)
            require("over the input" in stderr, f"{words}: {stderr}")
            with open(model) as f:
                require(f.read() == text, f"{words}: the model was replaced")
        null = os.stat("/dev/null")
        self.fg("compile", model, "-o", "/dev/null", expect=1)
        self.fg("compile", model, "--emit", "c", "-o", "/dev/null")
        self.fg("dump", model, "-o", "/dev/null")
        after = os.stat("/dev/null")
        require((null.st_ino, null.st_mode, null.st_rdev) == (after.st_ino, after.st_mode, after.st_rdev), "the device was replaced")

    def times_add_up(self):
        """A step is compute alone, what overlap costs it, and what it waits for: the engine that bounds it may be compute."""
        report, text, _ = self.tools.compile(self.tools.example("llama-3.2-1b.json"), *FLAGS["llama-3.2-1b"], "--emit", "c",
                                             out=self.tools.path("sum.c"))  # fmt: skip
        require("(compute)" in text, f"another engine bounds it:\n{text}")
        total = report["bound_us"] + report["slowed_us"] + report["exposed_us"]
        require(abs(total - report["step_us"]) < 1e-6 * report["step_us"], f"{total} is not the step of {report['step_us']} us")

    def out_of_memory(self):
        """A host without memory is no bug of the command: status 1, what was needed, and no folder that is kept."""
        folder = self.tools.path("memory", "tmp")
        os.mkdir(folder)

        def limited(*words):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))  # noqa: E731
            return subprocess.run([self.tools.foregather, *words], capture_output=True, text=True, preexec_fn=limit, env=dict(os.environ, TMPDIR=folder))  # fmt: skip

        if limited("version").returncode != 0:
            return  # a sanitizer's shadow alone is larger
        done = limited("dump", self.tiny, "--seq", "100000000", "--vocab-chunk", "8", "--stage", "graph")
        require(done.returncode == 1 and not done.stdout, f"ended with {done.returncode}: {done.stderr}")
        require(re.match(r"error: out of memory: \d+ bytes more are needed.*\nnote: allow the command more", done.stderr), done.stderr)
        require("bug" not in done.stderr and not os.listdir(folder), f"{os.listdir(folder)}: {done.stderr}")

    def interrupted(self):
        """A signal to the command, while the compiler runs, ends all that it started; nothing is written, nothing stays behind."""
        compiler = self.tools.path("interrupted", "cc")
        with open(compiler, "w") as f:
            f.write('#!/bin/sh\nsleep 60 &\necho $! > "$STARTED.tmp"\nmv "$STARTED.tmp" "$STARTED"\nwait\n')
        os.chmod(compiler, 0o755)
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
            started, folder, out = (self.tools.path("interrupted", sent.name, name) for name in ("started", "tmp", "out"))
            os.mkdir(folder)
            running = subprocess.Popen([self.tools.foregather, "compile", self.tiny, "--no-verify", "-o", out], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=dict(os.environ, CC=compiler, TMPDIR=folder, STARTED=started),
                                       preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)])  # fmt: skip
            wait_until(lambda: os.path.exists(started), "the compiler does not start")
            require(os.listdir(folder), "the compiler runs in no folder of its own")
            with open(started) as f:
                sleeper = int(f.read())
            running.send_signal(sent)
            said = running.communicate(timeout=20)
            require(running.returncode == -sent, f"{sent.name}: ended with {running.returncode}")
            wait_until(lambda: ended(sleeper), f"{sent.name}: what the compiler started goes on")
            wait_until(lambda: not os.listdir(folder), f"{sent.name}: {os.listdir(folder)} stays behind")
            left = sorted(os.listdir(os.path.dirname(out)))
            require(left == ["started", "tmp"], f"{sent.name}: there is {left}")
            require(said == (b"", b""), f"{sent.name}: it said {said}")

    def checked(self):
        """Checked mode finds nothing in any schedule, clipped and accumulated or not."""
        data = self.tools.path("data.bin")
        self.fg("tokens", "--bytes", self.tiny, "-o", data)
        for n, flags in enumerate((("--schedule", "zero3"), ("--schedule", "minimum", "--recompute", "full"), ("--clip", "1.0"),
                                   ("--accumulate", 3, "--precision", "bf16"),
                                   ("--clip", "0.5", "--accumulate", 2, "--reduce-dtype", "bf16"))):  # fmt: skip
            program = self.tools.path(f"checked-{n}")
            self.tools.compile(self.tiny, "--ranks", 3, "--batch", 1, "--seq", 16, "--dim", "layers=2", *flags, out=program)
            self.tools.call(program, "--data", data, "--steps", 3, "--checked")
            os.remove(program)

    def programs_refuse(self):
        program, data = self.tools.path("program"), self.tools.path("data.bin")
        self.fg("tokens", "--bytes", self.tiny, "-o", data)
        self.tools.compile(self.tools.example("mlp.json"), "--ranks", 2, "--batch", 1, "--seq", 8, out=program)
        for words, code in ((("--data", data, "--local-ranks", 3), 2), (("--data", self.tools.path("absent")), 1),
                            (("--data", data, "--step", 3), 2), ((), 2), (("--data", data, "--global-batch", 3), 2),
                            (("--data", self.tiny), 1)):  # fmt: skip
            _, stderr = self.tools.call(program, *words, expect=code)
            require(stderr.strip(), f"{words}: nothing was said")


def main():
    tools, _ = open_tools()
    cases, cli = Cases(), Cli(tools)
    for example in EXAMPLES:
        cases.run(f"{example}: dumps of all levels read back as they are", cli.dumps_read_back, example)
        cases.run(f"{example}: emitted C is straight calls and clean", cli.emits_clean_c, example)
        cases.run(f"{example}: diff", cli.diffs, example)
    for name in ("diff_of_dumps", "help_and_version", "usage", "bad_input", "does_not_fit", "outputs_replace_no_inputs", "times_add_up",
                 "tokens", "checked", "programs_refuse", "out_of_memory", "interrupted"):  # fmt: skip
        cases.run(f"command: {name.replace('_', ' ')}", getattr(cli, name))
    tools.close()
    cases.end()


main()
