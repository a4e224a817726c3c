"""Sandboxes of the loopback Vercel: records, which have names, and their sessions, which have ids;
each a directory below the server's, in which commands really run.

A session's cwd is DIR/N/vercel, or DIR/N/vercel/sandbox with one of the older runtimes; the home of
its user is the same. Paths of requests are those of this machine, and lie below DIR/N, or in the
directory that OUTSIDE names for a sandbox.
"""
import codecs
import os
import random
import shutil
import signal
import string
import subprocess
import threading
import time

OUTSIDE = "/var/tmp/sandboxfs-%s"
LETTERS = string.ascii_letters + string.digits
MARK = "VERCEL_SANDBOX_BOX"
DRAIN_S = 0.2  # for output of what a command has left behind


class Refused(Exception):
    """STATUS, a code and a sentence, as Vercel says them; CODE None: no body."""

    def __init__(self, status, code, message=""):
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def now():
    return int(time.time() * 1000)


def new_id(prefix, letters=LETTERS):
    return prefix + "".join(random.choices(letters, k=28))


def stopped():
    return Refused(410, "sandbox_stopped",
                   "Sandbox has stopped execution and is no longer available")


def mark(number):
    """Of the processes of a box, which other servers have as well."""
    return f"{os.getpid()}-{number}"


def end_processes(number):
    """By a marker in their environment, as some are in sessions of their own."""
    text = f"{MARK}={mark(number)}".encode()
    for _ in range(3):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if text in f.read().split(b"\0"):
                        os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass


class Command:
    """A process, and the lines of its output, which any number of readers follow."""

    def __init__(self, session, body, env):
        self.id = new_id("cmd_", "0123456789abcdef")
        self.session, self.body = session, body
        self.started, self.ended, self.code = now(), None, None
        self.lines, self.changed = [], threading.Condition()
        self.cwd = body.get("cwd") or session.cwd
        program = shutil.which(body["command"], path=env["PATH"])
        if not program:
            raise Refused(400, "executable_not_found",
                          "[invalid_argument] executable file not found in $PATH: "
                          + body["command"])
        try:
            self.process = subprocess.Popen(
                [body["command"], *body.get("args", ())], executable=program, cwd=self.cwd,
                env=env, start_new_session=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as e:
            raise Refused(400, "bad_request", f"[invalid_argument] {e.strerror}") from None
        readers = [threading.Thread(target=self.read, args=pair, daemon=True) for pair in
                   ((self.process.stdout, "stdout"), (self.process.stderr, "stderr"))]
        for thread in readers:
            thread.start()
        threading.Thread(target=self.wait, args=(readers,), daemon=True).start()
        if body.get("timeout"):
            timer = threading.Timer(body["timeout"] / 1000, self.signal, (signal.SIGKILL,))
            timer.daemon = True
            timer.start()

    def read(self, stream, name):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := os.read(stream.fileno(), 65536):
            self.add(name, decoder.decode(data))
        self.add(name, decoder.decode(b"", True))

    def add(self, name, text):
        with self.changed:
            if text and self.code is None:
                self.lines.append({"data": text, "stream": name})
                self.changed.notify_all()

    def wait(self, readers):
        code = self.process.wait()
        until = time.monotonic() + DRAIN_S
        for thread in readers:
            thread.join(max(0, until - time.monotonic()))
        with self.changed:
            self.code = 128 - code if code < 0 else code
            self.ended = now()
            self.changed.notify_all()

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def shown(self, ended=True):
        done = ended and self.code is not None
        made = {"id": self.id, "name": self.body["command"], "args": self.body.get("args", []),
                "cwd": self.cwd, "sessionId": self.session.id, "startedAt": self.started,
                "exitCode": self.code if done else None}
        if done:
            made["durationMs"] = self.ended - self.started
        return made

    def follow(self):
        """Each line, and then the end."""
        at = 0
        while True:
            with self.changed:
                self.changed.wait_for(lambda: len(self.lines) > at or self.code is not None)
                found, done = self.lines[at:], self.code is not None
            at += len(found)
            yield from found
            if done:
                return


class Session:
    """One run of a box. STATUS is pending, running, stopping, snapshotting, stopped, failed..."""

    def __init__(self, box, status="running"):
        self.id = new_id("sbx_")
        self.box, self.status = box, status
        self.waits = 0  # how many requests find it on its way
        self.born = self.started = now()
        self.stopped = None
        self.life = box.timeout
        self.cwd = box.cwd
        self.policy = box.policy
        self.commands = {}
        self.timer = None
        self.set_timer()

    def set_timer(self):
        if self.timer:
            self.timer.cancel()
        left = (self.started + self.life - now()) / 1000
        self.timer = threading.Timer(max(left, 0), self.stop)
        self.timer.daemon = True
        self.timer.start()

    def looked_at(self):
        """A look moves what is on its way."""
        if self.status in ("pending", "stopping", "snapshotting"):
            self.waits -= 1
            if self.waits < 0:
                self.status = "running" if self.status == "pending" else "stopped"

    def stop(self, waits=0, saved=False):
        with self.box.lock:
            if self.status not in ("running", "pending"):
                return
            self.timer.cancel()
            self.status, self.waits = "stopping", 1 << 60
            self.stopped = now()
        end_processes(self.box.number)
        if self.box.persistent and not saved:
            self.box.boxes.snapshot(self)
        elif not self.box.persistent:
            self.box.clear()
        self.status, self.waits = "stopping" if waits else "stopped", waits

    def check(self):
        """Refuses what needs a session that runs."""
        if self.status in ("stopping", "snapshotting"):
            refused = Refused(422, "sandbox_" + self.status, f"Sandbox is {self.status}.")
            self.looked_at()
            raise refused
        if self.status not in ("running", "pending"):
            raise stopped()

    def run(self, body):
        command = Command(self, body, self.box.env(body))
        self.commands[command.id] = command
        return command

    def shown(self):
        made = {"id": self.id, "memory": self.box.vcpus * 2048, "vcpus": self.box.vcpus,
                "region": self.box.region, "timeout": self.life, "status": self.status,
                "requestedAt": self.born, "startedAt": self.started, "createdAt": self.born,
                "updatedAt": now(), "cwd": self.cwd, "architecture": "amd64",
                "sourceSandboxName": self.box.name, "projectId": self.box.project}
        if self.policy is not None:
            made["networkPolicy"] = self.policy
        if self.stopped:
            made["stoppedAt"] = self.stopped
        return made


def policy_shown(policy):
    """As answers have it."""
    if not policy or "mode" in policy:
        return policy
    made = {"mode": "custom", "allowedDomains": list(policy.get("allow", ()))}
    for key, name in (("allow", "allowedCIDRs"), ("deny", "deniedCIDRs")):
        if key in policy.get("subnets", {}):
            made[name] = policy["subnets"][key]
    return made


class Box:
    def __init__(self, boxes, number, body, project):
        self.lock = threading.Lock()
        self.boxes, self.number, self.body, self.project = boxes, number, body, project
        self.name = body.get("name") or new_id("box-", string.ascii_lowercase)
        self.persistent = body.get("persistent", True)
        self.vcpus = body.get("resources", {}).get("vcpus", 2)
        self.region = body.get("region", "iad1")
        self.timeout = body.get("timeout", 300000)
        self.tags = body.get("tags", {})
        self.policy = policy_shown(body.get("networkPolicy"))
        self.ports = body.get("ports", [])
        self.created = self.updated = now()
        self.snapshot_id = None
        self.gone = False
        self.root = f"{boxes.top}/{number}"
        self.outside = OUTSIDE % self.name
        self.cwd = self.root + "/vercel" + ("/sandbox" if "runtime" in body else "")
        self.sessions = []

    def begin(self, status="running"):
        os.makedirs(self.cwd, exist_ok=True)
        os.makedirs(self.root + "/root", exist_ok=True)
        self.sessions.append(Session(self, status))
        return self.session

    @property
    def session(self):
        return self.sessions[-1]

    def resume(self):
        """Whether a session had to be started."""
        self.session.looked_at()
        if self.session.status in ("pending", "running", "stopping", "snapshotting"):
            return False
        if not self.persistent:
            raise Refused(400, "snapshot_not_found",
                          "Cannot resume sandbox: no snapshot available.")
        self.begin()
        return True

    def env(self, body):
        own = {"PATH": os.environ["PATH"], "USER": "vercel-sandbox", "LANG": "C.UTF-8",
               "HOME": self.root + "/root" if body.get("sudo") else self.cwd,
               "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0", MARK: mark(self.number)}
        own.update(self.body.get("env", {}))
        own.update(body.get("env", {}))
        return own

    def path(self, text, cwd=None):
        """The path that TEXT means; None: it is no place of this sandbox."""
        path = os.path.normpath(os.path.join(cwd or self.cwd, text))
        inside = any((path + "/").startswith(top + "/") for top in (self.root, self.outside))
        return path if inside else None

    def clear(self):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.outside, ignore_errors=True)

    def delete(self):
        self.gone = True
        if self.sessions:
            self.session.stop()
        end_processes(self.number)
        self.clear()

    def routes(self):
        return [{"url": f"https://sb-{self.number:012}-{p}.vercel.run",
                 "subdomain": f"sb-{self.number:012}-{p}", "port": p} for p in self.ports]

    def shown(self):
        made = {"name": self.name, "persistent": self.persistent, "createdAt": self.created,
                "updatedAt": self.updated, "currentSessionId": self.session.id,
                "status": self.session.status, "statusUpdatedAt": self.session.born,
                "region": self.region, "failoverRegions": [], "vcpus": self.vcpus,
                "memory": self.vcpus * 2048, "timeout": self.timeout, "cwd": self.cwd,
                "tags": self.tags, "architecture": "amd64", "totalActiveCpuDurationMs": 1500}
        made["runtime" if "runtime" in self.body else "image"] = self.body.get(
            "runtime", "vercel/sandbox/universal@sha256:00")
        if self.policy is not None:
            made["networkPolicy"] = self.policy
        if self.session.status == "running":
            made["expiresAt"] = self.session.started + self.session.life
        if self.snapshot_id:
            made["currentSnapshotId"] = self.snapshot_id
        return made

    def whole(self, **more):
        return {"sandbox": self.shown(), "session": self.session.shown(),
                "routes": self.routes(), **more}

    # ---- git ----

    def clone(self, source, leaves_token):
        """The service's own git: it is not held up by the firewall of the sandbox."""
        env, url = self.env({}), source["url"]
        if source.get("password"):
            url = url.replace("://", "://%s:%s@" % (source["username"], source["password"]))
        words = ["git", "clone", "-q"]
        if source.get("depth"):
            words += ["--depth", str(source["depth"])]
        done = subprocess.run([*words, "--", url, self.cwd], env=env, capture_output=True,
                              cwd=self.root, check=False)
        if done.returncode == 0 and source.get("revision"):
            done = subprocess.run(["git", "checkout", "-q", source["revision"], "--"], env=env,
                                  cwd=self.cwd, capture_output=True, check=False)
        if done.returncode:
            text = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise Refused(400, "bad_request", "Failed to clone the repository: " + "".join(text))
        if not leaves_token:
            subprocess.run(["git", "remote", "set-url", "origin", source["url"]], env=env,
                           cwd=self.cwd, check=True)


class Boxes:
    def __init__(self, top):
        self.top = top
        self.all = []
        self.snapshots = {}
        self.lock = threading.Lock()

    def add(self, body, project):
        with self.lock:
            if any(b.name == body.get("name") for b in self.living()):
                raise Refused(409, "conflict",
                              f"A sandbox named '{body['name']}' exists already.")
            box = Box(self, len(self.all) + 1, body, project)
            self.all.append(box)
            return box

    def living(self):
        return [b for b in self.all if not b.gone]

    def named(self, name):
        for box in self.living():
            if box.name == name and box.sessions:
                return box
        raise Refused(404, "not_found", f"Named sandbox '{name}' not found for this project.")

    def session(self, word):
        for box in self.all:
            for session in box.sessions:
                if session.id == word:
                    if box.gone:
                        raise stopped()
                    return session
        raise Refused(404, "not_found", "Session not found.")

    # ---- snapshots ----

    def snapshot(self, session):
        made = {"id": new_id("snap_"), "sourceSessionId": session.id, "region": "iad1",
                "status": "created", "sizeBytes": 4096, "createdAt": now(), "updatedAt": now(),
                "creationMethod": "manual"}
        shutil.copytree(session.box.cwd, f"{self.top}/{made['id']}", symlinks=True)
        session.box.snapshot_id = made["id"]
        self.snapshots[made["id"]] = made
        return made

    def restore(self, box, snapshot_id):
        if snapshot_id not in self.snapshots:
            raise Refused(410, "snapshot_not_found", "Snapshot not found.")
        shutil.copytree(f"{self.top}/{snapshot_id}", box.cwd, symlinks=True, dirs_exist_ok=True)

    def delete_snapshot(self, snapshot_id):
        if snapshot_id not in self.snapshots:
            raise Refused(404, "not_found", "Snapshot not found.")
        shutil.rmtree(f"{self.top}/{snapshot_id}", ignore_errors=True)
        return {**self.snapshots.pop(snapshot_id), "status": "deleted"}
