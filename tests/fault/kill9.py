"""Kills the daemon at random moments and compares what the next mount shows with what had returned.

Three clients create sandboxes, write files, run commands, commit, record states and go back to
them, fork, rename, push and tear down, and note each operation before and after. After a kill an
operation that had returned must hold; one that was under way may have happened or not; and nothing
else may be there: no process, no second mount, no worktree, no branch. What git made inside is in
the source, which is whole, and git works in every sandbox.
"""
import copy
import json
import os
import random
import subprocess
import sys
import threading

from mounted import MNT, ROOM, TOOL, Mounted, end_mount, lines, mounts

REPO, STATE = ROOM + "/repo", ROOM + "/state"
KILLS = int(sys.argv[1])
SEED = int(os.environ.get("SBX_SEED") or random.randrange(1 << 30))
MAYBE = object()
MOUNT = Mounted(f"seed {SEED}", REPO, "state_dir=" + STATE)
check = MOUNT.check


class Client(threading.Thread):
    """One client with sandboxes of its own: name -> {file: content}, or MAYBE where unknown."""

    def __init__(self, number, rng, stop):
        super().__init__()
        self.number, self.rng, self.stop = number, rng, stop
        self.boxes, self.count, self.done = {}, 0, 0
        self.snapshots, self.commits = {}, {}
        self.error = self.failed = None

    def run(self):
        try:
            while not self.stop.is_set():
                self.step()
                self.done += 1
        except (OSError, ValueError) as e:
            self.error = e
        except SystemExit as e:
            self.failed = str(e)

    def step(self):
        sure = [n for n, files in self.boxes.items() if files is not MAYBE]
        kind = self.rng.random()
        if not sure or (kind < 0.2 and len(sure) < 6):
            self.create()
        elif kind < 0.3 and len(sure) > 2:
            self.remove(self.rng.choice(sure))
        elif kind < 0.5:
            self.write(self.rng.choice(sure))
        elif kind < 0.65:
            self.execute(self.rng.choice(sure))
        else:
            self.rng.choice((self.snapshot, self.restore, self.reset, self.fork, self.rename,
                             self.push, self.side, self.stash))(self.rng.choice(sure))

    def create(self):
        name = f"c{self.number}-{self.count}"
        self.count += 1
        self.boxes[name] = MAYBE
        os.mkdir(f"{MNT}/{name}")
        self.boxes[name] = {"README.md": b"hello\n"}

    def remove(self, name):
        self.boxes[name] = MAYBE
        self.snapshots.pop(name, None)
        if self.rng.random() < 0.5:
            os.rmdir(f"{MNT}/{name}")
        elif subprocess.call(["rm", "-rf", f"{MNT}/{name}"], stderr=subprocess.DEVNULL):
            raise OSError("rm -rf")
        del self.boxes[name]

    def control(self, name, file, text):
        """Half of them as an editor saves: the rename is the write."""
        at = f"{MNT}/{name}/ctl/{file}"
        if self.rng.random() < 0.5:
            with open(at, "w") as f:
                f.write(text)
        else:
            with open(f"{at}.tmp{self.number}", "w") as f:
                f.write(text)
            os.rename(f"{at}.tmp{self.number}", at)

    def told(self, name, script):
        """What a command prints."""
        with open(f"{MNT}/{name}/ctl/exec", "r+b", buffering=0) as f:
            f.write(json.dumps(["sh", "-ec", script]).encode())
            result = json.loads(f.read())
        if result["exitCode"] == 0:
            return result["stdout"].strip()
        if result["signal"]:
            raise OSError("the daemon was killed")
        check(False, f"{script} in {name}: {result['stderr']}")

    def snapshot(self, name):
        self.control(name, "snapshot", "s\n")
        with open(f"{MNT}/{name}/ctl/snapshot") as f:
            which = f.read().strip()
        if which:
            self.snapshots.setdefault(name, {})[which] = copy.copy(self.boxes[name])
            self.commits[which] = f"a snapshot of {name}"

    def go_back(self, name, file, text, files):
        """Where it is broken off it is one of the two; which, the tree tells."""
        was = self.boxes[name]
        self.boxes[name] = {f: was[f] if f in was and f in files and was[f] == files[f] else MAYBE
                            for f in {**was, **files}}
        self.control(name, file, text)
        self.boxes[name] = copy.copy(files)

    def restore(self, name):
        states = self.snapshots.get(name)
        if states:
            which = self.rng.choice(sorted(states))
            self.go_back(name, "restore", which, states[which])

    def reset(self, name):
        self.go_back(name, "reset", "1", {"README.md": b"hello\n"})

    def fork(self, name):
        new = f"c{self.number}-{self.count}"
        self.count += 1
        self.boxes[new] = MAYBE
        self.control(name, "fork", new)
        self.boxes[new] = copy.copy(self.boxes[name])

    def rename(self, name):
        new = f"c{self.number}-{self.count}"
        self.count += 1
        files, states = self.boxes[name], self.snapshots.pop(name, {})
        self.boxes[name] = self.boxes[new] = MAYBE
        os.rename(f"{MNT}/{name}", f"{MNT}/{new}")
        del self.boxes[name]
        self.boxes[new], self.snapshots[new] = files, states

    def push(self, name):
        self.control(name, "push", "\n")

    def side(self, name):
        """A branch of a command's own is in the source when the command has ended."""
        # What a git that was killed has staged would be in its commit, and in the
        # way of the checkout back.
        which = self.told(name, f"git reset -q; git checkout -q -b s{self.rng.randrange(1 << 30)}; "
                          "git commit -q --allow-empty -m side; "
                          "git rev-parse HEAD; git checkout -q -")
        self.commits[which] = f"a branch in {name}"

    def stash(self, name):
        """So is an entry of the stash; the tree stays what it is."""
        which = self.told(name, f"echo {self.rng.randrange(1 << 30)} >stashed; git add stashed; "
                                f"git stash push -q -- stashed; "
                          "git rev-parse stash@{0}")
        self.commits[which] = f"a stash in {name}"

    def write(self, name):
        files = self.boxes[name]
        file = f"f{self.rng.randrange(8)}"
        content = self.rng.randbytes(self.rng.choice((10, 5000, 200000)))
        files[file] = MAYBE
        if self.rng.random() < 0.5:
            with open(f"{MNT}/{name}/{file}", "wb") as f:
                f.write(content)
        else:
            with open(f"{MNT}/{name}/{file}.tmp", "wb") as f:
                f.write(content)
            files[file + ".tmp"] = MAYBE
            os.rename(f"{MNT}/{name}/{file}.tmp", f"{MNT}/{name}/{file}")
        files[file] = content

    def execute(self, name):
        files = self.boxes[name]
        word = f"word-{self.rng.randrange(1 << 30)}"
        files["made"] = MAYBE
        with open(f"{MNT}/{name}/ctl/exec", "wb", buffering=0) as f:
            f.write(f'["sh","-c","echo {word} >made"]'.encode())
        files["made"] = word.encode() + b"\n"


def verify_box(name, files):
    for file, content in files.items():
        if content is MAYBE:
            continue
        check(os.path.lexists(f"{MNT}/{name}/{file}"), f"{name}/{file} is gone")
        with open(f"{MNT}/{name}/{file}", "rb") as f:
            check(f.read() == content, f"{name}/{file} differs")


def verify(clients):
    seen = set(os.listdir(MNT)) - {"README", "SKILL.md", "ctl"}
    known = {}
    for c in clients:
        known.update(c.boxes)
    for name, files in known.items():
        if files is MAYBE:
            continue
        check(name in seen, f"{name} had been created and is gone")
        verify_box(name, files)
    check(seen <= set(known), f"torn down and back again: {seen - set(known)}")
    for c in clients:
        c.boxes = {n: {} if f is MAYBE else {k: v for k, v in f.items() if v is not MAYBE}
                   for n, f in c.boxes.items() if n in seen}
    return seen


def verify_nothing_leaked(seen, first_mounts):
    MOUNT.settle()
    worktrees = len(lines("git", "-C", REPO, "worktree", "list"))
    check(worktrees == len(seen) + 1, f"{worktrees} worktrees for {len(seen)} sandboxes")
    check(mounts() == first_mounts, f"{mounts()} mounts, {first_mounts} at first")


def verify_commits(clients):
    """They are reached from a ref, and whole."""
    known = {}
    for c in clients:
        known.update(c.commits)
    said = subprocess.run(["git", "-C", REPO, "rev-list", "--all"], check=True, text=True,
                          stdout=subprocess.PIPE)
    there = set(said.stdout.split())
    lost = {which: what for which, what in known.items() if which not in there}
    check(not lost, f"no ref of the source leads to {lost}")
    said = subprocess.run(["git", "-C", REPO, "fsck", "--no-progress", "--no-dangling"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    check(said.returncode == 0, f"git fsck: {said.stdout}")


def try_one(seen, clients, rng, number):
    """An rm -rf that was broken off may have taken any of its files."""
    if seen:
        name = rng.choice(sorted(seen))
        if any(c.boxes.get(name, {}).get("README.md") for c in clients):
            out = subprocess.check_output([TOOL, "exec", f"{MNT}/{name}/ctl/exec", "cat",
                                           "README.md"])
            check(out == b"hello\n", f"a command in {name} says {out}")
        MOUNT.try_git(name, number)


def round_of(clients, rng):
    stop = threading.Event()
    fresh = []
    for c in clients:
        n = Client(c.number, c.rng, stop)
        n.boxes, n.count = c.boxes, c.count
        n.snapshots, n.commits = c.snapshots, c.commits
        fresh.append(n)
    for c in fresh:
        c.start()
    stop.wait(rng.random() ** 2 * 0.6)
    MOUNT.kill()
    stop.set()
    for c in fresh:
        c.join(60)
        check(not c.is_alive(), "a client hangs after the kill")
        check(not c.failed, c.failed)
    MOUNT.await_end()
    return fresh


def main():
    rng = random.Random(SEED)
    clients = [Client(i, random.Random(rng.random()), None) for i in range(3)]
    done = 0
    MOUNT.mount()
    first_mounts = mounts()
    for number in range(KILLS):
        clients = round_of(clients, rng)
        done += sum(c.done for c in clients)
        MOUNT.mount()
        seen = verify(clients)
        verify_nothing_leaked(seen, first_mounts)
        verify_commits(clients)
        try_one(seen, clients, rng, number)
    subprocess.check_call(["fusermount3", "-u", MNT])
    MOUNT.await_end()
    with open(sys.argv[2], "w") as f:
        f.write(f"seed {SEED}: {KILLS} kills, {done} operations had returned, "
                f"{len(seen)} sandboxes at the end\n")


try:
    main()
except BaseException:
    end_mount()
    raise
