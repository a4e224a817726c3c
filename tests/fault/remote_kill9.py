"""Kills the daemon of sandboxes elsewhere, of dirs (tests/lib/dirs.h) or at the loopback server of
a provider, at each step of its journal in turn, and looks at the machine when the next daemon has
sent what was left.

The host changes a tree, one operation after the other, with an fsync or a command now and then,
until the daemon dies at the step that SBX_KILL_AT names (tests/lib/dirs_wrap.c). Right after the
kill the machine has all that had returned before the last fsync or command (which is not looked at
at Dagger, as it takes a daemon to look into a container). After the next mount and an fsync it has
all that had returned: the tree there, that of the mount and the model are the same, but for the
operation that was under way, which was done whole, or not at all.
"""
import ctypes
import io
import json
import os
import random
import stat
import subprocess
import sys
import tarfile
import time
import urllib.request

from mounted import MNT, ROOM, TOOL, Mounted, end_mount

DIRS = ROOM + "/dirs/machines"
BACKEND = os.environ["BACKEND"]
KILLS = int(sys.argv[1])
SEED = int(os.environ.get("SBX_SEED") or random.randrange(1 << 30))
STEPS = ("meant", "record", "before", "cut", "sent", "forgotten")
OPERATIONS = 60
BOX = MNT + "/a"
MOUNT = Mounted(f"seed {SEED}", os.environ["SOURCE"],
                f"state_dir={ROOM}/state,backend={BACKEND},net=host")
LIBC = ctypes.CDLL(None, use_errno=True)


def check(holds, text):
    MOUNT.check(holds, text)


def swap(one, other):
    if LIBC.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), 2):
        raise OSError(ctypes.get_errno(), "swap")


class Tree:
    """A model: path -> ("d", mode), ("f", mode, contents, link group) or ("l", target)."""

    def __init__(self, items, moved=()):
        self.items = items
        self.moved = set(moved)  # the paths of all that a rename took away, or put there

    def copy(self):
        return Tree(dict(self.items), self.moved)

    def of_kind(self, kind):
        return sorted(p for p, item in self.items.items() if item[0] == kind)

    def move(self, old, new):
        for path in [p for p in self.items if p == new or p.startswith(new + "/")]:
            del self.items[path]
            self.moved.add(path)
        for path in [p for p in self.items if p == old or p.startswith(old + "/")]:
            self.items[new + path[len(old):]] = self.items.pop(path)
            self.moved |= {path, new + path[len(old):]}

    def swap(self, one, other):
        for old, new in ((one, "\0"), (other, one), ("\0", other)):
            self.move(old, new)

    def write(self, path, contents):
        """All names of the file have it."""
        _, mode, _, group = self.items[path]
        for p, item in list(self.items.items()):
            if p == path or (item[0] == "f" and item[3] == group):
                self.items[p] = ("f", item[1], contents, group)

    def chmod(self, path, mode):
        item = self.items[path]
        for p, other in list(self.items.items()):
            if p == path or (item[0] == other[0] == "f" and item[3] == other[3]):
                self.items[p] = (other[0], mode) + other[2:]


def seen(top):
    """The tree at TOP as the model has it; groups are the inode numbers of files with more names
    than one."""
    items = {}
    for folder, dirs, files in os.walk(top):
        for name in dirs + files:
            at = os.path.join(folder, name)
            path, st = os.path.relpath(at, top), os.lstat(at)
            if path == ".git" or path.startswith(".git/"):
                continue
            if stat.S_ISLNK(st.st_mode):
                items[path] = ("l", os.readlink(at))
            elif stat.S_ISDIR(st.st_mode):
                items[path] = ("d", stat.S_IMODE(st.st_mode))
            else:
                with open(at, "rb") as f:
                    items[path] = ("f", stat.S_IMODE(st.st_mode), f.read(), st.st_ino)
    return items


def said_there():
    """The same of the machine, where no directory of this host is its tree: by a command."""
    items = {}
    data = subprocess.check_output([TOOL, "exec", f"{BOX}/ctl/exec", "tar", "cf", "-", "."])
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            path = os.path.normpath(member.name)
            if path == "." or path == ".git" or path.startswith(".git/"):
                continue
            if member.issym():
                items[path] = ("l", member.linkname)
            elif member.isdir():
                items[path] = ("d", member.mode)
            elif member.islnk():
                items[path] = items[os.path.normpath(member.linkname)]
            else:
                items[path] = ("f", member.mode, tar.extractfile(member).read(), path)
    return items


def seen_there(top):
    return said_there() if BACKEND == "dagger" else seen(top)


def names_of_files(items):
    """The names of each file of ITEMS."""
    of = {}
    for path, item in items.items():
        if item[0] == "f":
            of.setdefault(item[3], set()).add(path)
    return {frozenset(names) for names in of.values()}


def differs(want, have):
    """What differs, in words; "" where nothing does."""
    plain_want = {p: i[:3] for p, i in want.items()}
    plain_have = {p: i[:3] for p, i in have.items()}
    if plain_want != plain_have:
        return "; ".join(f"{p}: want {str(plain_want.get(p))[:80]}, have "
                         f"{str(plain_have.get(p))[:80]}"
                         for p in sorted({**plain_want, **plain_have})
                         if plain_want.get(p) != plain_have.get(p))
    one, other = names_of_files(want), names_of_files(have)
    if one == other:
        return ""
    return f"names of one file: want {sorted(map(sorted, one - other))}, " \
           f"have {sorted(map(sorted, other - one))}"


class Host:
    """Who changes the tree. before and after: the model around what was under way."""

    def __init__(self, rng, tree):
        self.rng, self.before, self.after = rng, tree, tree
        self.groups, self.doing = 0, ""
        self.barrier = tree.copy()  # what the machine has for certain
        self.touched = set()  # paths of what was changed since then, also if it is as it was
        self.done = 0

    def fresh(self):
        tree = self.before
        folder = self.rng.choice(["", *tree.of_kind("d")])
        return os.path.join(folder, f"n{self.rng.randrange(30)}")

    def group(self):
        self.groups += 1
        return f"g{self.groups}"

    def step(self):
        """Makes an operation up; false where there is none of that kind just now."""
        new = self.before.copy()
        kinds = (self.make, self.make, self.append, self.rewrite, self.replace, self.truncate,
                 self.mkdir, self.rename, self.rename, self.exchange, self.symlink, self.link,
                 self.unlink, self.rmdir, self.chmod, self.fsync, self.command)
        if BACKEND == "dagger":
            # Files have other inodes in each container of the server, so that names of one file
            # are told as names of another each time.
            kinds = tuple(kind for kind in kinds if kind != self.link)
        do = self.rng.choice(kinds)(new)
        if not do:
            return False
        self.after, self.doing = new, do.__qualname__
        self.touched |= new.moved | {
            path for path in {**new.items, **self.before.items}
            if new.items.get(path) != self.before.items.get(path)}
        do()
        self.before = new
        self.done += 1
        if do in (self.synced, self.ran):
            new.moved.clear()
            self.touched.clear()
            self.barrier = new.copy()
        return True

    def contents(self):
        return self.rng.randbytes(self.rng.choice((0, 10, 3000, 70000)))

    def make(self, new):
        path, data = self.fresh(), self.contents()
        if path in new.items:
            return None
        new.items[path] = ("f", 0o644, data, self.group())
        return lambda: self.make_file(path, new)

    def make_file(self, path, full):
        """Made and written are two operations."""
        mode, data, group = full.items[path][1:]
        self.after = Tree({**self.before.items, path: ("f", mode, b"", group)})
        with open(f"{BOX}/{path}", "xb", buffering=0) as f:
            self.before, self.after = self.after, full
            if data:
                f.write(data)

    def file(self, new):
        files = new.of_kind("f")
        return self.rng.choice(files) if files else None

    def append(self, new):
        path, more = self.file(new), self.rng.randbytes(100)
        if not path:
            return None
        new.write(path, new.items[path][2] + more)

        def do():
            with open(f"{BOX}/{path}", "ab", buffering=0) as f:
                f.write(more)
        return do

    def rewrite(self, new):
        path = self.file(new)
        if not path or len(new.items[path][2]) < 20:
            return None
        old = new.items[path][2]
        at, word = self.rng.randrange(len(old) - 10), self.rng.randbytes(10)
        new.write(path, old[:at] + word + old[at + 10:])

        def do():
            with open(f"{BOX}/{path}", "r+b", buffering=0) as f:
                f.seek(at)
                f.write(word)
        return do

    def replace(self, new):
        """As an editor saves."""
        path, data = self.file(new), self.contents()
        if not path or path + "~" in new.items:
            return None
        new.items[path] = ("f", 0o644, data, self.group())

        def do():
            full = Tree({**self.before.items, path + "~": new.items[path]})
            self.make_file(path + "~", full)
            self.before, self.after = full, new
            os.rename(f"{BOX}/{path}~", f"{BOX}/{path}")
        return do

    def truncate(self, new):
        path = self.file(new)
        if not path:
            return None
        size = self.rng.choice((0, 5, len(new.items[path][2]) + 7))
        new.write(path, new.items[path][2][:size].ljust(size, b"\0"))
        return lambda: os.truncate(f"{BOX}/{path}", size)

    def mkdir(self, new):
        path = self.fresh()
        if path in new.items or path.count("/") > 3:
            return None
        new.items[path] = ("d", 0o755)
        return lambda: os.mkdir(f"{BOX}/{path}")

    def rename(self, new):
        if not new.items:
            return None
        old, to = self.rng.choice(sorted(new.items)), self.fresh()
        over = new.items.get(to)
        if to == old or to.startswith(old + "/"):
            return None
        if over and (over[0] == "d" or new.items[old][0] == "d" or over[2:] == new.items[old][2:]):
            return None
        new.move(old, to)
        return lambda: os.rename(f"{BOX}/{old}", f"{BOX}/{to}")

    def exchange(self, new):
        if len(new.items) < 2:
            return None
        one, other = self.rng.sample(sorted(new.items), 2)
        if one.startswith(other + "/") or other.startswith(one + "/"):
            return None
        new.swap(one, other)
        return lambda: swap(f"{BOX}/{one}", f"{BOX}/{other}")

    def symlink(self, new):
        path = self.fresh()
        if path in new.items:
            return None
        new.items[path] = ("l", "README.md")
        return lambda: os.symlink("README.md", f"{BOX}/{path}")

    def link(self, new):
        path, old = self.fresh(), self.file(new)
        if path in new.items or not old:
            return None
        new.items[path] = new.items[old]
        return lambda: os.link(f"{BOX}/{old}", f"{BOX}/{path}")

    def unlink(self, new):
        paths = new.of_kind("f") + new.of_kind("l")
        if not paths:
            return None
        path = self.rng.choice(paths)
        del new.items[path]
        return lambda: os.unlink(f"{BOX}/{path}")

    def rmdir(self, new):
        empty = [p for p in new.of_kind("d")
                 if not any(q.startswith(p + "/") for q in new.items)]
        if not empty:
            return None
        path = self.rng.choice(empty)
        del new.items[path]
        return lambda: os.rmdir(f"{BOX}/{path}")

    def chmod(self, new):
        paths = new.of_kind("f") + new.of_kind("d")
        if not paths:
            return None
        path, mode = self.rng.choice(paths), self.rng.choice((0o700, 0o755, 0o744))
        new.chmod(path, mode)
        return lambda: os.chmod(f"{BOX}/{path}", mode)

    def synced(self):
        fd = os.open(BOX, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def fsync(self, _):
        return self.synced

    def ran(self):
        with open(f"{BOX}/ctl/exec", "wb", buffering=0) as f:
            f.write(b"true\n")

    def command(self, _):
        return self.ran


def machines():
    """Their names at the provider; an engine's are not counted."""
    if BACKEND == "dagger":
        return ["one"] if os.path.isdir(BOX) else []
    if not os.environ["LIVING"]:
        return os.listdir(DIRS)
    with urllib.request.urlopen(os.environ["LIVING"]) as answer:
        return answer.read().decode().split()


def workdir():
    """Where the tree of the machine is: commands run on this host."""
    with open(f"{BOX}/ctl/info", encoding="utf-8") as f:
        return json.load(f)["workdir"]


def is_dead():
    for _ in range(6000):
        if not MOUNT.pids():
            return True
        time.sleep(0.01)
    return False


def run_until_killed(host):
    """True when the daemon was killed."""
    steps = 0
    try:
        while host.done < OPERATIONS and steps < 100 * OPERATIONS:
            host.step()
            steps += 1
        host.synced()
        return False
    except OSError as e:
        check(is_dead(), f"{host.doing}: {e}, and the daemon lives")
        return True


def settled(host, have):
    """What had returned is there; what was under way is, or is not."""
    words = differs(host.before.items, have)
    return words and differs(host.after.items, have) and words


def lost(where, host, have):
    """What the machine had at the last barrier, and nobody has touched since, is as it was."""
    for path, item in host.barrier.items.items():
        if path not in host.touched:
            check(path in have and have[path][:3] == item[:3],
                  f"{where}: {path} had been sent, and is {str(have.get(path))[:80]}")


def same_in_the_end(where, there):
    """The mount shows what is here until the machine has been asked."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            words = differs(seen_there(there), seen(BOX))
        except FileNotFoundError as e:
            words = str(e)  # it went while it was looked at
        if not words:
            return
        time.sleep(0.05)
    check(False, f"{where}: the two differ: {words}")


def end_box():
    """Removes the sandbox, and waits until the provider has no machine."""
    os.rmdir(BOX)
    MOUNT.settle()
    for _ in range(2400):
        if not machines():
            return
        time.sleep(0.05)
    check(False, f"left: {machines()}")


def one(what, number, turn):
    """Kills at the NUMBERth WHAT. False when the daemon never came so far."""
    rng = random.Random(f"{SEED} {what} {number} {turn}")
    os.environ.pop("SBX_KILL_AT", None)
    MOUNT.mount()
    os.mkdir(BOX)
    os.listdir(BOX)
    subprocess.check_call(["sync", BOX])
    there = workdir()
    subprocess.check_call(["fusermount3", "-u", MNT])
    MOUNT.await_end()
    os.environ["SBX_KILL_AT"] = f"{what}:{number}"
    MOUNT.mount()
    del os.environ["SBX_KILL_AT"]
    host = Host(rng, Tree(seen_there(there)))
    killed = run_until_killed(host)
    where = f"killed at {what} {number}, after {host.done} operations"
    if killed:
        MOUNT.await_end()
        if BACKEND != "dagger":
            lost(where, host, seen(there))
        MOUNT.mount()
    subprocess.check_call(["sync", BOX])
    words = settled(host, seen_there(there))
    check(not words, f"{where}: {words}")
    check(len(machines()) == 1, f"{where}: machines: {machines()}")
    same_in_the_end(where, there)
    said = subprocess.check_output([TOOL, "exec", f"{BOX}/ctl/exec", "echo", "works"])
    check(said == b"works\n", f"{where}: a command says {said}")
    end_box()
    subprocess.check_call(["fusermount3", "-u", MNT])
    MOUNT.await_end()
    return killed


def main():
    kills, done = 0, 0
    turn = dict.fromkeys(STEPS, 0)
    number = dict.fromkeys(STEPS, 0)
    while kills < KILLS and done < 2 * KILLS + len(STEPS):
        for what in STEPS:
            if kills == KILLS:
                break
            number[what] += 1
            done += 1
            if one(what, number[what], turn[what]):
                kills += 1
            else:
                number[what] = 0  # no daemon comes so far: from the first one, in another run
                turn[what] += 1
    with open(sys.argv[2], "w") as f:
        f.write(f"seed {SEED}: {done} runs, in {kills} of which the daemon was killed\n")
    check(kills == KILLS, f"only {kills} of {done} were kills")


os.umask(0o022)
try:
    main()
except BaseException:
    end_mount()
    raise
