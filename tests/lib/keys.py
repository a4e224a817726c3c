"""keys.py SECONDS COMMAND...: runs the command on a terminal and types.

Each line of standard input is one step: what has to have been shown, a tab, and the keys that are
then pressed, with the escapes of a Python string. Ends as the command does.
"""
import os
import pty
import re
import select
import sys
import time


def await_shown(master, text, until):
    have = b""
    while text not in re.sub(rb"\x1b[\[(][0-9;?]*[A-Za-z]", b"", have):
        if not select.select([master], [], [], max(0, until - time.monotonic()))[0]:
            sys.exit(f"{text!r} is not shown, but {have!r}")
        have += os.read(master, 65536)


def main():
    until = time.monotonic() + float(sys.argv[1])
    steps = [line.rstrip("\n").split("\t") for line in sys.stdin]
    pid, master = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "vt100"
        os.execvp(sys.argv[2], sys.argv[2:])
    for text, keys in steps:
        await_shown(master, text.encode(), until)
        os.write(master, keys.encode().decode("unicode_escape").encode())
    try:
        while os.read(master, 65536):
            pass
    except OSError:
        pass
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


main()
