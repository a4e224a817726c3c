"""The place a run works in: directories, processes and mounts, and how they end."""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Missing(Exception):
    """A way cannot be had here; the text says why."""


class Failed(Exception):
    """A command or a measurement failed."""


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def call(argv, cwd=None, env=None, stdin=subprocess.DEVNULL):
    """Runs ARGV to its end; its output, or Failed with what it said."""
    done = subprocess.run(argv, cwd=cwd, env=env, stdin=stdin, capture_output=True, text=True,
                          errors="replace", preexec_fn=die_with_parent)
    if done.returncode:
        text = (done.stderr or done.stdout).strip().splitlines()
        raise Failed(f"{os.path.basename(argv[0])} {done.returncode}: {text[-1] if text else ''}")
    return done.stdout


def need(tool):
    if not shutil.which(tool):
        raise Missing(f"{tool} is not installed")


def mounts_below(path):
    """The mount points at or below PATH, the innermost first."""
    found = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        for line in table:
            at = line.split()[4]
            if at == path or at.startswith(path + "/"):
                found.append(at)
    return sorted(found, key=len, reverse=True)


def descendants(pid):
    """PID and every process that has it above."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                    parents[int(name)] = int(f.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    family = [pid]
    for one in family:
        family += [child for child, parent in parents.items() if parent == one]
    return family


class Room:
    """PATH holds everything of the run. Whatever was started or mounted is
    taken down by close()."""

    def __init__(self, path, build, quick, options):
        self.path, self.build, self.quick, self.options = path, build, quick, options
        self.is_root = os.geteuid() == 0
        self.procs = []
        for name in ("share", "data", "sites", "home"):
            os.mkdir(os.path.join(path, name), 0o755)
        with open(self.at("home", "gitconfig"), "w", encoding="utf-8") as f:
            f.write("[user]\n\tname = Bench\n\temail = bench@example.org\n"
                    "[init]\n\tdefaultBranch = main\n[safe]\n\tdirectory = *\n"
                    "[gc]\n\tauto = 0\n[advice]\n\tdetachedHead = false\n")
        os.environ.update(GIT_CONFIG_GLOBAL=self.at("home", "gitconfig"), GIT_CONFIG_NOSYSTEM="1",
                          HOME=self.at("home"), LC_ALL="C.UTF-8")
        for tool in ("sandboxfs", "sandboxfs-runner", "tests/bench/bench-micro",
                     "tests/bench/bench-exec", "tests/bench/bench-exec-many"):
            shutil.copy(os.path.join(build, tool), self.at("share"))
        self.micro = self.at("share", "bench-micro")
        self.sandboxfs = self.at("share", "sandboxfs")
        self.keys = call([self.sandboxfs, "--help"])

    def at(self, *names):
        return os.path.join(self.path, *names)

    def knows(self, key):
        """Whether this sandboxfs has the option KEY."""
        return f"\n  {key}=" in self.keys

    def start(self, argv, ready, what):
        """A process that serves until the end of the run; returns when ready() is true."""
        log = self.at("home", f"log{len(self.procs)}")
        with open(log, "w", encoding="utf-8") as out:
            proc = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                    preexec_fn=die_with_parent)
        self.procs.append(proc)
        while not ready():
            if proc.poll() is not None:
                with open(log, encoding="utf-8", errors="replace") as f:
                    said = f.read().strip().splitlines()
                raise Missing(f"{what} does not start: {said[-1] if said else proc.returncode}")
            time.sleep(0.02)
        return proc

    def settle(self):
        """Writes back what is dirty, so that one measurement does not pay for another."""
        call(["sync", "-f", self.path])

    def drop_caches(self):
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w", encoding="utf-8") as f:
            f.write("3\n")

    def close(self):
        for proc in reversed(self.procs):
            proc.terminate()
        until = time.monotonic() + 60
        for proc in reversed(self.procs):
            try:
                proc.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                proc.kill()
                proc.wait()
        for at in mounts_below(self.path):
            tool = ["umount", "-l"] if self.is_root else ["fusermount3", "-uz"]
            subprocess.run([*tool, at], check=False, stderr=subprocess.DEVNULL)


class Mount:
    """A mounted sandboxfs."""

    def __init__(self, room, name, source, extra=()):
        self.room, self.path = room, room.at("sites", f"mnt-{name}")
        self.state = room.at("sites", f"state-{name}")
        os.mkdir(self.path)
        options = [f"state_dir={self.state}", f"ro_paths={room.at('share')}", *extra]
        if room.knows("cache_dir"):
            options.append(f"cache_dir={room.at('sites', 'cache')}")
        argv = [room.sandboxfs, source, self.path, "-f", "-o", ",".join(options), *room.options]
        self.proc = room.start(argv, lambda: os.path.exists(os.path.join(self.path, "README")),
                               "sandboxfs")

    def box(self, name):
        return os.path.join(self.path, name)

    def create(self, name):
        os.mkdir(self.box(name))

    def teardown(self, name):
        """Returns when nothing is left of the sandbox."""
        with open(self.box("ctl/teardown"), "w", encoding="utf-8") as f:
            f.write(name + "\n")

    def await_removals(self):
        while True:
            with open(self.box("ctl/pending"), encoding="utf-8") as f:
                if not f.read().strip():
                    return
            time.sleep(0.01)

    def exec(self, name, argv):
        """Runs ARGV inside the sandbox NAME; its output."""
        with open(self.box(f"{name}/ctl/exec"), "r+b", buffering=0) as f:
            f.write(json.dumps({"argv": argv, "timeout_ms": 0}).encode())
            result = json.loads(b"".join(iter(lambda: f.read(1 << 20), b"")))
        if result["exitCode"]:
            said = result["stderr"].strip().splitlines()
            raise Failed(f"inside: {result['exitCode']} {said[-1] if said else ''}")
        return result["stdout"]
