"""Outputs of the command and of trained programs: whole or not at all, on a full disk when killed, and when several write one; and names that
would do harm in a shell.

    test_outputs.py --build B --source S

A full disk is a limit on the size of files: what goes beyond it fails as it would on a disk without room.
"""
import os
import resource
import signal
import subprocess
import time

from common import Cases, checkpoint, files_under, open_tools, read_log, require
from faults import small_model

OLD = b"what was there\n"
NAMES = ("$(touch harm)`touch harm`", ";touch harm;|touch harm&&touch harm", "-x", "@file", "a b'\"*~", "\n", "%s%n\\$HOME", "é" * 100)


def limited(command, most, cwd=None):
    """Runs a command that can write files of `most` bytes alone; (status, output)."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    done = subprocess.run(command, capture_output=True, text=True, errors="replace", preexec_fn=limit, cwd=cwd, timeout=240)
    return done.returncode, done.stdout + done.stderr


def outputs(tools, model, folder):
    """Every output of every verb: (command, path)."""
    f, text = tools.foregather, tools.path("text")
    with open(text, "w") as file:
        file.write("some text " * 2000)
    at = lambda name: os.path.join(folder, name)  # noqa: E731
    return [
        ([f, "compile", model, "-o", at("program")], at("program")),
        ([f, "compile", model, "--emit", "so", "-o", at("object.so")], at("object.so")),
        ([f, "compile", model, "--emit", "c", "-o", at("text.c")], at("text.c")),
        ([f, "compile", model, "--target", "cuda", "--emit", "c", "-o", at("text.cu")], at("text.cu")),
        ([f, "compile", model, "--emit", "c", "-o", "/dev/null", "--report", at("report.json")], at("report.json")),
        ([f, "dump", model, "-o", at("plan.fg")], at("plan.fg")),
        ([f, "tokens", "--bytes", text, "-o", at("tokens.bin")], at("tokens.bin")),
    ]


def no_room(tools, model, most):
    """Status 1, a message, the old file as it was, nothing beside it."""
    folder = tools.path(f"full-{most}", "x")
    folder = os.path.dirname(folder)
    for command, path in outputs(tools, model, folder):
        with open(path, "wb") as f:
            f.write(OLD)
        status, said = limited(command, most)
        what = f"{' '.join(command[1:])} with files of {most} bytes"
        require(status == 1 and "error" in said, f"{what} ended with {status}:\n{said}")
        require(files_under(folder) == {os.path.basename(path): OLD}, f"{what} left {sorted(files_under(folder))}")
        os.remove(path)


def killed(tools, model):
    """Whenever a command is killed, the old file or the whole new one is there."""
    folder = os.path.dirname(tools.path("killed", "x"))
    for command, path in outputs(tools, model, folder)[::3]:
        start = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        took = time.monotonic() - start
        with open(path, "rb") as f:
            new = f.read()
        for i in range(6):
            with open(path, "wb") as f:
                f.write(OLD)
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(took * (i + 0.5) / 6)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            with open(path, "rb") as f:
                found = f.read()
            program = new.startswith(b"\x7fELF") and found[:4] == new[:4] and len(found) == len(new)  # may name a folder
            require(program or found in (OLD, new), f"{path}: {len(found)} bytes after a kill")


def names(tools, model):
    """Files get the names that were asked for, and nothing else happens."""
    for i, name in enumerate(NAMES):
        folder = os.path.dirname(tools.path(f"names-{i}", "x"))
        with open(model, "rb") as f, open(os.path.join(folder, f"{name}.json"), "wb") as to:
            to.write(f.read())
        run = lambda *command: subprocess.run([tools.foregather, *command], capture_output=True, text=True, cwd=folder)  # noqa: E731
        done = [
            run("compile", f"./{name}.json", f"-o={name}", f"--report={name}.report", "--save-temps"),
            run("dump", "-o", f"{name}.fg", "--", f"{name}.json"),
            run("verify", f"./{name}.c", f"--plan={name}.fg"),
            run("tokens", "--bytes", f"./{name}.c", "-o", f"{name}.bin"),
        ]
        for each in done:
            require(each.returncode == 0, f"{each.args} ended with {each.returncode}:\n{each.stderr}")
        made = sorted(files_under(folder))
        require(made == sorted(name + end for end in (".json", ".c", ".report", ".fg", ".bin", "")), f"{name!r} made {made}")
        _, said = tools.call(f"{folder}/{name}", "--data", f"{folder}/{name}.bin", "--steps", 1, "--save", f"{folder}/save")
        require("step 1/1" in said, said)


def closed_streams(tools, model):
    """Streams that are closed do not become files that messages go into."""
    program, data, log = tools.path("closed"), tools.path("closed.bin"), tools.path("closed.jsonl")
    tools.call(tools.foregather, "tokens", "--bytes", model, "-o", data)
    shut = lambda command, which: subprocess.run(["sh", "-c", f'exec "$@" {which}', "sh", *command], capture_output=True).returncode  # noqa: E731
    for which in ("2>&-", "<&- 2>&-", "<&- >&- 2>&-"):
        status = shut([tools.foregather, "compile", model, "-o", program], which)
        require(status == (1 if ">&- 2" in which else 0), f"compile {which} ended with {status}")
        with open(program, "rb") as f:
            require(f.read(4) == b"\x7fELF", f"compile {which} wrote something else")
        status = shut([program, "--data", data, "--steps", "3", "--log", log], which)
        require(status == 0, f"a program {which} ended with {status}")
        require(sorted(read_log(log)) == [1, 2, 3], f"the log of a program {which}")
        os.remove(log)


def nvcc_sees_no_name(tools, model):
    """nvcc runs its parts by a shell: what it is given is of foregather's making."""
    runtime, seen = os.path.dirname(tools.path("runtime", "include")), tools.path("seen")
    os.symlink(os.path.join(tools.build, "lib", "foregather", "include"), os.path.join(runtime, "include"))
    for name in ("libfg_rt_host.a", "libfg_trainer.a", "libfg_launch.a", "libfg_rt_cuda.a"):
        with open(os.path.join(runtime, name), "w"):
            pass
    nvcc = tools.path("nvcc")
    with open(nvcc, "w") as f:
        f.write(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\nwhile [ "$1" != -o ]; do shift; done\necho made > "$2"\n')
    os.chmod(nvcc, 0o755)
    env = dict(os.environ, NVCC=nvcc, FOREGATHER_RUNTIME=runtime)
    out = tools.path("named $(touch harm)")
    done = subprocess.run([tools.foregather, "compile", model, "--target", "cuda", "-o", out], capture_output=True, text=True, env=env)
    require(done.returncode == 0, done.stderr)
    with open(seen) as f:
        words = f.read()
    require("harm" not in words and "named" not in words and "program.cu" in words, words)
    with open(out) as f:
        require(f.read() == "made\n" and os.access(out, os.X_OK), "the program is not in its place")


def trained(tools, model):
    """A trained program without room: earlier checkpoints stay, the log has whole records, a resumed run goes on."""
    program, data = tools.path("trained"), tools.path("text")
    tools.call(tools.foregather, "compile", model, "-o", program)
    tools.call(tools.foregather, "tokens", "--bytes", os.path.join(tools.source, "docs", "ops.md"), "-o", data)
    whole = tools.path("trained-whole")
    run = lambda save, log, steps: [program, "--data", data, "--steps", str(steps), "--save", save, "--save-every", "1", "--log", log]  # noqa: E731
    tools.call(*run(whole, tools.path("whole.jsonl"), 4))
    size = max(len(data) for data in files_under(whole).values())
    tried = 0
    for most in (0, 100, 700, 1000, size // 2, size - 1):
        save, log = tools.path(f"trained-{most}"), tools.path(f"log-{most}.jsonl")
        tools.call(*run(save, log, 2))
        before = {name: checkpoint(os.path.join(save, name)) for name in sorted(os.listdir(save)) if name.startswith("step")}
        status, said = limited(run(save, log, 4) + ["--resume", save], most)
        require(status == 1 and "error: " in said, f"with files of {most} bytes it ended with {status}:\n{said}")
        for name, files in before.items():
            require(checkpoint(os.path.join(save, name)) == files, f"{name} is not what it was, with files of {most} bytes")
        require(not [name for name in os.listdir(save) if name.startswith(".tmp")], f"left behind: {os.listdir(save)}")
        tried += len(read_log(log))
        tools.call(*run(save, log, 4), "--resume", save)
        require(checkpoint(os.path.join(save, "step-000004")) == checkpoint(os.path.join(whole, "step-000004")), "a resumed run ends elsewhere")
    require(tried >= 12, f"{tried} records in all logs")


def side_by_side(tools, model):
    """Several commands write one file: it is what one of them makes, and nothing else is there."""
    folder = os.path.dirname(tools.path("together", "x"))
    for name, flags in (("text.c", ("--emit", "c")), ("program", ())):
        path, wanted, running = os.path.join(folder, name), [], []
        forms = [[tools.foregather, "compile", model, *flags, "--ranks", ranks, "-o", path] for ranks in ("1", "2")]
        for form in forms:
            tools.call(*form)
            with open(path, "rb") as f:
                wanted.append(f.read())
        for _ in range(2):
            running += [subprocess.Popen(form, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for form in forms]
        for process in running:
            _, said = process.communicate(timeout=240)
            require(process.returncode == 0, f"one of several ended with {process.returncode}:\n{said}")
        with open(path, "rb") as f:
            found = f.read()
        program = name == "program"  # it may name a folder of its making
        require(len(found) in [len(w) for w in wanted] if program else found in wanted, f"{name} is none of what was made")
        if program:
            _, said = tools.call(path, "--version")
        require(sorted(os.listdir(folder)) == [name], f"{name}: left {sorted(os.listdir(folder))}")
        os.remove(path)


def trained_killed(tools, model):
    """Whenever a run is killed, it goes on from a whole checkpoint and ends as one that was not."""
    program, data = tools.path("killed-program"), tools.path("text")
    tools.call(tools.foregather, "compile", model, "-o", program)
    run = lambda save, *more: [program, "--data", data, "--steps", "60", "--save", save, "--save-every", "1", *more]  # noqa: E731
    whole, save, last = tools.path("killed-whole"), tools.path("killed-save"), "step-000060"
    start = time.monotonic()
    tools.call(*run(whole))
    took, kills = time.monotonic() - start, 0
    for i in range(12):
        some = os.path.isdir(save) and any(name.startswith("step-") for name in os.listdir(save))
        if os.path.isdir(os.path.join(save, last)):
            break
        process = subprocess.Popen(run(save, *(("--resume", save) if some else ())), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(timeout=took * (0.13 + 0.021 * i))
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        _, said = process.communicate()
        require(process.returncode in (0, -signal.SIGKILL), f"after {kills} kills it ended with {process.returncode}: {said}")
    require(kills >= 3, f"only {kills} kills in {took:.1f} s")
    tools.call(*run(save, "--resume", save))
    require(checkpoint(os.path.join(save, last)) == checkpoint(os.path.join(whole, last)), f"after {kills} kills it ends elsewhere")
    require(not [name for name in os.listdir(save) if name.startswith((".tmp", ".old"))], f"left behind: {os.listdir(save)}")


def main():
    tools, _ = open_tools()
    cases = Cases()
    model = small_model(tools)
    for most in (0, 64, 500):
        cases.run(f"outputs: no room beyond {most} bytes", no_room, tools, model, most)
    cases.run("outputs: killed", killed, tools, model)
    cases.run("outputs: names", names, tools, model)
    cases.run("outputs: closed streams", closed_streams, tools, model)
    cases.run("outputs: nvcc sees no name", nvcc_sees_no_name, tools, model)
    cases.run("outputs: several commands write one file", side_by_side, tools, model)
    cases.run("outputs: a trained program without room", trained, tools, model)
    cases.run("outputs: a trained program, killed again and again", trained_killed, tools, model)
    tools.close()
    cases.end()


main()
