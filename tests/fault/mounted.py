"""A mount that a test ends by force: how it is started again, where its processes are, and whether
git works in its sandboxes."""
import contextlib
import os
import signal
import subprocess
import time

ROOM, TOOL = os.environ["ROOM"], os.environ["TOOL"]
MNT = ROOM + "/mnt"
RECORD, LOG = ROOM + "/daemon.record", ROOM + "/daemon.log"


class Mounted:
    """WORD begins each failure: it says which run it is."""

    def __init__(self, word, repo, options):
        self.word, self.repo, self.options = word, repo, options

    def check(self, holds, text):
        if not holds:
            raise SystemExit(f"{self.word}: {text}")

    def mount(self):
        code = subprocess.call([TOOL, "mount", LOG, RECORD, os.environ["SANDBOXFS"], self.repo, MNT,
                                "-o", self.options])
        self.check(code == 0, "the mount failed: " + open(LOG).read()[-500:])

    def pids(self):
        out = subprocess.run([TOOL, "pids", MNT], stdout=subprocess.PIPE).stdout
        return sorted(int(p) for p in out.split())

    def daemon(self):
        """Not the least number: numbers begin anew, and the spawner and jobs' inits look alike."""
        for pid in self.pids():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as f:
                if f.read() == "sandboxfs\n":
                    return pid
        raise SystemExit("the daemon is not there")

    def kill(self):
        os.kill(self.daemon(), signal.SIGKILL)

    def await_end(self):
        """Of all processes of the mount."""
        subprocess.check_call(["flock", "-w", "60", RECORD, "true"])

    def settle(self):
        """Waits until background removal is done; pending is read, not slept on."""
        for _ in range(12000):
            if not open(MNT + "/ctl/pending").read():
                return
            time.sleep(0.01)
        self.check(False, "removal does not end")

    def said(self, command, what):
        """What it prints; it succeeds."""
        said = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=120)
        self.check(said.returncode == 0, f"{what}: {said.returncode} {said.stdout}")
        return said.stdout

    def try_git(self, name, number):
        """On both sides, and both see both."""
        git = ["git", "-C", f"{MNT}/{name}"]
        for step in (["status", "--porcelain"],
                     ["commit", "-q", "--allow-empty", "-m", f"host {number}"]):
            self.said(git + step, f"git {step} in {name}")
        script = (f"test \"$(git log -1 --format=%s)\" = 'host {number}'; "
                  f"git status --porcelain >/dev/null; git commit -q --allow-empty -m inside")
        self.said([TOOL, "exec", f"{MNT}/{name}/ctl/exec", "sh", "-ec", script],
                  f"git by a command in {name}")
        last = self.said(git + ["log", "-1", "--format=%s"], f"git log in {name}")
        self.check(last == "inside\n", f"the host does not see the commit in {name}: {last}")


def mounts():
    return sum(ROOM + "/" in line for line in open("/proc/self/mountinfo"))


def lines(*command):
    return subprocess.check_output(command, text=True).splitlines()


def end_mount():
    """What a failure leaves mounted would keep the case from ending."""
    if mounts():
        subprocess.call(["fusermount3", "-u", "-z", MNT], stderr=subprocess.DEVNULL)
