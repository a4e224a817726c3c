"""What is measured on: repositories of a given number of files, always the same ones. Made once
each, when a row asks."""
import os
import random
import subprocess

from .room import Failed, call

WORDS = ("alpha buffer cache delta entry frame graph handle index job kernel lock mount node order "
         "page queue ring sandbox table unit value write zone return static const struct while "
         "break size count").split()

# name: files and directories; and with --quick
REPOS = {
    "large": ((50000, 2000), (5000, 200)),
    "medium": ((10000, 400), (2000, 80)),
    "project": ((2000, 80), (300, 12)),
    "small": ((100, 10), (100, 10)),
}


def text(rng, size):
    out = []
    while size > 0:
        line = "\t" + " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, 11))) + ";\n"
        out.append(line)
        size -= len(line)
    return "".join(out).encode()


def directories(rng, n):
    """N paths, most of them three or four deep."""
    dirs = ["src"]
    while len(dirs) < n:
        parent = rng.choice(dirs)
        if parent.count("/") < 5:
            dirs.append(f"{parent}/{rng.choice(WORDS)}{len(dirs)}")
    return dirs


def files(n, ndirs):
    """Paths and contents: sizes as in source trees, half of them below 2.5 KB,
    a few of some 100 KB."""
    rng = random.Random(n)
    stock = text(rng, 2 << 20)
    dirs = directories(rng, ndirs)
    for i in range(n):
        size = min(int(rng.lognormvariate(7.8, 1.3)), 300000)
        start = rng.randrange(len(stock) - size)
        yield f"{dirs[i % ndirs]}/{rng.choice(WORDS)}_{i}.c", stock[start:start + size]


def import_files(path, n, ndirs):
    """As one pack, by git's own importer."""
    git = subprocess.Popen(["git", "-C", path, "fast-import", "--quiet"], stdin=subprocess.PIPE)
    out = git.stdin
    out.write(b"commit refs/heads/main\ncommitter Bench <bench@example.org> 1700000000 +0000\n"
              b"data 5\nfirst\n")
    for name, data in files(n, ndirs):
        out.write(b"M 100644 inline %s\ndata %d\n%s\n" % (name.encode(), len(data), data))
    out.close()
    if git.wait():
        raise Failed("git fast-import")


class Data:
    def __init__(self, room):
        self.room = room
        self.made = {}

    def once(self, key, make):
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def count(self, name):
        return REPOS[name][self.room.quick][0]

    def repo(self, name):
        """A repository with its files checked out."""
        def make():
            path = self.room.at("data", name)
            call(["git", "init", "-q", path])
            import_files(path, *REPOS[name][self.room.quick])
            call(["git", "-C", path, "reset", "-q", "--hard", "main"])
            self.room.settle()
            return path
        return self.once(name, make)

    def tar(self):
        def make():
            path = self.room.at("share", "project.tar")
            call(["git", "-C", self.repo("project"), "archive", "-o", path, "main"])
            return path
        return self.once("tar", make)

    def bundle(self):
        def make():
            path = self.room.at("share", "project.bundle")
            call(["git", "-C", self.repo("project"), "bundle", "create", "-q", path, "main",
                  "HEAD"])
            return path
        return self.once("bundle", make)

    def transactions(self):
        def make():
            path = self.room.at("share", "transactions.sql")
            n = 1000 if self.room.quick else 10000
            with open(path, "w", encoding="utf-8") as f:
                f.write("PRAGMA journal_mode=WAL;\nCREATE TABLE t(id INTEGER PRIMARY KEY, "
                        "v TEXT);\n")
                for i in range(n):
                    f.write(f"BEGIN; INSERT INTO t(v) VALUES('{WORDS[i % len(WORDS)]}{i}'); "
                            "COMMIT;\n")
            return path
        return self.once("transactions", make)

    def commit(self, name):
        """One more commit in the repository NAME."""
        path = self.repo(name)
        self.made["commits"] = self.made.get("commits", 0) + 1
        with open(os.path.join(path, "commits"), "w", encoding="utf-8") as f:
            f.write(f"{self.made['commits']}\n")
        call(["git", "-C", path, "add", "commits"])
        call(["git", "-C", path, "commit", "-qm", "one more"])
