"""Rows about what a sandbox was: recording it, going back, and making another of it, after
ten files have changed."""
import json
import os
import time

from .measure import Aim, Row
from .room import call
from .rows_boxes import measure_mkdir

TOUCHED = 10
KEPT = "kept"  # the sandbox that all these rows use
WAYS = ["git worktree", "sandboxfs"]
AIMS = [Aim("sandboxfs", "git worktree", least=20)]


def kept_box(sites):
    """A sandbox that has been used: git has looked at all of it, as whoever
    works in one has it do."""
    mount = sites.mount("large")

    def make():
        mount.create(KEPT)
        call(["git", "-C", mount.box(KEPT), "status", "--porcelain"])
        names = call(["git", "-C", mount.box(KEPT), "ls-files"]).split("\n")[:-1]
        return names[::max(1, len(names) // TOUCHED)][:TOUCHED]
    return mount, sites.data.once("kept box", make)


def touch(mount, names, number):
    for name in names:
        with open(os.path.join(mount.box(KEPT), name), "ab") as f:
            f.write(b"/* changed in round %d */\n" % number)


def written(path, text):
    start = time.monotonic_ns()
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, text)
    os.close(fd)
    return time.monotonic_ns() - start, 1


def after_changes(text, file, after=lambda mount: None):
    """How long writing TEXT to the control FILE takes; AFTER takes away what came of it."""
    def measure(sites, way, number):
        if way == "git worktree":
            return measure_mkdir(sites, way, number)
        mount, names = kept_box(sites)
        touch(mount, names, number)
        sites.room.settle()
        took = written(os.path.join(mount.box(KEPT), "ctl", file), text)
        after(mount)
        return took
    return measure


def as_it_was(sites, way, number):
    """A fork of a snapshot, after which ten files have changed: each by a name of its
    own, as the branch stays."""
    if way == "git worktree":
        return measure_mkdir(sites, way, number)
    mount, names = kept_box(sites)
    ctl = os.path.join(mount.box(KEPT), "ctl")

    def snapshot():
        touch(mount, names, -1)
        written(os.path.join(ctl, "snapshot"), b"to be forked\n")
        with open(os.path.join(ctl, "snapshot"), encoding="utf-8") as f:
            return f.read().strip()
    rev = sites.data.once("kept snapshot", snapshot)
    touch(mount, names, number)
    sites.room.settle()
    name = f"forked-{number}"
    took = written(os.path.join(ctl, "fork"), json.dumps({"name": name, "rev": rev}).encode())
    mount.teardown(name)
    return took


HISTORY_ROWS = [
    Row("snapshot",
        "a snapshot of 50 000 files (--quick: 5 000), 10 of them changed; git worktree add", WAYS,
        after_changes(b"round\n", "snapshot"), reference="git worktree", aims=AIMS),
    Row("fork", "a fork of it", WAYS,
        after_changes(b"forked\n", "fork", lambda mount: mount.teardown("forked")),
        reference="git worktree", aims=AIMS),
    Row("fork@id", "a fork of a snapshot of it", WAYS, as_it_was, reference="git worktree",
        aims=AIMS),
    Row("reset", "back to how it was made", WAYS, after_changes(b"1\n", "reset"),
        reference="git worktree", aims=AIMS),
]
