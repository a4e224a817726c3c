"""The ways that a tree of files can be had, each with a checkout of the same repository."""
import os
import subprocess

from .data import Data
from .room import Missing, Mount, call, need

OVERLAY = "lowerdir={lower},upperdir={upper},workdir={work}"


class Site:
    """run() runs a command in the tree; by default here, in the directory PATH."""

    def __init__(self, path=None, run=None):
        self.path = path
        self.run = run or (lambda argv: call(argv, cwd=path))
        self.done = set()

    def once(self, what, fn):
        if what not in self.done:
            fn(self)
            self.done.add(what)


class Sites:
    """Makes each site, mount and repository when it is first asked for."""

    def __init__(self, room):
        self.room = room
        self.data = Data(room)
        self.made = {}

    def _once(self, key, make):
        if key not in self.made:
            try:
                self.made[key] = make()
            except Missing as e:
                self.made[key] = e
        if isinstance(self.made[key], Missing):
            raise self.made[key]
        return self.made[key]

    def mount(self, source, kind="", extra=()):
        """A mount whose first sandbox has been made and removed, so that
        what is cached is cached."""
        def make():
            mount = Mount(self.room, source + kind, self.data.repo(source), extra)
            mount.create("warm-up")
            mount.teardown("warm-up")
            return mount
        return self._once(("mount", source, kind), make)

    def site(self, way):
        return self._once(("site", way), lambda: getattr(self, "_" + way.replace("-", "_"))())

    def _checkout(self, way):
        path = self.room.at("sites", way)
        call(["git", "clone", "-q", "--shared", self.data.repo("medium"), path])
        return path

    def _native(self):
        return Site(self._checkout("native"))

    def _sandboxfs(self):
        mount = self.mount("medium")
        mount.create("bench")
        return Site(mount.box("bench"))

    def _inside(self):
        mount = self.mount("medium")
        self.site("sandboxfs")
        return Site(run=lambda argv: mount.exec("bench", argv))

    def _passthrough(self):
        if not self.room.knows("io"):
            raise Missing("this sandboxfs has no io=passthrough")
        mount = self.mount("medium", "-passthrough", ("io=passthrough",))
        mount.create("bench-passthrough")  # the branch is another's as well as the name
        return Site(mount.box("bench-passthrough"))

    def _served(self, way, argv):
        """A peer that serves PATH until the end: ARGV may use {lower} {upper} {work}."""
        need(argv[0])
        places = {"lower": self._checkout(way + ".lower")}
        for name in ("upper", "work", "mnt"):
            places[name] = self.room.at("sites", f"{way}.{name}")
            os.mkdir(places[name])
        self.room.start([a.format(**places) for a in argv],
                        lambda: os.path.ismount(places["mnt"]), way)
        return Site(places["mnt"])

    def _bindfs(self):
        return self._served("bindfs", ["bindfs", "-f", "--no-allow-other", "{lower}", "{mnt}"])

    def _mergerfs(self):
        return self._served("mergerfs", ["mergerfs", "-f", "{lower}", "{mnt}"])

    def _fuse_overlayfs(self):
        return self._served("fuse-overlayfs",
                            ["fuse-overlayfs", "-f", "-o", OVERLAY, "{mnt}"])

    def _overlayfs(self):
        """The kernel's own; for an ordinary user in namespaces of his own, held by a process."""
        lower = self._checkout("overlayfs.lower")
        places = [self.room.at("sites", "overlayfs." + name) for name in ("upper", "work", "mnt")]
        for path in places:
            os.mkdir(path)
        options = OVERLAY.format(lower=lower, upper=places[0], work=places[1])
        if self.room.is_root:
            call(["mount", "-t", "overlay", "overlay", "-o", options, places[2]])
            return Site(places[2])
        ready = self.room.at("sites", "overlayfs.ready")
        script = 'mount -t overlay overlay -o "$1" "$2" && : >"$3" && exec sleep infinity'
        holder = self.room.start(
            ["unshare", "-Urm", "sh", "-c", script, "sh", options + ",userxattr", places[2], ready],
            lambda: os.path.exists(ready), "overlayfs in a user namespace")
        enter = ["nsenter", "-t", str(holder.pid), "-U", "-m", "--preserve-credentials",
                 "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", places[2]]
        return Site(run=lambda argv: call([*enter, *argv]))

    def versions(self):
        """What was compared, for whoever reads the figures later."""
        found = {}
        for tool, *flag in (("git", "--version"), ("rg", "--version"), ("sqlite3", "--version"),
                            ("bindfs", "--version"), ("fuse-overlayfs", "--version"),
                            ("mergerfs", "--version"), ("bwrap", "--version"),
                            ("nsjail", "--help")):
            try:
                need(tool)
                done = subprocess.run([tool, *flag], capture_output=True, text=True, check=False)
                lines = (done.stdout or done.stderr).strip().splitlines()
                found[tool] = "installed" if tool == "nsjail" else lines[0]
            except Missing:
                found[tool] = None
        return found
