"""Random steps of the host, of commands and of the controls, against a model that
remembers every acknowledged byte.

The model knows the tree of each sandbox, of each snapshot, of `previous`, of the mark before each
command, and of each entry of the trash. After each step the paths that it touched are compared; now
and then whole trees are, as the host and as a command sees them, with and without the kernel's
caches, and across mounts. What has gone from a tree must be where the model says it comes back
from.

SBX_MODEL_SEED takes other steps, `random` such as nobody has seen. SBX_MODEL_STEPS are that many of
them, SBX_MODEL_SECONDS as many as that time allows. What fails prints the seed, the steps and the
cause.
"""
import collections
import copy
import hashlib
import json
import os
import random
import subprocess
import sys
import time
import traceback

import model_steps

ROOM, TOOL, SANDBOXFS = os.environ["ROOM"], os.environ["TOOL"], os.environ["SANDBOXFS"]
MNT, REPO, STATE = ROOM + "/mnt", ROOM + "/repo", ROOM + "/state"
RECORD = ROOM + "/daemon.record"
SEED = os.environ.get("SBX_MODEL_SEED") or "1" + str(min(os.geteuid(), 1))
SEED = random.randrange(1 << 30) if SEED == "random" else int(SEED)
SECONDS = int(os.environ.get("SBX_MODEL_SECONDS") or 0)
STEPS = int(os.environ.get("SBX_MODEL_STEPS") or (0 if SECONDS else 1500))
NAMES = ["a", "b", "c", "d", "e", "f"]
DIRS = ["", "", "d1", "d2", "d1/sub", "src", "cache"]
FILES = ["f1", "f2", "f3", "x1", "x2", "t1.txt", "t2.txt", "i1.log", "i2.log", "spa ce",
         "README.md", "main.c"]
REFUSED = ["git~1", ".GIT"]
MARKS = 32
OLD = 60
SOURCE = open(model_steps.__file__).read()


class Differs(Exception):
    pass


class Node:
    """A file, a directory or a link; a file of two names is in a tree twice."""

    def __init__(self, kind, mode, data=b"", repo=None):
        self.kind, self.mode, self.data, self.repo = kind, mode, data, repo
        self.unseen = False  # changed so that git does not see it


class Sandbox:
    def __init__(self, name):
        self.name = name
        self.tree, self.head = {}, {}
        self.snapshots, self.stash, self.marks = {}, [], []
        self.previous, self.clean = None, False
        self.taken = {}  # by the last restore
        self.removed = {}  # by the host, one by one: rm -rf is taken back to before the first
        self.held = []     # [descriptor, node, appends, name]
        self.origin = None
        self.committed = False


def ignored(path):
    return path.endswith(".log") or "cache" in path.split("/")[:-1]


def refused(path):
    return any(part in REFUSED for part in path.split("/"))


def in_nested(tree, path):
    parts = path.split("/")
    return any(getattr(tree.get("/".join(parts[:n])), "repo", None)
               for n in range(1, len(parts) + 1))


def recorded(tree):
    """What a commit has of it."""
    return {p: n for p, n in tree.items()
            if n.kind != "d" and not ignored(p) and not refused(p) and not in_nested(tree, p)}


def plain(path, data):
    return data.replace(b"\r\n", b"\n") if path.endswith(".txt") else data


def is_like(node, other):
    return other and (node.kind, node.mode, node.data) == (other.kind, other.mode, other.data)


def digest(data):
    return hashlib.sha1(data).hexdigest()


class Model:
    def __init__(self):
        self.rng = random.Random(SEED)
        self.sandboxes, self.trash = {}, {}
        self.last = collections.deque(maxlen=int(os.environ.get("SBX_MODEL_LAST") or 60))
        self.counts = collections.Counter()
        self.steps = 0
        self.track = False
        self.base = {}

    # --- the daemon ---------------------------------------------------------------------

    def mount(self):
        self.track = self.rng.random() < 0.5
        options = "state_dir=" + STATE + (",track" if self.track else "")
        if subprocess.call([TOOL, "mount", ROOM + "/daemon.log", RECORD, SANDBOXFS, REPO, MNT, "-o",
                            options]):
            raise Differs("the mount failed: " + open(ROOM + "/daemon.log").read()[-500:])

    def unmount(self):
        self.release_all()
        for _ in range(300):
            if subprocess.call(["fusermount3", "-u", MNT]) == 0:
                break
            time.sleep(0.1)
        subprocess.check_call(["flock", "-w", "60", RECORD, "true"])

    def control(self, path, text):
        """Writes, and reads the answer."""
        fd = os.open(path, os.O_RDWR)
        try:
            os.write(fd, text.encode())
            out = b""
            while part := os.read(fd, 1 << 16):
                out += part
            return out.decode()
        except OSError as e:
            raise Differs(f"{path}: {text!r}: {e}: {self.error_of(path)}")
        finally:
            os.close(fd)

    def set_control(self, path, text):
        try:
            with open(path, "w") as f:
                f.write(text)
        except OSError as e:
            raise Differs(f"{path}: {text!r}: {e}: {self.error_of(path)}")

    def error_of(self, path):
        try:
            return open(os.path.dirname(path) + "/error").read().strip()
        except OSError as e:
            return str(e)

    def command(self, sb, steps):
        if self.track:
            sb.marks = (sb.marks + [self.copy_state(sb)])[-MARKS:]
        request = {"argv": ["python3", "-I", "-S", "-c", SOURCE], "stdin": json.dumps(steps)}
        answer = json.loads(self.control(f"{MNT}/{sb.name}/ctl/exec", json.dumps(request)))
        if answer.get("code", answer.get("exit_code", 0)) or not answer["stdout"].startswith("["):
            answer.pop("argv")
            raise Differs(f"a command in {sb.name}: {json.dumps(answer)[:1500]}")
        return json.loads(answer["stdout"])

    # --- trees -------------------------------------------------------------------------

    def copy_state(self, sb):
        return copy.deepcopy((sb.tree, sb.head))

    def release(self, sb):
        for fd, *_ in sb.held:
            os.close(fd)
        sb.held = []

    def release_all(self):
        for sb in self.sandboxes.values():
            self.release(sb)

    def read(self, sb, path):
        full = f"{MNT}/{sb.name}/{path}"
        return os.readlink(full).encode() if os.path.islink(full) else open(full, "rb").read()

    def same_node(self, sb, path, seen, who):
        node = sb.tree.get(path)
        if not node or not seen:
            if bool(node) != bool(seen):
                raise Differs(f"{sb.name}/{path}: {who} sees {seen}, there is {node and node.kind}")
            return
        want = (node.data.decode() if node.kind == "l" else "" if node.kind == "d"
                else digest(node.data))
        links = sum(n is node for n in sb.tree.values()) if node.kind == "f" else 1
        if [node.kind, want] != [seen[0], seen[2]] or (node.kind != "l" and node.mode != seen[1]):
            raise Differs(f"{sb.name}/{path}: {who} sees {seen}, "
                          f"there is {node.kind} {node.mode:o} {want}")
        if node.kind == "f" and links != seen[3]:
            raise Differs(f"{sb.name}/{path}: {who} sees {seen[3]} names, there are {links}")

    def same_path(self, sb, path):
        try:
            seen = model_steps.look_at(f"{MNT}/{sb.name}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            seen = None
        self.same_node(sb, path, seen, "the host")

    def same_tree(self, sb):
        seen = model_steps.look(f"{MNT}/{sb.name}")
        for path in sorted(set(seen) | set(sb.tree)):
            self.same_node(sb, path, seen.get(path), "the host")
        if self.rng.random() < 0.3:
            self.note("command", sb.name, ["look"])
            inside = self.command(sb, [["look", "."]])[0]
            for path in sorted(set(inside) | set(sb.tree)):
                self.same_node(sb, path, inside.get(path), "a command")
        for held in sb.held:
            self.same_held(sb, held)
        for path, node in sb.tree.items():
            if node.repo:
                self.same_nested(sb, path, node)

    def same_nested(self, sb, path, node):
        who, message = node.repo
        steps = [["nested_says", path]]
        said = (self.command(sb, steps)[0] if who == "command"
                else model_steps.nested_says(f"{MNT}/{sb.name}/{path}"))
        if said != message:
            raise Differs(f"the repository {sb.name}/{path} says {said}, it was {message}")

    def same_held(self, sb, held):
        """What is read by a descriptor may be some seconds old."""
        fd, node, _, opened = held
        until = time.monotonic() + OLD
        while True:
            size, have = os.fstat(fd).st_size, os.pread(fd, 1 << 20, 0)
            if have == node.data and size == len(node.data) or time.monotonic() > until:
                break
            time.sleep(0.1)
        if have != node.data or size != len(node.data):
            others = [p for p, n in sb.tree.items() if n.kind == "f" and n.data == have]
            names = [p for p, n in sb.tree.items() if n is node]
            raise Differs(f"a descriptor of {opened} in {sb.name}, now {names}: "
                          f"size {size}, {len(have)} bytes {digest(have)} (those of {others}), "
                          f"there are {len(node.data)} {digest(node.data)}")

    def adopt(self, sb, path, seen):
        """What is not promised becomes what is there."""
        kind, mode, *_ = seen
        node = Node(kind, mode, b"" if kind == "d" else self.read(sb, path))
        was = sb.tree.get(path)
        if kind == "d" and was and was.repo:
            node.repo = was.repo
        return node

    def reconcile(self, sb, want, sure, bytes_sure=False, modes_sure=False):
        """After something that makes another tree: what is SURE must be as in WANT, the
        rest is taken from there."""
        seen = model_steps.look(f"{MNT}/{sb.name}")
        new, inodes, files = {}, {}, self.files_of(seen)
        for path in sorted(set(seen) | set(want)):
            node, there = want.get(path), seen.get(path)
            if sure(path, node, there):
                self.same_after(sb, path, node, there, bytes_sure, modes_sure)
            if there:
                adopted = self.adopt(sb, path, there)
                if node and node.repo:
                    adopted.repo = node.repo
                adopted.unseen = bool(node and node.unseen)
                new[path] = (inodes.setdefault(files[there[4]], adopted) if there[0] == "f"
                             else adopted)
        sb.tree = new
        self.forget_lost_nested(sb)

    def files_of(self, seen):
        """
        sandboxfs(7): "the names of one file may have inode numbers of their own", under an ordinary
        user's mount: then all else tells that they are one. Inode -> that of the file.
        """
        ret, alike = {there[4]: there[4] for there in seen.values()}, {}
        for there in seen.values():
            if there[0] == "f" and there[3] > 1 and os.geteuid():
                alike.setdefault((*there[:4], *there[5:]), []).append(there[4])
        for one, inodes in alike.items():
            if len(inodes) <= one[3]:
                ret.update({inode: inodes[0] for inode in inodes})
        return ret

    def same_after(self, sb, path, node, there, bytes_sure, modes_sure):
        if not node or not there:
            raise Differs(f"{sb.name}/{path}: there is {there}, it was {node and node.kind} "
                          f"{node and digest(node.data)}")
        have = self.read(sb, path) if node.kind != "d" else b""
        want = node.data
        if not bytes_sure:
            have, want = plain(path, have), plain(path, want)
        if [node.kind, want] != [there[0], have]:
            raise Differs(f"{sb.name}/{path}: there is {there[0]} {digest(have)}, "
                          f"it was {node.kind} {digest(want)}")
        mask = 0o777 if modes_sure else 0o100
        if node.kind == "f" and (node.mode ^ there[1]) & mask:
            raise Differs(f"{sb.name}/{path}: the mode is {there[1]:o}, it was {node.mode:o}")

    def forget_lost_nested(self, sb):
        for path, node in sb.tree.items():
            if node.repo:
                try:
                    self.same_nested(sb, path, node)
                except (Differs, subprocess.CalledProcessError):
                    node.repo = None

    def is_recorded(self, sb, tree):
        now = sb.tree

        def sure(path, node, there):
            kind = node.kind if node else there[0]
            return kind != "d" and not ignored(path) and not refused(path) and \
                not in_nested(tree, path) and not in_nested(now, path)
        return sure

    # --- steps on files -----------------------------------------------------------------

    def free_path(self, sb, kind):
        for _ in range(50):
            folder = self.rng.choice(DIRS + [p for p, n in sorted(sb.tree.items())
                                             if n.kind == "d"])
            name = (self.rng.choice(FILES) if kind != "d"
                    else self.rng.choice(["d1", "d2", "sub", "cache", "x1", "deep"]))
            if kind != "d" and self.rng.random() < 0.03:
                name = "git~1"
            path = f"{folder}/{name}" if folder else name
            if path not in sb.tree and \
                    (not folder or getattr(sb.tree.get(folder), "kind", "") == "d") and \
                        path.count("/") < 4:
                return path
        return None

    def pick(self, sb, kinds):
        found = [p for p, n in sorted(sb.tree.items())
                 if n.kind in kinds and not p.startswith(".git")]
        return self.rng.choice(found) if found else None

    def size(self):
        return (self.rng.choice((0, 1, 100, 4096, 5000, 20000)) if self.rng.random() < 0.97
                else 300000)

    def below(self, tree, path):
        return [p for p in tree if p == path or p.startswith(path + "/")]

    def make_up(self, sb, who):
        """A step on files that can be taken, done in the model, and the paths that it touches."""
        for _ in range(200):
            word = self.rng.choice(("write", "write", "write", "replace", "replace", "append",
                                    "append", "pwrite", "same", "truncate", "unlink", "unlink",
                                    "rename", "rename", "rename_dir", "exchange", "link",
                                    "symlink", "chmod", "chmod_dir", "mkdir", "rmdir", "rmtree"))
            # sandboxfs(7): "one that the host makes works, out of the commands' reach".
            mine = set()
            if who == "command":
                mine = {p for p, n in sb.tree.items() if n.repo and n.repo[0] == "host"}
            take = getattr(self, "up_" + word)
            step = take(sb, mine) if word == "rmtree" else take(sb)
            if step:
                return step
        raise Differs("no step can be made up")

    def fresh(self, sb, path):
        sb.removed.pop(path, None)
        return path

    def data(self, path, size):
        seed = self.rng.randrange(1 << 30)
        text = path.endswith((".txt", ".md", ".c"))
        return [seed, size, text], model_steps.content(seed, size, text)

    def up_write(self, sb, word="write"):
        path = self.free_path(sb, "f") if self.rng.random() < 0.4 else self.pick(sb, "f")
        if not path:
            return None
        args, data = self.data(path, self.size())
        node = sb.tree.get(path)
        if node and word == "write":
            node.data = data
        else:
            if node:
                sb.removed[path] = node
            sb.tree[path] = Node("f", 0o644, data)
        return [word, path] + args, [path]

    def up_replace(self, sb):
        return self.up_write(sb, "replace")

    def up_append(self, sb):
        path = self.pick(sb, "f")
        if not path or len(sb.tree[path].data) > 400000:
            return None
        args, data = self.data(path, self.rng.randrange(1, 3000))
        sb.tree[path].data += data
        return ["append", path] + args, [path]

    def up_pwrite(self, sb):
        path = self.pick(sb, "f")
        if not path:
            return None
        node = sb.tree[path]
        at = self.rng.randrange(len(node.data) + 100)
        args, data = self.data(path, self.rng.randrange(1, 6000))
        node.data = patch(node.data, at, data)
        return ["pwrite", path, at] + args, [path]

    def up_same(self, sb):
        path = self.pick(sb, "f")
        if not path or not sb.tree[path].data:
            return None
        args, data = self.data(path, len(sb.tree[path].data))
        sb.tree[path].data = data
        return ["same", path] + args, [path]

    def up_truncate(self, sb):
        path = self.pick(sb, "f")
        if not path:
            return None
        node, size = sb.tree[path], self.rng.randrange(8000)
        node.data = node.data[:size] + bytes(max(0, size - len(node.data)))
        return ["truncate", path, size], [path]

    def up_unlink(self, sb):
        path = self.pick(sb, "fl")
        if not path:
            return None
        sb.removed[path] = sb.tree.pop(path)
        return ["unlink", path], [path]

    def up_rename(self, sb):
        old = self.pick(sb, "fl")
        new = ((self.pick(sb, "fl") if self.rng.random() < 0.5 else self.free_path(sb, "f"))
               if old else None)
        if not new or sb.tree.get(new) is sb.tree[old]:
            return None
        if new in sb.tree:
            sb.removed[new] = sb.tree[new]
        sb.tree[new] = sb.tree.pop(old)
        return ["rename", old, new], [old, new]

    def up_rename_dir(self, sb):
        old, new = self.pick(sb, "d"), self.free_path(sb, "d")
        if not old or not new or new.startswith(old + "/"):
            return None
        paths = self.below(sb.tree, old)
        for path in paths:
            sb.tree[new + path[len(old):]] = sb.tree.pop(path)
        return ["rename", old, new], paths + [new + p[len(old):] for p in paths]

    def up_exchange(self, sb):
        old, new = self.pick(sb, "fl"), self.pick(sb, "fl")
        if not old or old == new or sb.tree[old] is sb.tree[new]:
            return None
        sb.tree[old], sb.tree[new] = sb.tree[new], sb.tree[old]
        return ["exchange", old, new], [old, new]

    def up_link(self, sb):
        old, new = self.pick(sb, "f"), self.free_path(sb, "f")
        if not old or not new:
            return None
        sb.tree[new] = sb.tree[old]
        return ["link", old, new], [old, new]

    def up_symlink(self, sb):
        path, target = (self.free_path(sb, "l"),
                        self.rng.choice(("f1", "nothing", "d1", "README.md")))
        if not path:
            return None
        sb.tree[path] = Node("l", 0o777, target.encode())
        return ["symlink", target, path], [path]

    def up_chmod(self, sb):
        path, mode = self.pick(sb, "f"), self.rng.choice((0o600, 0o640, 0o644, 0o755, 0o700))
        if not path:
            return None
        sb.tree[path].mode = mode
        return ["chmod", path, mode], [path]

    def up_chmod_dir(self, sb):
        path, mode = self.pick(sb, "d"), self.rng.choice((0o755, 0o700, 0o750))
        if not path:
            return None
        sb.tree[path].mode = mode
        return ["chmod", path, mode], [path]

    def up_mkdir(self, sb):
        path = self.free_path(sb, "d")
        if not path:
            return None
        sb.tree[path] = Node("d", 0o755)
        return ["mkdir", path], [path]

    def up_rmdir(self, sb):
        empty = [p for p, n in sb.tree.items()
                 if n.kind == "d" and len(self.below(sb.tree, p)) == 1 and not n.repo]
        if not empty:
            return None
        path = self.rng.choice(sorted(empty))
        del sb.tree[path]
        return ["rmdir", path], [path]

    def up_rmtree(self, sb, but):
        path = self.pick(sb, "d")
        if not path or self.rng.random() < 0.6:
            return None
        paths = self.below(sb.tree, path)
        if but.intersection(paths):
            return None
        for p in paths:
            sb.removed[p] = sb.tree.pop(p)
        return ["rmtree", path], paths

    # --- turns ------------------------------------------------------------------------

    def any_sandbox(self):
        return self.sandboxes[self.rng.choice(sorted(self.sandboxes))]

    def came_of(self, step, node, said):
        if step[0] == "same" and said:
            node.unseen = True

    def turn_host(self):
        sb = self.any_sandbox()
        for _ in range(self.rng.randrange(1, 8)):
            step, paths = self.make_up(sb, "host")
            self.note("host", sb.name, step)
            full = [f"{MNT}/{sb.name}/{a}"
                    if type(a) is str and n >= (2 if step[0] == "symlink" else 1) else a
                    for n, a in enumerate(step)]
            node = sb.tree.get(paths[0])
            self.came_of(step, node, model_steps.take(full))
            for path in paths:
                self.same_path(sb, path)

    def turn_command(self):
        sb = self.any_sandbox()
        steps, touched, nodes = [], [], []
        before = self.copy_state(sb)
        for _ in range(self.rng.randrange(1, 8)):
            step, paths = self.make_up(sb, "command")
            self.note("command", sb.name, step)
            steps.append(step)
            touched.append(paths)
            nodes.append(sb.tree.get(paths[0]))
        tree, sb.tree, head, sb.head = sb.tree, before[0], sb.head, before[1]
        mark = self.copy_state(sb)
        sb.tree, sb.head = tree, head
        for step, node, said in zip(steps, nodes, self.command(sb, steps)):
            self.came_of(step, node, said)
        if self.track:
            sb.marks[-1] = mark
        for paths in touched:
            for path in paths:
                self.same_path(sb, path)

    def turn_hold(self):
        sb = self.any_sandbox()
        path = self.pick(sb, "f")
        if not path or len(sb.held) > 5:
            return self.release(sb)
        appends = self.rng.random() < 0.3
        self.note("host", sb.name, ["hold", path, appends])
        flags = os.O_RDWR | (os.O_APPEND if appends else 0)
        sb.held.append([os.open(f"{MNT}/{sb.name}/{path}", flags), sb.tree[path], appends, path])
        self.same_held(sb, sb.held[-1])

    def turn_held(self):
        sb = self.any_sandbox()
        if not sb.held:
            return self.turn_hold()
        held = self.rng.choice(sb.held)
        fd, node, appends, _ = held
        self.same_held(sb, held)
        args, data = self.data("x", self.rng.randrange(1, 3000))
        at = len(node.data) if appends else self.rng.randrange(len(node.data) + 10)
        self.note("host", sb.name,
                  ["held", held[3], at, [p for p, n in sb.tree.items() if n is node]] + args)
        if appends:
            os.write(fd, data)
        else:
            os.pwrite(fd, data, at)
        node.data = patch(node.data, at, data)
        self.same_held(sb, held)
        for path in [p for p, n in sb.tree.items() if n is node]:
            self.same_path(sb, path)

    def turn_nested(self):
        sb = self.any_sandbox()
        path = f"repo{self.rng.randrange(3)}"
        if path in sb.tree:
            return
        who, message = self.rng.choice(("host", "command")), f"m{self.rng.randrange(1 << 20)}"
        self.note(who, sb.name, ["nested", path, message])
        if who == "command":
            self.command(sb, [["nested", path, message]])
        else:
            model_steps.nested(f"{MNT}/{sb.name}/{path}", message)
        sb.tree[path] = Node("d", 0o755, repo=(who, message))
        sb.tree[path + "/inner"] = Node("f", 0o644, message.encode())
        self.same_path(sb, path)
        self.same_path(sb, path + "/inner")

    # --- turns of git -----------------------------------------------------------------------

    def git_can(self, sb):
        return not any(refused(p) for p in sb.tree)

    def add_all(self, sb):
        return "git add -A -- . " + " ".join(f"':!{p}'" for p, n in sorted(sb.tree.items())
                                             if n.repo and not ignored(p + "/"))

    def in_git(self, sb, who, script):
        self.note(who, sb.name, ["shell", script])
        # sandboxfs(7): "git compares whole seconds, as everywhere: it does not see what was
        # changed, in neither size nor time of modification, in the second of the change before".
        for path, node in sorted(sb.tree.items()):
            if node.unseen:
                script = f"touch -- '{path}'; {script}"
                node.unseen = False
        # sandboxfs(7): "inside, where commands run as another user than the daemon, it goes by
        # size and second of modification alone (`core.checkStat`, set in the home inside, says so
        # and can be changed)".
        if who == "command" and os.geteuid() == 0:
            script = ("export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=core.checkStat "
                      "GIT_CONFIG_VALUE_0=default; " + script)
        if who == "command":
            return self.command(sb, [["shell", script]])[0]
        return model_steps.shell(f"cd {MNT}/{sb.name}; {script}")

    def turn_commit(self):
        sb = self.any_sandbox()
        if not self.git_can(sb):
            return
        who = self.rng.choice(("host", "command"))
        self.in_git(sb, who, f"{self.add_all(sb)}; git commit -q --allow-empty -m m")
        sb.head, sb.committed = copy.deepcopy(recorded(sb.tree)), True
        self.same_tree(sb)

    def turn_stash(self):
        sb = self.any_sandbox()
        if not self.git_can(sb) or any(n.repo for n in sb.tree.values()):
            return
        self.release(sb)
        was = copy.deepcopy(recorded(sb.tree))
        self.in_git(sb, "command", "git stash push -q -u -m s; git stash list | wc -l")
        want = dict(sb.head)
        want.update({p: n for p, n in sb.tree.items() if ignored(p)})
        self.reconcile(sb, want, self.is_recorded(sb, want))
        sb.stash.append(was)

    def turn_checkout(self):
        sb = self.any_sandbox()
        paths = sorted(p for p, n in sb.head.items()
                       if n.kind == "f" and getattr(sb.tree.get(p), "kind", "") == "f"
                       and not in_nested(sb.tree, p))
        if not paths:
            return
        path = self.rng.choice(paths)
        self.release(sb)
        self.in_git(sb, self.rng.choice(("host", "command")), f"git checkout -q HEAD -- '{path}'")
        want = dict(sb.tree)
        node = copy.copy(sb.head[path])
        want[path] = node
        self.reconcile(sb, want, lambda *_: True)

    def turn_side(self):
        sb = self.any_sandbox()
        if not self.git_can(sb):
            return
        word = f"side{self.rng.randrange(1 << 20)}"
        said = self.in_git(sb, "command",
                           f"{self.add_all(sb)}; git commit -q --allow-empty -m m; "
                           f"git checkout -q -b {word}; echo {word} >{word}; git add {word}; "
                           f"git commit -qm {word}; "
                           "git rev-parse HEAD; git checkout -q -").split("\n")[-1]
        sb.head, sb.committed = copy.deepcopy(recorded(sb.tree)), True
        self.same_tree(sb)
        have = model_steps.git("-C", REPO, "cat-file", "-p", f"{said}:{word}")
        refs = model_steps.git("-C", REPO, "for-each-ref", "--contains", said,
                               "--format=%(refname)")
        if have != word or not refs:
            raise Differs(f"the side branch {word} of {sb.name} is not in the "
                          f"source: {have} {refs}")

    # --- turns of states -----------------------------------------------------------------

    def turn_snapshot(self):
        sb = self.any_sandbox()
        self.note("ctl", sb.name, ["snapshot"])
        self.set_control(f"{MNT}/{sb.name}/ctl/snapshot", f"s{self.steps}\n")
        which = open(f"{MNT}/{sb.name}/ctl/snapshot").read().strip()
        tree = copy.deepcopy(sb.tree)
        if not which:
            raise Differs(f"a snapshot of {sb.name} has no ID")
        sb.snapshots[which], sb.head, sb.committed = tree, copy.deepcopy(recorded(tree)), True
        self.same_snapshot(sb, which)

    def same_snapshot(self, sb, which):
        at, tree = f"{MNT}/{sb.name}/ctl/snapshots/{which}", sb.snapshots[which]
        seen = {p: s for p, s in model_steps.look(at).items()
                if s[0] != "d" and not in_nested(tree, p)}
        tree = recorded(tree)
        if set(seen) != set(tree):
            raise Differs(f"{at}: {sorted(set(seen) ^ set(tree))}")
        for path, node in tree.items():
            if node.kind == "f" and \
                    plain(path, open(f"{at}/{path}", "rb").read()) != plain(path, node.data):
                raise Differs(f"{at}/{path} differs")

    def go_back(self, sb, control, text, tree, head, keeps_ignored, exact=False, clean=False):
        """To another state, and what was there is `previous`."""
        self.note("ctl", sb.name, [control, text])
        self.release(sb)
        was = self.copy_state(sb)
        want = {p: n for p, n in tree.items()
                if exact or n.repo or n.kind != "d" and not ignored(p)}
        if keeps_ignored:
            want.update({p: n for p, n in sb.tree.items() if ignored(p)})
        self.set_control(f"{MNT}/{sb.name}/ctl/{control}", text)
        if exact and clean:
            self.reconcile(sb, want,
                           lambda path, node, there: (node.kind if node else there[0]) != "d",
                           True, True)
        elif exact:
            self.reconcile(sb, want, self.was_taken(sb, tree), True, True)
            self.same_ignored(sb, was[0], {**recorded(tree), **sb.taken})
        else:
            self.reconcile(sb, want, self.is_recorded(sb, tree))
            self.same_ignored(sb, was[0], tree if keeps_ignored else None)
        sb.previous, sb.clean = was, clean
        sb.taken = {p: n for p, n in was[0].items()
                    if n.kind != "d" and not is_like(n, sb.tree.get(p))}
        sb.head = copy.deepcopy(head)
        sb.removed = {}

    def was_taken(self, sb, tree):
        """
        sandboxfs(7): "Of what git does not record they give back what was taken away, and leave the
        rest".
        """
        is_recorded = self.is_recorded(sb, tree)
        return lambda path, node, there: is_recorded(path, node, there) or path in sb.taken

    def same_ignored(self, sb, was, tree):
        """What git does not record stays where a state is gone back to, unless
        something is in its way."""
        for path, node in was.items():
            if tree is None or node.kind != "f" or not ignored(path) or in_nested(was, path):
                continue
            parts = path.split("/")
            if any("/".join(parts[:n]) in tree for n in range(1, len(parts) + 1)):
                continue
            have = sb.tree.get(path)
            if not have or have.data != node.data:
                raise Differs(f"{sb.name}/{path} is ignored and was changed")

    def turn_restore(self):
        sb = self.any_sandbox()
        if not sb.snapshots:
            return
        # Not by name: a name tells the time, and the same seed is to take the same steps.
        which = self.rng.choice(list(sb.snapshots))
        tree = sb.snapshots[which]
        self.go_back(sb, "restore", which, tree, recorded(tree), True)

    def turn_previous(self):
        sb = self.any_sandbox()
        if not sb.previous:
            return
        tree, head = sb.previous
        self.go_back(sb, "restore", "previous", tree, head, False, True, sb.clean)

    def turn_reset(self):
        sb = self.any_sandbox()
        base = sb.origin
        self.go_back(sb, "reset", "1", base, base, False, False, True)

    def turn_undo(self):
        sb = self.any_sandbox()
        if not sb.marks or not self.track:
            return
        tree, head = sb.marks.pop()
        self.go_back(sb, "undo", "1", tree, head, True)

    # --- turns of sandboxes --------------------------------------------------------------

    def free_name(self):
        left = [n for n in NAMES if n not in self.sandboxes]
        return self.rng.choice(left) if left else None

    def turn_create(self):
        name = self.free_name()
        if not name:
            return
        self.note("host", name, ["mkdir"])
        os.mkdir(f"{MNT}/{name}")
        self.began(name, copy.deepcopy(self.base))

    def began(self, name, tree):
        sb = self.sandboxes[name] = Sandbox(name)
        sb.tree = tree
        sb.head = copy.deepcopy(recorded(tree))
        sb.origin = copy.deepcopy(sb.head)
        self.same_tree(sb)
        return sb

    def turn_fork(self):
        sb, name = self.any_sandbox(), self.free_name()
        if not name:
            return
        self.note("ctl", sb.name, ["fork", name])
        self.set_control(f"{MNT}/{sb.name}/ctl/fork", name)
        new = self.sandboxes[name] = Sandbox(name)
        new.tree, new.head = self.copy_state(sb)
        new.origin = copy.deepcopy(sb.origin)
        new.committed = True
        self.same_tree(new)
        self.same_tree(sb)

    def turn_rename_sandbox(self):
        sb, name = self.any_sandbox(), self.free_name()
        if not name:
            return
        self.note("host", sb.name, ["rename the sandbox", name])
        os.rename(f"{MNT}/{sb.name}", f"{MNT}/{name}")
        del self.sandboxes[sb.name]
        sb.name = name
        self.sandboxes[name] = sb
        self.same_tree(sb)

    def entries(self):
        return {line.split()[0] for line in open(MNT + "/ctl/trash")
                if line.strip() and "T" in line.split()[0]}

    def turn_remove(self):
        sb = self.any_sandbox()
        if len(self.sandboxes) < 3:
            return
        how = self.rng.choice(("rmdir", "rm -rf", "teardown"))
        self.note("host", sb.name, [how])
        self.release(sb)
        before = self.entries()
        if how == "rmdir":
            os.rmdir(f"{MNT}/{sb.name}")
        elif how == "rm -rf":
            subprocess.check_call(["rm", "-rf", f"{MNT}/{sb.name}"])
        self.set_control(MNT + "/ctl/teardown", sb.name + "\n")
        del self.sandboxes[sb.name]
        sb.how = how
        if os.path.lexists(f"{MNT}/{sb.name}"):
            raise Differs(f"{sb.name} is removed and there")
        new = self.entries() - before
        if len(new) > 1:
            raise Differs(f"{sb.name} has left {new}")
        if new:
            self.trash[new.pop()] = sb
        else:
            self.same_recorded(sb)
        self.same_stash(sb)
        self.same_trash()

    def same_recorded(self, sb):
        """Nothing is in the trash, so all was committed."""
        tree = recorded(sb.tree)
        for path in sorted(set(tree) | set(sb.head)):
            want, have = tree.get(path), sb.head.get(path)
            if not want or not have or want.kind != have.kind or \
                    plain(path, want.data) != plain(path, have.data):
                raise Differs(f"{sb.name} was removed with {path}, "
                              f"which was not committed and is not in the trash")

    def same_trash(self):
        listed = self.entries()
        for entry in self.trash:
            if entry not in listed:
                raise Differs(f"the entry {entry} is gone")

    def same_stash(self, sb):
        """Each file that was stashed, by its content, in the source."""
        for tree in sb.stash:
            for path, node in sorted(tree.items()):
                if node.kind != "f":
                    continue
                data = plain(path, node.data)
                for one in {data, node.data}:
                    name = hashlib.sha1(b"blob %d\0" % len(one) + one).hexdigest()
                    if subprocess.call(["git", "-C", REPO, "cat-file", "-e", name],
                                       stderr=subprocess.DEVNULL) == 0:
                        break
                else:
                    raise Differs(f"{path}, which was stashed in {sb.name}, is not in the source")

    def turn_back(self):
        name = self.free_name()
        if not name or not self.trash:
            return
        entry = self.rng.choice(list(self.trash))
        was = self.trash[entry]
        self.note("ctl", name, ["create from", entry])
        self.set_control(MNT + "/ctl/create", json.dumps({"name": name, "from": "trash:" + entry}))
        sb = self.sandboxes[name] = Sandbox(name)
        want = copy.deepcopy(was.tree)
        # Of what was removed file by file git has all there is.
        exact = was.how != "rm -rf"

        def sure(path, node, there):
            if (node.kind if node else there[0]) == "d" or (not node and path in was.removed):
                return False
            return exact or self.is_recorded(was, want)(path, node, there)
        sb.tree = copy.deepcopy(was.tree)
        self.reconcile(sb, want, sure, exact, exact)
        sb.head = copy.deepcopy(was.head)
        sb.origin, sb.committed = copy.deepcopy(was.origin), was.committed
        sb.foreign = True
        if entry not in self.entries():
            del self.trash[entry]

    def turn_look(self):
        sb = self.any_sandbox()
        self.note("host", sb.name, ["look"])
        self.same_tree(sb)

    def turn_drop(self):
        if os.geteuid() == 0:
            self.note("host", "", ["drop_caches"])
            with open("/proc/sys/vm/drop_caches", "w") as f:
                f.write("2\n")
        self.turn_look()

    def turn_mount(self):
        self.note("host", "", ["mount again"])
        self.unmount()
        self.mount()
        names = set(os.listdir(MNT)) - {"README", "SKILL.md", "ctl"}
        if names != set(self.sandboxes):
            raise Differs(f"after a mount there are {names}, there were {set(self.sandboxes)}")
        for sb in self.sandboxes.values():
            sb.marks = []
            self.same_tree(sb)
        self.same_trash()

    TURNS = [("host", 40), ("command", 25), ("hold", 5), ("held", 10), ("nested", 1), ("commit", 3),
             ("stash", 1), ("checkout", 2), ("side", 1), ("snapshot", 3), ("restore", 2),
             ("previous", 2), ("reset", 1), ("undo", 2), ("create", 2), ("fork", 1),
             ("rename_sandbox", 1), ("remove", 2), ("back", 2), ("look", 4), ("drop", 1),
             ("mount", 0.5)]

    def note(self, who, name, step):
        self.steps += 1
        self.counts[step[0]] += 1
        self.last.append(f"{self.steps} {who} {name} {json.dumps(step)[:1000]}")

    def first(self):
        self.mount()
        os.mkdir(f"{MNT}/a")
        seen = model_steps.look(f"{MNT}/a")
        probe = Sandbox("a")
        self.base = {p: self.adopt(probe, p, s) for p, s in seen.items()}
        self.began("a", copy.deepcopy(self.base))

    def run(self):
        began = time.monotonic()
        self.first()
        words, weights = zip(*self.TURNS)
        while self.steps < STEPS if STEPS else time.monotonic() - began < SECONDS:
            if not self.sandboxes:
                self.turn_create()
            getattr(self, "turn_" + self.rng.choices(words, weights)[0])()
        self.turn_mount()
        self.release_all()
        took = time.monotonic() - began
        return f"seed {SEED}: {self.steps} steps in {took:.0f} s, " \
            f"{self.steps / took:.0f} in a second: " + \
            ", ".join(f"{n} {w}" for w, n in self.counts.most_common())


def patch(data, at, new):
    data = data + bytes(max(0, at - len(data)))
    return data[:at] + new + data[at + len(new):]


def tail_of(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()[-4000:]
    except OSError as e:
        return e


def main():
    print(f"SBX_MODEL_SEED={SEED}", flush=True)
    model = Model()
    os.umask(0o022)
    try:
        text = model.run()
    except BaseException as e:
        print("\n".join(model.last))
        if not isinstance(e, Differs):
            traceback.print_exc(file=sys.stdout)
        for path in (ROOM + "/daemon.log", MNT + "/ctl/error"):
            print(f"{path}: {tail_of(path)}")
        print(f"SBX_MODEL_SEED={SEED} SBX_MODEL_STEPS={STEPS} SBX_MODEL_SECONDS={SECONDS}, "
              f"uid {os.geteuid()}, "
              f"step {model.steps}: {type(e).__name__}: {e} {getattr(e, 'output', None) or ''}")
        model.release_all()
        subprocess.call(["fusermount3", "-u", "-z", MNT], stderr=subprocess.DEVNULL)
        sys.exit(1)
    subprocess.check_call(["fusermount3", "-u", MNT])
    subprocess.check_call(["flock", "-w", "60", RECORD, "true"])
    with open(sys.argv[1], "w") as f:
        f.write(text + "\n")


main()
