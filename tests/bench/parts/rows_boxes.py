"""Rows about sandboxes: making and removing them, commands, and a thousand that are idle."""
import json
import os
import time

from .measure import Aim, Row
from .room import call, descendants, need

COMMAND = ["/bin/echo", "hello"]
CLIENTS = 16
SMALL = "sandboxfs, 100 files"


def timed(room, *args):
    words = call([room.micro, *args]).split()
    return int(words[0]), int(words[1])


def run(room, *argv):
    return timed(room, "time", "/dev/null", *argv)


class Peer:
    """What takes the place of a sandbox: a command that makes PATH of the repository,
    and one that removes it."""

    def __init__(self, make, remove):
        self.make, self.remove = make, remove


def layered_make(sites, repo, path):
    """The best that a shell script does: an overlay over one checkout, made
    a worktree. Root only."""
    base = sites.data.once("layered base", lambda: layered_base(sites, repo))
    os.makedirs(path + ".d/up")
    os.makedirs(path + ".d/work")
    os.mkdir(path)
    script = ('git -C "$1" worktree add -q --no-checkout -b "$4" "$3.d/tree" && '
              'mount -t overlay overlay -o '
              '"lowerdir=$2,upperdir=$3.d/up,workdir=$3.d/work" "$3" && '
              'cp "$3.d/tree/.git" "$3/.git" && cp "$2.index" "$1/.git/worktrees/tree/index"')
    return ["sh", "-c", script, "sh", repo, base, path, os.path.basename(path)]


def layered_base(sites, repo):
    path = sites.room.at("sites", "layered.base")
    call(["git", "-C", repo, "worktree", "add", "-q", "--detach", path])
    with open(os.path.join(path, ".git"), encoding="utf-8") as f:
        admin = f.read().split(": ", 1)[1].strip()
    os.rename(os.path.join(admin, "index"), path + ".index")
    os.remove(os.path.join(path, ".git"))
    call(["git", "-C", repo, "worktree", "prune"])
    return path


def layered_remove(sites, repo, path):
    script = ('umount "$2" && rmdir "$2" && git -C "$1" worktree remove --force "$2.d/tree" && '
              'rm -rf "$2.d"')
    return ["sh", "-c", script, "sh", repo, path]


def plain_remove(sites, repo, path):
    return ["rm", "-rf", path]


PEERS = {
    "git worktree": Peer(
        lambda sites, repo, path: ["git", "-C", repo, "worktree", "add", "-q", "-b",
                                   os.path.basename(path), path],
        lambda sites, repo, path: ["git", "-C", repo, "worktree", "remove", "--force", path]),
    "overlay by shell": Peer(layered_make, layered_remove),
    "git clone --shared": Peer(
        lambda sites, repo, path: ["git", "clone", "-q", "--shared", repo, path], plain_remove),
    "cp -r": Peer(lambda sites, repo, path: ["cp", "-r", repo, path], plain_remove),
}


def source_of(way):
    return "small" if way == SMALL else "large"


def peer_place(sites, way, name):
    """A PEER's repository and a new path."""
    number = sites.data.made["peers"] = sites.data.made.get("peers", 0) + 1
    return sites.data.repo("large"), sites.room.at("sites", f"{name}-{number}")


def measure_mkdir(sites, way, number):
    if way.startswith("sandboxfs"):
        mount = sites.mount(source_of(way))
        sites.room.settle()
        took = timed(sites.room, "mkdir", mount.box("new"))
        mount.teardown("new")
        return took
    repo, path = peer_place(sites, way, "make")
    argv = PEERS[way].make(sites, repo, path)
    sites.room.settle()
    took = run(sites.room, *argv)
    call(PEERS[way].remove(sites, repo, path))
    return took


def measure_rmdir(sites, way, number):
    if way.startswith("sandboxfs"):
        mount = sites.mount(source_of(way))
        mount.create("old")
        sites.room.settle()
        took = timed(sites.room, "rmdir", mount.box("old"))
        mount.await_removals()
        return took
    repo, path = peer_place(sites, way, "remove")
    call(PEERS[way].make(sites, repo, path))
    sites.room.settle()
    return run(sites.room, *PEERS[way].remove(sites, repo, path))


def measure_cold_base(sites, way, number):
    sites.data.commit("large")
    return measure_mkdir(sites, way, number)


def only_root(measure):
    """The overlay by shell needs root; whoever has it not is told so."""
    def wrapped(sites, way, number):
        if way == "overlay by shell" and not sites.room.is_root:
            raise OSError("needs root")
        return measure(sites, way, number)
    return wrapped


def measure_exec(sites, number):
    """By bench-exec, whose ways take turns command by command; of a round, its median."""
    mount = sites.mount("small")
    sites.data.once("exec box", lambda: mount.create("exec"))
    rounds = 30 if sites.room.quick else 100
    out = call([sites.room.at("share", "bench-exec"), mount.box("exec"), str(rounds), *COMMAND])
    found = json.loads(out.splitlines()[-1])
    return {way: (v["p50_us"] * 1000, 1) for way, v in found.items() if way != "rounds"}


def nsjail_too(sites, way):
    need("nsjail")
    return ["nsjail", "-Mo", "-q", "--chroot", "/", "--", *COMMAND]


def measure_nsjail(sites, way, number):
    argv = COMMAND if way == "posix_spawn" else nsjail_too(sites, way)
    return run(sites.room, *argv)


def measure_exec_many(sites, way, number):
    mount = sites.mount("small")
    sites.data.once("many boxes", lambda: [mount.create(f"many{i}") for i in range(CLIENTS)])
    commands = 20 if sites.room.quick else 100
    words = call([sites.room.at("share", "bench-exec-many"),
                  "sandbox" if way == "sandboxfs" else "spawn", mount.box("many"), str(CLIENTS),
                  str(commands), *COMMAND]).split()
    return int(words[0]), int(words[1])


def resident_mib(pid):
    kib = 0
    for one in descendants(pid):
        with open(f"/proc/{one}/status", encoding="utf-8") as f:
            kib += sum(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
    return kib / 1024


def disk_kib(*tops):
    """What is below TOPS takes on disk, git's indexes left out; what overlayfs
    keeps locked is empty."""
    blocks = {}
    for top in tops:
        for at, dirs, names in os.walk(top):
            dirs[:] = [d for d in dirs if not os.path.ismount(os.path.join(at, d))]
            for name in dirs + [n for n in names if n != "index"]:
                st = os.lstat(os.path.join(at, name))
                blocks[st.st_dev, st.st_ino] = st.st_blocks
    return sum(blocks.values()) / 2


def measure_idle(sites, number):
    mount = sites.mount("small", "-idle")
    places = mount.state, os.path.join(sites.data.repo("small"), ".git")
    n = 50 if sites.room.quick else 1000
    before = disk_kib(*places)
    for i in range(n):
        mount.create(f"idle{i}")
    sites.room.settle()
    amounts = {"RSS": resident_mib(mount.proc.pid),
               "disk each": (disk_kib(*places) - before) / n}
    start = time.monotonic_ns()
    names = os.listdir(mount.path)
    amounts["ls MNT"] = (time.monotonic_ns() - start) / 1e6
    assert len(names) >= n
    for i in range(n):
        mount.teardown(f"idle{i}")
    return {way: (value, 1) for way, value in amounts.items()}


BOX_ROWS = [
    Row("mkdir", "a sandbox of 50 000 files (--quick: 5 000), base cached",
        ["git worktree", "sandboxfs", SMALL, "overlay by shell", "git clone --shared", "cp -r"],
        only_root(measure_mkdir), reference="git worktree",
        aims=[Aim("sandboxfs", "git worktree", least=100), Aim("sandboxfs", SMALL, least=0.5)]),
    Row("rmdir", "the same removed", ["git worktree", "sandboxfs", "overlay by shell"],
        only_root(measure_rmdir), reference="git worktree",
        aims=[Aim("sandboxfs", "git worktree", least=50)]),
    Row("mkdir_cold", "the first sandbox of a commit", ["git worktree", "sandboxfs"],
        measure_cold_base, reference="git worktree",
        aims=[Aim("sandboxfs", "git worktree", least=1 / 1.2)]),
    Row("exec", "write an argv to ctl/exec, read stdout and status",
        ["posix_spawn", "sandboxfs", "bwrap"], joint=measure_exec, reference="posix_spawn",
        aims=[Aim("sandboxfs", "posix_spawn", least=0.5), Aim("sandboxfs", "bwrap", least=4)]),
    Row("exec16", "the same by 16 clients in 16 sandboxes at once", ["posix_spawn", "sandboxfs"],
        measure_exec_many, reference="posix_spawn",
        aims=[Aim("sandboxfs", "posix_spawn", least=0.6)]),
    Row("nsjail", "the same command by nsjail", ["posix_spawn", "nsjail"], measure_nsjail,
        reference="posix_spawn"),
    Row("idle", "1 000 idle sandboxes of one repository (--quick: 50)",
        ["RSS", "ls MNT", "disk each"], joint=measure_idle,
        units={"RSS": "MiB", "ls MNT": "ms", "disk each": "KiB"},
        aims=[Aim("RSS", most=64), Aim("ls MNT", most=20), Aim("disk each", most=100)]),
]
