"""An installed command works away from the build tree: it finds the runtime it links with beside itself."""
import os

from common import Cases, open_tools, read_log, require


def installed(tools):
    prefix = tools.path("prefix")
    tools.call("cmake", "--install", tools.build, "--prefix", prefix)
    moved = tools.path("elsewhere")
    os.rename(prefix, moved)
    command, program, log = os.path.join(moved, "bin", "foregather"), tools.path("program"), tools.path("run.jsonl")
    tools.call(command, "compile", tools.example("mlp.json"), "--batch", 1, "--seq", 8, "-o", program)
    data = tools.path("data.bin")
    tools.call(command, "tokens", "--bytes", tools.example("mlp.json"), "-o", data)
    tools.call(program, "--data", data, "--steps", 2, "--log", log)
    require(sorted(read_log(log)) == [1, 2], "the program did not log two steps")


def main():
    tools, _ = open_tools()
    cases = Cases()
    cases.run("install: a moved installation compiles and its program trains", installed, tools)
    tools.close()
    cases.end()


main()
