"""Sandboxes of the loopback Daytona: their records, as the control plane has them, and directories
below the server's, in which commands really run.

A sandbox's home is DIR/ID/home/daytona: the toolbox says so when it is asked, and refuses any path
that is not below DIR/ID.
"""
import datetime
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid

SIZES = {"daytona-small": (1, 1, 3), "daytona-medium": (2, 4, 8), "daytona-large": (4, 8, 10)}
REGIONS = {"us", "eu"}


class Refused(Exception):
    """STATUS and a sentence; CODE is what newer servers call it."""

    def __init__(self, status, message, code=None):
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def end_marked(pid, mark):
    """Whether there was such a process to end."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            if mark not in f.read().split(b"\0"):
                return False
        os.kill(int(pid), signal.SIGKILL)
    except (OSError, ValueError):
        return False
    return True


class Box:
    def __init__(self, top, body, era):
        self.id = str(uuid.uuid4())
        self.name = body.get("name") or self.id
        self.body = body
        self.era = era
        self.state, self.desired, self.reason = "creating", "started", None
        self.waits = 0  # how many looks find it on its way, before it is started
        self.created = self.active = now()
        self.blocked = body.get("networkBlockAll", False)
        self.hosts = body.get("domainAllowList")
        self.addresses = body.get("networkAllowList")
        self.root = f"{top}/{self.id}"
        self.home = self.root + "/home/daytona"
        self.lock = threading.Lock()
        self.spawned = False  # ever
        self.sessions = {}
        os.makedirs(self.home)

    # ---- as the control plane shows it ----

    def item(self, url):
        cpu, memory, disk = SIZES.get(self.body.get("snapshot", "daytona-medium"), (
            self.body.get("cpu", 1), self.body.get("memory", 1), self.body.get("disk", 3)))
        shown = {
            "id": self.id, "organizationId": "0b1c7f0e-0000-4000-8000-000000000001",
            "name": self.name, "user": "daytona", "labels": self.body.get("labels", {}),
            "public": False, "target": self.body.get("target", "us"), "cpu": cpu, "gpu": 0,
            "memory": memory, "disk": disk, "state": self.state, "desiredState": self.desired,
            "errorReason": self.reason, "recoverable": False, "backupState": "None",
            "autoStopInterval": self.body.get("autoStopInterval", 15),
            "autoArchiveInterval": self.body.get("autoArchiveInterval", 10080),
            "autoDeleteInterval": self.body.get("autoDeleteInterval", -1),
            "sandboxClass": "container", "createdAt": self.created, "updatedAt": now(),
            "lastActivityAt": self.active,
            "daemonVersion": "v0.190.0" if self.era == "v0.190" else "v0.205.1",
            "runnerId": "runner", "toolboxProxyUrl": url,
        }
        if "buildInfo" not in self.body:
            shown["snapshot"] = self.body.get("snapshot", "daytona-medium")
        return shown

    def shown(self, url):
        whole = self.item(url)
        whole.update(networkBlockAll=self.blocked, networkAllowList=self.addresses,
                     domainAllowList=self.hosts, env=self.body.get("env", {}), volumes=[])
        if "buildInfo" in self.body:
            whole["buildInfo"] = {**self.body["buildInfo"], "createdAt": self.created,
                                  "updatedAt": self.created, "snapshotRef": "built"}
            whole["buildInfo"].pop("contextHashes", None)
        return whole

    def ephemeral(self):
        return self.body.get("autoDeleteInterval", -1) == 0

    def looked_at(self):
        """A look moves what is on its way."""
        with self.lock:
            if self.state in ("creating", "starting"):
                self.waits -= 1
                if self.waits < 0:
                    self.state = "error" if self.reason else "started"
            elif self.state == "destroying":
                self.waits -= 1
                if self.waits < 0:
                    self.state = "destroyed"

    def begin_start(self):
        with self.lock:
            if self.state == "started":
                return
            if self.state not in ("stopped", "archived", "paused"):
                raise Refused(409, "Sandbox state change in progress")
            self.state, self.desired, self.waits = "starting", "started", 1

    def stop(self):
        with self.lock:
            if self.state not in ("started", "paused"):
                raise Refused(400, "Sandbox is not started")
            self.state = self.desired = "destroyed" if self.ephemeral() else "stopped"
        self.end_processes()
        if self.ephemeral():
            self.clear()

    def destroy(self, looks=0):
        with self.lock:
            if self.desired == "destroyed" or self.state in ("creating", "starting"):
                raise Refused(409, "Sandbox state change in progress")
            self.desired = "destroyed"
            self.state = "destroying" if looks else "destroyed"
            self.waits = looks
            self.name = "DESTROYED_" + self.name
        self.end_processes()
        self.clear()

    def clear(self):
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- its processes ----

    def env(self, more=()):
        own = {
            "PATH": os.environ["PATH"], "HOME": self.home, "USER": "daytona", "LANG": "C.UTF-8",
            "TMPDIR": self.root, "DAYTONA_SANDBOX_ID": self.id, "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }
        own.update(self.body.get("env", {}))
        own.update(more)
        return own

    def spawn(self, argv, **how):
        with self.lock:
            if self.state != "started":
                raise Refused(502, None)
            process = subprocess.Popen(argv, start_new_session=True, **how)
            self.spawned = True
        return process

    def end_processes(self):
        """By a marker in their environment, as some are in sessions of their own."""
        mark = b"DAYTONA_SANDBOX_ID=" + self.id.encode()
        while self.spawned and any([end_marked(pid, mark) for pid in os.listdir("/proc")]):
            time.sleep(0.01)

    def path(self, text):
        """The path that TEXT means, below the root; else the request is wrong."""
        path = os.path.normpath(os.path.join(self.home, text.strip()))
        return path if path.startswith(self.root + "/") else None


class Boxes:
    def __init__(self, top, era):
        self.top, self.era = top, era
        self.all = {}
        self.lock = threading.Lock()

    def add(self, body):
        with self.lock:
            if any(b.name == body.get("name") for b in self.all.values()):
                raise Refused(409, f"Sandbox with name {body['name']} already exists")
            box = Box(self.top, body, self.era)
            self.all[box.id] = box
            return box

    def named(self, word):
        """By id, or by a name."""
        box = self.all.get(word) or next(
            (b for b in list(self.all.values()) if b.name == word), None)
        if not box or box.state == "destroyed":
            raise Refused(404, f"Sandbox with ID or name {word} not found")
        return box

    def living(self):
        return [b for b in list(self.all.values()) if b.desired != "destroyed"]
