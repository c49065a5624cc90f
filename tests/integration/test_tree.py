"""Rules of the source tree that no compiler checks: who may include whom, headers that stand alone, sizes, and nothing
in the repository that names a machine."""
import os
import re
import subprocess

from common import Cases, open_tools, require

# Folder -> folders it may include. Dependencies point one way; the runtime includes nothing of the compiler.
MAY_INCLUDE = {
    "base": {"base"},
    "ir": {"base", "ir"},
    "frontend": {"base", "ir", "frontend"},
    "passes": {"base", "ir", "passes"},
    "readback": {"base", "ir", "passes", "readback"},
    "codegen": {"base", "ir", "codegen"},
    "runtime": {"runtime"},
    "tools": {"base", "ir", "frontend", "passes", "readback", "codegen", "tools"},
}
# The host runtime is below the trainer.
LOWER_RUNTIME = "runtime/host/"

MAX_FILE_LINES = 700
C_FLAGS = ("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c")


def sources(root, *endings):
    for folder in (*MAY_INCLUDE, "tests"):
        for where, _, names in sorted(os.walk(os.path.join(root, folder))):
            for name in sorted(names):
                if name.endswith(endings):
                    yield os.path.relpath(os.path.join(where, name), root)


def read(root, path):
    with open(os.path.join(root, path), errors="replace") as f:
        return f.read()


def includes(root):
    wrong = []
    for path in sources(root, ".c", ".h", ".def"):
        folder = path.split("/")[0]
        if folder not in MAY_INCLUDE:
            continue
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', read(root, path), re.M):
            target = name if "/" in name else os.path.join(os.path.dirname(path), name)
            if target.split("/")[0] not in MAY_INCLUDE[folder]:
                wrong.append(f"{path} includes {name}")
            if path.startswith(LOWER_RUNTIME) and target.startswith("runtime/trainer/"):
                wrong.append(f"{path} includes {name}")
            if not os.path.exists(os.path.join(root, target)):
                wrong.append(f"{path} includes {name}, by a name that does not start at the root")
    require(not wrong, "\n  ".join(wrong))


def headers(root, cc="cc"):
    wrong = []
    for path in sources(root, ".h"):
        if "/cuda/" in path:  # for nvcc, which takes the toolkit's headers
            continue
        done = subprocess.run([cc, *C_FLAGS, "-I", root, "-I", "/usr/include/x86_64-linux-gnu/openblas-serial", path],
                              cwd=root, capture_output=True, text=True)  # fmt: skip
        if done.returncode:
            wrong.append(f"{path} does not compile alone:\n{done.stderr[:400]}")
    require(not wrong, "\n  ".join(wrong))


def sizes(root):
    wrong = []
    for path in sources(root, ".c", ".h"):
        lines = read(root, path).count("\n")
        if lines > MAX_FILE_LINES:
            wrong.append(f"{path} has {lines} lines, more than {MAX_FILE_LINES}")
    require(not wrong, "\n  ".join(wrong))


def essays(root):
    """Every source file opens by saying what it is."""
    wrong = [path for path in sources(root, ".c", ".h") if not read(root, path).startswith("/*")]
    require(not wrong, "these do not open with a comment: " + ", ".join(wrong))


def entries(root, build):
    """Every test file is part of a test entry."""
    listed = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True).stdout
    names = set(re.findall(r"Test +#\d+: (\S+)", listed))
    wrong = []
    for where, _, files in os.walk(os.path.join(root, "tests")):
        parts = os.path.relpath(where, os.path.join(root, "tests")).split(os.sep)
        for file in files:
            stem, ending = os.path.splitext(file)
            if parts[0] == "lit" and ending in (".fg", ".test") and "Inputs" not in parts:
                name = f"lit.{parts[1]}" if len(parts) > 1 else "a folder of tests/lit"
            elif ending in (".c", ".py") and stem.startswith("test_"):
                name = f"{parts[0]}.{stem}"
            else:
                continue
            if name not in names:
                wrong.append(f"{os.path.join(*parts, file)} is no part of a test entry")
    require(not wrong, "\n  ".join(wrong) + f"\n  entries: {sorted(names)}")


def leftovers(root):
    wrong = []
    for path in sources(root, ".c", ".h", ".def", ".py", ".fg", ".test", ".sh", ".txt"):
        if path.endswith("test_tree.py"):
            continue
        for number, line in enumerate(read(root, path).splitlines(), 1):
            if re.search(r"\bTODO\b|\bFIXME\b|\bXXX\b|/(?:work|home|root)/", line):
                wrong.append(f"{path}:{number}: {line.strip()}")
    require(not wrong, "\n  ".join(wrong))


def main():
    tools, _ = open_tools()
    cases = Cases()
    cases.run("tree: includes point one way", includes, tools.source)
    cases.run("tree: every header compiles alone", headers, tools.source)
    cases.run("tree: no file outgrows its limit", sizes, tools.source)
    cases.run("tree: every file says what it is", essays, tools.source)
    cases.run("tree: every test file is run", entries, tools.source, tools.build)
    cases.run("tree: no leftovers and no machine's paths", leftovers, tools.source)
    tools.close()
    cases.end()


main()
