#!/usr/bin/env python3
"""
Fails where a folder of fs/ or backends/ needs one above it, by an include or by a link. Prints the
order of the floors.

  floors.py SOURCE BUILD
"""
import os
import re
import subprocess
import sys

# From the lowest to the highest. A folder may need those before it.
FLOORS = """
include/sandboxfs
backends/support
backends/local/state
backends/git
backends/push
backends/remote
backends/daytona
backends/vercel
backends/dagger
backends/runner/isolation
backends/runner/spawner
backends/runner
backends/local/overlay
backends/local/gitsync
backends/local/worktreeinclude
backends/local/history
backends/local/trash
backends/local
backends/memory
backends
fs/util
fs/log
fs/fuse
fs/net
fs/github
fs/job
fs/config
fs/sandbox
fs/control
fs/workspace
fs
fs/completion
""".split()
# Folders of sources, and the objects that they become.
LIBRARIES = {
    "backends/runner/isolation": ("backends/runner", "librunner.a.p"),
    "backends/runner/spawner": ("backends/runner", "librunner.a.p"),
    "backends": ("backends", "libbackends.a.p"),
    "fs": ("fs", "libfs.a.p"),
}
PROGRAMS = ("fs/main.c", "fs/completion/completion.c", "backends/push/main.c",
            "backends/runner/spawner/main.c")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
DEFINED = "TDBRCVW"


def sources(top):
    for base in ("include", "fs", "backends"):
        for folder, _, names in os.walk(os.path.join(top, base)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), top)


def included(top, files):
    known = set(files)
    for path in files:
        with open(os.path.join(top, path), encoding="utf-8") as f:
            for name in INCLUDE.findall(f.read()):
                for found in {name, os.path.join("include", name)} & known:
                    yield path, found, "includes"


def symbols(obj):
    lines = subprocess.check_output(["nm", obj], text=True).splitlines()
    return [line.split()[-2:] for line in lines if line.strip()]


def object_of(build, path):
    """Meson calls the object of fs/job/plan.c job_plan.c.o."""
    for folder, (base, library) in LIBRARIES.items():
        if path.startswith(folder + "/"):
            return os.path.join(build, base, library,
                                os.path.relpath(path, base).replace("/", "_") + ".o")
    return None


def linked(build, files):
    defined, needed = {}, []
    for path in files:
        if path.endswith(".h") or path in PROGRAMS:
            continue
        for kind, symbol in symbols(object_of(build, path)):
            if kind in DEFINED:
                defined[symbol] = path
            elif kind == "U":
                needed.append((path, symbol))
    for path, symbol in needed:
        if symbol in defined:
            yield path, defined[symbol], "needs " + symbol + " of"


def main():
    top, build = sys.argv[1:]
    files = list(sources(top))
    floor = {name: n for n, name in enumerate(FLOORS)}
    wrong = sorted({f"{os.path.dirname(p)} has no floor" for p in files
                    if os.path.dirname(p) not in floor})
    if not wrong:
        wrong = [f"{path} {how} {other}, which is above it"
                 for edges in (included(top, files), linked(build, files))
                 for path, other, how in edges
                 if floor[os.path.dirname(other)] > floor[os.path.dirname(path)]]
    print("1..1")
    for name in reversed(FLOORS):
        print("#", name)
    for line in wrong:
        print("#", line)
    print("not ok 1" if wrong else "ok 1", "- no floor needs one above it")
    return 1 if wrong else 0


sys.exit(main())
