"""Cuts the power of the disk that holds the source and the state directory, and compares what the
next mount shows with what was synced.

The disk is an ext4 in an image; EXT4_IOC_SHUTDOWN ends it without its journal being written, as a
power cut does. Clients create sandboxes, write and sync files, run commands, commit, record states
and go back to them, fork, rename, push, tear down and take back from the trash. After a cut:

- a file that was synced is there, with its content;
- one that was synced before its tree became another (restore, reset, undo, rmdir) is in the tree
  or where it comes back from: `previous`, an entry of the trash, a commit that a ref leads to;
- a commit that git has synced, and whose ref was synced, is there; the source and the repository
  that was pushed to are whole;
- each sandbox that is there works, git in it too, on both sides; nothing hangs.

A sync counts when it has returned before the cut: one that the cut came into may succeed on ext4,
as its transaction is no longer to be waited for, and has nothing on the disk.

SBX_POWER_SEED takes the same steps again, as far as threads and the disk do.
"""
import collections
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time

from mounted import LOG, MNT, ROOM, TOOL, Mounted, end_mount

DISK, IMAGE = ROOM + "/disk", ROOM + "/disk.img"
REPO, STATE, ORIGIN = DISK + "/repo", DISK + "/state", DISK + "/origin.git"
CUTS = int(sys.argv[1])
SEED = int(os.environ.get("SBX_POWER_SEED") or random.randrange(1 << 30))
EXT4_IOC_SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2
HANG_S = 120
STORY = 24  # lines; a claim that fails prints 30
FIRST = {"README.md": b"hello\n"}
OPTIONS = f"state_dir={STATE},cache_dir={DISK}/cache,track"
MOUNT = Mounted(f"SBX_POWER_SEED={SEED}", REPO, OPTIONS)
check = MOUNT.check


class Sandbox:
    """What of it is sure to be there: path -> the contents that it may have."""

    def __init__(self):
        self.sure = {}
        self.renaming = None  # to this, if the cut came
        self.before = {}  # what was sure before the last restore, reset or undo
        self.former = []  # names that it may have still: a rename is not synced
        self.commits, self.commits_before = {}, {}  # of git, likewise
        self.snapshots = []
        self.jobs = 0

    def is_sure(self):
        return bool(self.sure)


class World:
    """What all clients know of what is on the disk."""

    def __init__(self):
        self.boxes = {}
        self.removed = {}  # name -> what was sure in it
        self.commits = {}
        self.made = set()  # every name that there was
        self.aliases = {}  # name of one that was removed -> what it was called before
        self.log = []
        self.count = 0
        self.done = collections.Counter()
        self.cut = threading.Event()
        self.lock = threading.Lock()

    def story(self, names):
        """What was done with them, at last."""
        lines = [line for line in self.log if set(line.split()) & (set(names) | {"cut"})]
        return "\n" + "\n".join(lines[-STORY:])

    def new_name(self):
        with self.lock:
            self.count += 1
            name = f"n{self.count}"
            self.made.add(name)
            return name


def put(path, data, flags):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Client(threading.Thread):
    """One client, with sandboxes of its own."""

    def __init__(self, world, rng, mine):
        super().__init__(daemon=True)
        self.world, self.rng, self.mine = world, rng, mine
        self.doing = ""
        self.failed = None

    def run(self):
        try:
            while not self.world.cut.is_set():
                self.step()
                self.world.done[self.doing.split()[0]] += 1
        except (OSError, ValueError, subprocess.CalledProcessError) as e:
            if not self.world.cut.is_set():
                said = getattr(e, "output", "") or self.error()
                self.failed = f"{self.doing} failed before the cut: {e} {said}"

    def error(self):
        name = self.doing.split()[-1]
        try:
            return open(f"{MNT}/{name}/ctl/error").read() + open(f"{MNT}/ctl/error").read()
        except OSError as e:
            return str(e)

    STEPS = [("create", 8), ("write", 30), ("deep", 6), ("unsynced", 6), ("execute", 8),
             ("commit", 5), ("inside", 5), ("snapshot", 6), ("restore", 5), ("reset", 3),
             ("undo", 3), ("fork", 4), ("remove", 7), ("back", 5), ("push", 3), ("rename", 2),
             ("previous", 3)]

    def step(self):
        words, weights = zip(*self.STEPS)
        word = self.rng.choices(words, weights)[0]
        if not self.mine:
            word = "create"
        if word == "create" and len(self.mine) > 5:
            word = "write"
        name = self.rng.choice(sorted(self.mine)) if self.mine else ""
        self.doing = f"{word} {name}"
        begun = time.monotonic()
        try:
            getattr(self, "do_" + word)(*([name] if word not in ("create", "back") else []))
        finally:
            self.world.log.append(f"{begun:.4f} to {time.monotonic():.4f} {self.doing}")

    def before_cut(self):
        if self.world.cut.is_set():
            raise OSError(errno.EIO, "it returned after the cut")

    def control(self, name, file, text):
        with open(f"{MNT}/{name}/ctl/{file}", "w") as f:
            f.write(text)

    def exec(self, name, script):
        with open(f"{MNT}/{name}/ctl/exec", "r+b", buffering=0) as f:
            f.write(json.dumps(["sh", "-ec", script]).encode())
            result = json.loads(f.read() or b"null")
        self.mine[name].jobs += 1
        if not result or result["exitCode"]:
            raise OSError(f"a command in {name}: {result and result['stderr']}")
        return result["stdout"].strip()

    def git(self, name, *args):
        return subprocess.run(["git", "-C", f"{MNT}/{name}", *args], check=True, text=True,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT).stdout.strip()

    # --- files ---

    def content(self):
        return (self.rng.randbytes(self.rng.choice((1, 30, 5000, 200000)))
                + struct.pack("Q", self.rng.getrandbits(63)))

    def do_create(self):
        name = self.world.new_name()
        self.doing = f"create {name}"
        os.mkdir(f"{MNT}/{name}")
        self.mine[name] = Sandbox()

    def do_write(self, name):
        self.write(name, self.rng.choice([f"f{i}" for i in range(6)] + ["i1.log", "README.md"]))

    def do_deep(self, name):
        folder = f"d{self.rng.randrange(2)}/e{self.rng.randrange(2)}"
        os.makedirs(f"{MNT}/{name}/{folder}", exist_ok=True)
        self.write(name, folder + "/f")

    def write(self, name, path):
        """In place, or a new file that takes its name, as editors save."""
        box, full, data = self.mine[name], f"{MNT}/{name}/{path}", self.content()
        was = box.sure.pop(path, None)
        if self.rng.random() < 0.5:
            put(full, data, os.O_TRUNC)
        else:
            put(full + "~", data, os.O_TRUNC)
            if was:
                box.sure[path] = was | {data}
            os.rename(full + "~", full)
            sync_dir(os.path.dirname(full))
        self.before_cut()
        box.sure[path] = {data}
        box.former = []

    def do_unsynced(self, name):
        path = f"u{self.rng.randrange(3)}"
        with open(f"{MNT}/{name}/{path}", "wb") as f:
            f.write(self.content())

    def do_execute(self, name):
        self.exec(name, f"echo {self.rng.randrange(1 << 30)} >made; mkdir -p dir; date >dir/made")

    # --- git ---

    def do_commit(self, name):
        self.git(name, "add", "-A")
        self.git(name, "commit", "-q", "--allow-empty", "-m", "host")
        # git syncs the file of a ref and not the directory in which that gets its name.
        refs = os.open(REPO + "/.git/refs/heads/sandbox", os.O_RDONLY)
        try:
            os.fsync(refs)
        finally:
            os.close(refs)
        commit = self.git(name, "rev-parse", "HEAD")
        self.before_cut()
        self.mine[name].commits[commit] = name

    def do_inside(self, name):
        self.exec(name, "git add -A; git commit -q --allow-empty -m inside; git rev-parse HEAD")

    def do_push(self, name):
        self.control(name, "push", "\n")

    # --- states ---

    def do_snapshot(self, name):
        self.control(name, "snapshot", "s\n")
        with open(f"{MNT}/{name}/ctl/snapshot") as f:
            which = f.read().strip()
        if which:
            self.mine[name].snapshots.append(which)

    def go_back(self, name, file, text):
        box = self.mine[name]
        box.before, box.sure = box.sure, {}
        box.commits_before, box.commits = box.commits, {}
        self.control(name, file, text)
        self.before_cut()
        # sandboxfs(7): "Of what git does not record they give back what was taken away, and leave
        # the rest".
        for path in [p for p in box.before if p.endswith(".log")]:
            with contextlib.suppress(FileNotFoundError):
                with open(f"{MNT}/{name}/{path}", "rb") as f:
                    if f.read() in box.before[path]:
                        box.sure[path] = box.before.pop(path)

    def do_restore(self, name):
        box = self.mine[name]
        if box.snapshots:
            self.go_back(name, "restore", self.rng.choice(box.snapshots))

    def do_previous(self, name):
        box = self.mine[name]
        if box.before:
            self.go_back(name, "restore", "previous")

    def do_reset(self, name):
        self.go_back(name, "reset", "1")

    def do_undo(self, name):
        box = self.mine[name]
        if box.jobs:
            box.jobs = 0
            self.go_back(name, "undo", "1")

    # --- sandboxes ---

    def do_fork(self, name):
        new = self.world.new_name()
        self.control(name, "fork", new)
        self.mine[new] = Sandbox()

    def do_rename(self, name):
        """Until it is synced it is there under one of the two names."""
        new = self.world.new_name()
        box = self.mine[name]
        box.renaming = new
        os.rename(f"{MNT}/{name}", f"{MNT}/{new}")
        box.former.append(name)
        self.mine[new] = self.mine.pop(name)
        self.doing += f" to {new}"

    def do_remove(self, name):
        if len(self.mine) < 3:
            return
        box = self.mine.pop(name)
        self.world.removed[name] = box.sure
        self.world.aliases[name] = box.former
        self.world.commits.update(box.commits)
        os.rmdir(f"{MNT}/{name}")
        if self.rng.random() < 0.5:
            with open(MNT + "/ctl/teardown", "w") as f:
                f.write(name + "\n")

    def do_back(self):
        with open(MNT + "/ctl/trash.json") as f:
            entries = [e["name"] for e in json.load(f)]
        if not entries or len(self.mine) > 6:
            return
        name = self.world.new_name()
        entry = self.rng.choice(entries)
        self.doing = f"back of {entry} as {name}"
        try:
            with open(MNT + "/ctl/create", "w") as f:
                f.write(json.dumps({"name": name, "from": "trash:" + entry}))
        except OSError as e:
            # Another client has taken it, or is just doing so and has its branch.
            if e.errno not in (errno.ENOENT, errno.EBUSY):
                raise
            return
        self.mine[name] = Sandbox()


# --- the disk -------------------------------------------------------------------------------------


def plug():
    subprocess.check_call(["mount", "-o", "loop", IMAGE, DISK])


def start_again():
    """Here the machine has gone on: what tells by its start whether something
    is of before is told so."""
    for key in os.listdir(DISK + "/cache/bases"):
        marker = f"{DISK}/cache/bases/{key}/marker"
        with contextlib.suppress(FileNotFoundError):
            with open(marker) as f:
                text = f.read()
            with open(marker, "w") as f:
                f.write(re.sub("^boot .*", "boot of-before", text, flags=re.M))
    for at, _, files in os.walk(REPO + "/.git/worktrees"):
        for name in files:
            if name.endswith(".lock"):
                os.utime(os.path.join(at, name), (1, 1))


def unplug():
    """With what was mounted through the daemon; what it had mounted itself goes with its
    last process, by and by."""
    with open("/proc/self/mountinfo") as f:
        points = [line.split()[4] for line in f]
    for point in reversed(points):
        if point == MNT or point.startswith(DISK + "/"):
            subprocess.check_call(["umount", "-l", point])
    for _ in range(600):
        subprocess.call(["umount", "-q", DISK], stderr=subprocess.DEVNULL)
        if not subprocess.check_output(["losetup", "-j", IMAGE]):
            return
        time.sleep(0.1)
    check(False, "the disk stays in use")


def cut(world):
    fd = os.open(DISK, os.O_RDONLY | os.O_DIRECTORY)
    world.log.append(f"{time.monotonic():.4f} cut")
    world.cut.set()
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
    os.close(fd)


def end_daemon():
    for pid in MOUNT.pids():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


# --- what is there --------------------------------------------------------------------------------


def files_of(root):
    seen = {}
    for at, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if d != ".git"]
        for name in files:
            path = os.path.join(at, name)
            if name != ".git" and not os.path.islink(path):
                with open(path, "rb") as f:
                    seen[os.path.relpath(path, root)] = f.read()
    return seen


def follow_renames(world, names):
    """To where they are."""
    for name, box in list(world.boxes.items()):
        there = [n for n in [name, box.renaming] + box.former if n in names]
        if name not in names and there:
            world.boxes[there[0]] = world.boxes.pop(name)


def verify_trees(world, names):
    trees = {name: files_of(f"{MNT}/{name}") for name in names}
    for name, box in world.boxes.items():
        if not box.is_sure():
            continue
        check(name in names,
              f"{name} had a file that was synced, and is gone" + world.story([name] + box.former))
        for path, contents in sorted(box.sure.items()):
            have = trees[name].get(path)
            check(have is not None, f"{name}/{path} was synced and is gone" + world.story([name]))
            check(have in contents, f"{name}/{path} was synced and differs: {len(have)} bytes, "
                  f"there were {[len(c) for c in contents]}" + world.story([name]))
    return trees


def blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def reached(repo):
    said = MOUNT.said(["git", "-C", repo, "rev-list", "--objects", "--all"],
                      f"git rev-list in {repo}")
    return {line.split()[0] for line in said.splitlines()}


class Search:
    """Where contents that left their trees are."""

    def __init__(self, trees):
        self.found = {c for tree in trees.values() for c in tree.values()}
        self.objects = reached(REPO)
        own = STATE + "/trashed"
        if os.path.exists(own):
            self.objects |= reached(own)

    def lost(self, sure):
        return {path: contents for path, contents in sure.items()
                if not any(c in self.found or blob(c) in self.objects for c in contents)}

    def add(self, name):
        self.found |= set(files_of(f"{MNT}/{name}").values())


def verify_before(world, search, names):
    for name, box in world.boxes.items():
        lost = search.lost(box.before)
        if not lost or name not in names:
            check(not lost,
                  f"{name} is gone with what was synced in it before it went back: {sorted(lost)}"
                  + world.story([name]))
            continue
        try:
            with open(f"{MNT}/{name}/ctl/restore", "w") as f:
                f.write("previous")
        except OSError as e:
            check(False, f"{name}: {sorted(lost)} were synced before it went back, "
                         f"and there is no previous: {e} " +
                  open(f"{MNT}/{name}/ctl/error").read())
        search.add(name)
        lost = search.lost(box.before)
        check(not lost, f"{name}: {sorted(lost)} were synced before it went back, "
                        f"and are in neither tree nor previous"
              + world.story([name]))


def verify_removed(world, search):
    lost = {name: search.lost(sure) for name, sure in world.removed.items()}
    lost = {name: left for name, left in lost.items() if left}
    if not lost:
        return
    with open(MNT + "/ctl/trash.json") as f:
        entries = json.load(f)
    of = set(lost) | {old for name in lost for old in world.aliases[name]}
    for e in entries:
        if e["sandbox"] not in of:
            continue
        name = world.new_name()
        try:
            with open(MNT + "/ctl/create", "w") as f:
                f.write(json.dumps({"name": name, "from": "trash:" + e["name"]}))
        except OSError as error:
            check(False, f"the entry {e['name']} of the trash cannot be taken back: {error} " +
                  open(MNT + "/ctl/error").read())
        search.add(name)
    for name, left in lost.items():
        left = search.lost(left)
        check(not left,
              f"{name} was removed with {sorted(left)}, which were synced and are nowhere; "
              f"entries: {[e['name'] for e in entries if e['sandbox'] in of]}; " + world.story(of))


def verify_git(names, number):
    for name in sorted(names):
        git = ["git", "-C", f"{MNT}/{name}"]
        for step in (["log", "--oneline"], ["archive", "-o", "/dev/null", "HEAD"]):
            MOUNT.said(git + step, f"git {step} in {name}")
        MOUNT.said([TOOL, "exec", f"{MNT}/{name}/ctl/exec", "sh", "-ec",
                    "git log --oneline >/dev/null; git archive -o /dev/null HEAD; "
                    "git status --porcelain >/dev/null"],
                   f"git by a command in {name}")
        MOUNT.try_git(name, number)


def verify_source(world):
    for repo in (REPO, ORIGIN):
        said = MOUNT.said(["git", "-C", repo, "fsck", "--no-progress", "--no-dangling"],
                          f"git fsck of {repo}")
        check("error" not in said and "missing" not in said, f"git fsck of {repo}: {said}")
    there = set(MOUNT.said(["git", "-C", REPO, "rev-list", "--all"], "git rev-list").split())
    known = dict(world.commits)
    for box in world.boxes.values():
        known.update(box.commits)
        known.update(box.commits_before)
    lost = {c: name for c, name in known.items() if c not in there}
    check(not lost,
          f"no ref of the source leads to what was committed: {lost}" + world.story(lost.values()))


def verify(world, number):
    MOUNT.settle()
    names = set(os.listdir(MNT)) - {"README", "SKILL.md", "ctl"}
    check(names <= world.made, f"nobody made {names - world.made}")
    verify_source(world)
    follow_renames(world, names)
    trees = verify_trees(world, names)
    verify_git(names, number)
    search = Search(trees)
    verify_before(world, search, names)
    verify_removed(world, search)


def begin_again(world):
    """What is there now has been read from the disk; of what was brought back nothing is sure."""
    names = set(os.listdir(MNT)) - {"README", "SKILL.md", "ctl"}
    fresh = World()
    fresh.count, fresh.made, fresh.done, fresh.log = world.count, world.made, world.done, world.log
    for name in names:
        fresh.boxes[name] = Sandbox()
    return fresh


def round_of(world, rng):
    mine = [{}, {}]
    for i, name in enumerate(sorted(world.boxes)):
        mine[i % 2][name] = world.boxes[name]
    clients = [Client(world, random.Random(rng.random()), m) for m in mine]
    for c in clients:
        c.start()
    time.sleep(rng.choice((0.3, 1, 3, 7)) * rng.random())
    cut(world)
    end_daemon()
    for c in clients:
        c.join(HANG_S)
        check(not c.is_alive(), f"{c.doing} hangs after the cut")
        check(not c.failed, c.failed)
        world.boxes.update(c.mine)
    world.boxes = {name: box for c in clients for name, box in c.mine.items()}


def hang(signum, frame):
    raise SystemExit(f"SBX_POWER_SEED={SEED}: it hangs")


def teardown(count):
    names = sorted(set(os.listdir(MNT)) - {"README", "SKILL.md", "ctl"})
    for name in names[count:]:
        with open(MNT + "/ctl/teardown", "w") as f:
            f.write(name + "\n")


def main():
    rng = random.Random(SEED)
    world = World()
    MOUNT.mount()
    for number in range(CUTS):
        signal.alarm(HANG_S * 4)
        MOUNT.word = f"SBX_POWER_SEED={SEED}, cut {number + 1}"
        round_of(world, random.Random(rng.random()))
        MOUNT.await_end()
        unplug()
        plug()
        start_again()
        # What new sandboxes change is in memory then, until it is synced.
        MOUNT.options = OPTIONS + (",disk_mb=48" if rng.random() < 0.3 else "")
        MOUNT.mount()
        verify(world, number)
        print(f"{MOUNT.word}: {sum(world.done.values())} operations", flush=True)
        teardown(8)
        world = begin_again(world)
    signal.alarm(0)
    subprocess.check_call(["fusermount3", "-u", MNT])
    MOUNT.await_end()
    with open(sys.argv[2], "w") as f:
        f.write(f"SBX_POWER_SEED={SEED}: {CUTS} cuts, "
                f"{sum(world.done.values())} operations had returned: "
                + ", ".join(f"{n} {w}" for w, n in world.done.most_common()) + "\n")


signal.signal(signal.SIGALRM, hang)
try:
    main()
except BaseException:
    end_mount()
    raise
