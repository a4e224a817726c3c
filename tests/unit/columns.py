#!/usr/bin/env python3
"""
Fails on a line of a tracked text that is longer than 100 characters, a tab being one, and on a C
file whose head begins with "What" and so does not name its object.

  columns.py SOURCE
"""
import os
import re
import subprocess
import sys

COLUMNS = 100
# What is not made of lines: data that a program reads, and pictures.
NO_TEXT = re.compile(r"tests/fuzz/corpus/|.*(\.(svg|tsv|lock)|/go\.sum|/package-lock\.json)$")
HEAD = re.compile(r"/\*[\s*]*What\b")


def tracked(top):
    out = subprocess.run(["git", "-C", top, "ls-files", "-z"], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, check=True).stdout
    return [name for name in out.decode().split("\0") if name and not NO_TEXT.match(name)]


def text_of(path):
    """None where it is no regular file, or one that is not text."""
    if os.path.islink(path) or not os.path.isfile(path):
        return None
    with open(path, "rb") as f:
        data = f.read()
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def say(number, claim, found):
    print(f"{'not ok' if found else 'ok'} {number} - {claim}")
    for line in found:
        print(f"# {line}")


def main(top):
    try:
        names = tracked(top)
    except (OSError, subprocess.CalledProcessError):
        print("1..0 # SKIP no repository says which files are the project's")
        return
    texts = {name: text for name in names if (text := text_of(os.path.join(top, name))) is not None}
    long = [f"{name}:{number}: {len(line)}" for name, text in texts.items()
            for number, line in enumerate(text.split("\n"), 1)
            # A comment of a manual page names a test's claim, which cannot be broken.
            if len(line) > COLUMNS and not line.startswith('.\\"')]
    what = [name for name, text in texts.items()
            if name.endswith((".c", ".h")) and HEAD.match(text)]
    print("1..3")
    say(1, "there are texts to look at", [] if len(texts) > 100 else [f"{len(texts)}"])
    say(2, f"no line is longer than {COLUMNS} characters", long)
    say(3, "no head of a C file begins with What", what)


main(sys.argv[1])
