# lit's settings for tests/lit. Tests are .fg and .json files with `// RUN:` lines, and .test files with `# RUN:` or
# `// RUN:` lines for inputs that can hold no comment; what they read lies in Inputs/ beside them.
import os

import lit.formats

config.name = "foregather"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".fg", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.join(config.fg_source, "tests", "lit")
config.test_exec_root = config.fg_exec_root

config.environment["PATH"] = os.pathsep.join([config.fg_bin, config.fg_llvm_bin, os.environ["PATH"]])
config.environment["LC_ALL"] = "C"

# `%S` and `%s` are lit's own. Longer names first: substitutions are tried in order.
config.substitutions.append(("%examples", os.path.join(config.fg_source, "examples")))
config.substitutions.append(("%data", os.path.join(config.fg_source, "tests", "data")))
config.substitutions.append(("%source", config.fg_source))
