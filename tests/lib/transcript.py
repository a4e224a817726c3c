#!/usr/bin/env python3
"""
Runs the transcripts in the EXAMPLES of a manual page, all in one shell, and compares what they
print.

  transcript.py PAGE

In a literal display, lines that begin with "$ " are commands, and those after them what is printed,
"..." being anything. A command that fails is a failure. Prints `ok - COMMAND` lines.
"""
import re
import subprocess
import sys

MARK = "\x01"
ESCAPES = {r"\e": "\\", r"\&": "", r"\-": "-", r"\(aq": "'", r"\(dq": '"', r"\(ti": "~"}


def plain(line):
    return re.sub(r"\\(\(..|.)", lambda m: ESCAPES[m.group(0)], line)


def steps(page):
    """Each command with the pattern of what it prints."""
    shown = False
    for line in page.split("\n.Sh EXAMPLES\n")[1].split("\n.Sh ")[0].splitlines():
        if line.startswith((".Bd", ".Ed")):
            shown = line.startswith(".Bd")
        elif shown and line.startswith("$ "):
            yield [plain(line[2:]), []]
        elif shown:
            yield [None, [plain(line)]]


def joined(parts):
    found = []
    for command, printed in parts:
        if command:
            found.append((command, printed))
        else:
            found[-1][1].extend(printed)
    return found


def matches(want, have):
    pattern = ".*".join(re.escape(part) for part in "\n".join(want).split("..."))
    return re.fullmatch(pattern, have.rstrip("\n"), re.S) is not None


def run(shell, command):
    """What COMMAND prints, and its exit code."""
    shell.stdin.write(f"{command}\nprintf '{MARK}%d{MARK}' $?\n")
    shell.stdin.flush()
    said = ""
    while said.count(MARK) < 2:
        char = shell.stdout.read(1)
        if not char:
            return said, None
        said += char
    printed, code, _ = said.split(MARK)
    return printed, int(code)


def main():
    with open(sys.argv[1], encoding="utf-8") as page:
        todo = joined(steps(page.read()))
    shell = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    failed = not todo
    for command, want in todo:
        have, code = run(shell, command)
        good = code == 0 and matches(want, have)
        failed = failed or not good
        if not good:
            print(f"# exit code {code}, want {want!r}, have {have!r}")
        print(f"{'ok' if good else 'not ok'} - {command}", flush=True)
    shell.stdin.close()
    shell.wait()
    return failed


sys.exit(main())
