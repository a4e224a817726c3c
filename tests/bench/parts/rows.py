"""The table of what is measured. Trees of files; sandboxes themselves are in rows_boxes.py."""
import os

from .measure import Aim, Row
from .room import Missing, need
from .rows_boxes import BOX_ROWS
from .rows_history import HISTORY_ROWS

HOST = ["native", "sandboxfs", "passthrough", "bindfs", "mergerfs", "fuse-overlayfs", "overlayfs"]
BOTH = HOST + ["inside"]


def micro(sites, way, *args):
    """Runs bench-micro in the tree of WAY: (ns, operations)."""
    words = sites.site(way).run([sites.room.micro, *map(str, args)]).split()
    return int(words[0]), int(words[1])


def command(*argv, tool=None):
    """A command in the tree, once before the one that counts."""
    def measure(sites, way, number):
        need(tool or argv[0])
        micro(sites, way, "time", "/dev/null", *argv)
        return micro(sites, way, "time", "/dev/null", *argv)
    return measure


def cold(*argv, tool=None):
    """With empty caches, but for the program itself."""
    def measure(sites, way, number):
        program = tool or argv[1]
        need(program)
        sites.site(way)
        sites.room.settle()
        sites.room.drop_caches()
        micro(sites, way, "time", "/dev/null", program, "--version")
        return micro(sites, way, *argv)
    return measure


def needs_root(sites):
    return None if sites.room.is_root else "only root can empty the caches"


def plain(*args):
    return lambda sites, way, number: micro(sites, way, *args)


def sized(op, full, quick, *before):
    """An operation on a name of its own with a size."""
    def measure(sites, way, number):
        sites.site(way)
        sites.room.settle()
        size = quick if sites.room.quick else full
        sizes = size if isinstance(size, tuple) else (size,)
        return micro(sites, way, op, *before, f"bench-{op}-{number}", *sizes)
    return measure


def read_large(how):
    def measure(sites, way, number):
        site = sites.site(way)
        mib = 64 if sites.room.quick else 256
        site.once("large", lambda s: s.run([sites.room.micro, "make", "bench-large", str(mib)]))
        if how == "cold":
            sites.room.settle()
            sites.room.drop_caches()
        return micro(sites, way, "read", how, "bench-large")
    return measure


def removed_after(sites, way, name, measured):
    sites.site(way).run(["rm", "-rf", name])
    return measured


def tar(sites, way, number):
    name = f"bench-tar-{number}"
    archive = sites.data.tar()
    sites.site(way).run(["mkdir", name])
    sites.room.settle()
    return removed_after(sites, way, name, micro(
        sites, way, "time", archive, "tar", "x", "--no-same-owner", "-C", name))


def clone(sites, way, number):
    name = f"bench-clone-{number}"
    bundle = sites.data.bundle()
    sites.site(way)
    sites.room.settle()
    return removed_after(sites, way, name, micro(
        sites, way, "time", "/dev/null", "git", "clone", "-q", bundle, name))


def sqlite(sites, way, number):
    need("sqlite3")
    name = f"bench-sqlite-{number}"
    script = sites.data.transactions()
    sites.site(way).run(["mkdir", name])
    sites.room.settle()
    return removed_after(sites, way, name, micro(
        sites, way, "time", script, "sqlite3", "-bail", os.path.join(name, "db")))


def aim(least, way="sandboxfs", against="native"):
    return Aim(way, against, least=least)


def aims(default, passthrough=None, inside=None):
    found = [aim(default)] if default else []
    if passthrough:
        found.append(aim(passthrough, "passthrough"))
    if inside:
        found.append(aim(inside, "inside", "overlayfs"))
    return found


TREE_ROWS = [
    Row("open_read_close", "open, read and close each file of a tree, warm", HOST,
        plain("openread", ".", 3), aims=aims(0.8)),
    Row("stat", "lstat of each file of a tree, warm", HOST, plain("stat", ".", 5), aims=aims(0.9)),
    Row("enoent", "lstat of as many names that are not there, again and again", HOST,
        plain("enoent", ".", 5), aims=aims(0.9)),
    Row("walk", "readdir and lstat of a whole tree, warm", HOST, plain("walk", "warm", "."),
        aims=aims(0.9)),
    Row("rg", "rg for a word in a whole tree, warm", HOST,
        command("rg", "-c", "sandbox.graph", "."), aims=aims(0.8)),
    Row("git_status", "git status, clean, warm", HOST,
        command("git", "status", "--porcelain"), aims=aims(0.9)),
    Row("walk_cold", "readdir and lstat of a whole tree, empty caches", HOST,
        cold("walk", "cold", ".", tool="true"), aims=aims(0.6), skip=needs_root),
    Row("rg_cold", "rg for a word, empty caches", HOST,
        cold("time", "/dev/null", "rg", "-c", "sandbox.graph", ".", tool="rg"), aims=aims(0.6),
        skip=needs_root),
    Row("git_status_cold", "git status, empty caches", HOST,
        cold("time", "/dev/null", "git", "status", "--porcelain", tool="git"), aims=aims(0.6),
        skip=needs_root),
    Row("read_warm", "one large file from beginning to end, for each MiB; "
                     "cached in memory that is in one piece", HOST,
        read_large("warm"), aims=aims(0.65, 0.95)),
    Row("read_cold", "the same with empty caches", HOST, read_large("cold"), aims=aims(0.75, 0.95),
        skip=needs_root),
    Row("write", "a new large file in pieces of 128 KiB, for each MiB", BOTH,
        sized("write", 256, 64, "cached"), aims=aims(0.3, 0.85, 0.95)),
    Row("write_fsync", "the same with fsync at the end", BOTH,
        sized("write", 256, 64, "fsync"), aims=aims(0.8, 0.95, 0.95)),
    Row("random_write", "4 KiB at random places of a file that is there", BOTH,
        sized("random", (64, 8192), (16, 2048)), aims=aims(None, 0.85, 0.95)),
    Row("sqlite", "10 000 transactions of sqlite3 in WAL mode (--quick: 1 000)", BOTH, sqlite,
        aims=aims(None, 0.9, 0.95)),
    Row("create", "open with O_CREAT and close, in one directory", BOTH,
        sized("create", 5000, 1000), aims=aims(0.3, None, 0.95)),
    Row("rename", "rename within one directory", BOTH, sized("rename", 5000, 1000),
        aims=aims(0.3, None, 0.95)),
    Row("unlink", "unlink in one directory", BOTH, sized("unlink", 5000, 1000),
        aims=aims(0.3, None, 0.95)),
    Row("tar", "tar x of 2 000 files (--quick: 300)", BOTH, tar, aims=aims(0.3, None, 0.95)),
    Row("git_clone", "git clone of a bundle of 2 000 files (--quick: 300)", BOTH, clone,
        aims=aims(0.3, None, 0.95)),
]

ROWS = BOX_ROWS + HISTORY_ROWS + TREE_ROWS


def chosen(names):
    """The rows of these names, all without any; raises Missing for a name that is none."""
    known = {row.name: row for row in ROWS}
    for name in names:
        if name not in known:
            raise Missing(f"no row {name}; there are: {' '.join(known)}")
    return [known[name] for name in names] or ROWS
