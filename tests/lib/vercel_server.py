#!/usr/bin/env python3
"""Vercel's API for sandboxes on the loopback, with and without /api in front of its paths. Prints
its port and serves until its stdin ends.

vercel_server.py DIR KEY [TEAM [PROJECT]]: sandboxes are below DIR; who has KEY may come, for the
project "prj_test" of the team "team_test" unless others are named.

Each request is held against the table of vercel_server_api.py, and each answer too; what does not
agree is a violation. Tests speak to it at /control, without a key:

  GET  /control/count/OP      how many requests the operation had; OP all: all of them together
  GET  /control/log           a line for each: operation, whose, status
  GET  /control/violations    a line for each; empty is good
  GET  /control/living        the names of the sandboxes that there are
  GET  /control/root/NAME     the directory of one
  GET  /control/session/NAME  the id of its session
  GET  /control/box/NAME      what was asked for when it was made
  GET  /control/commands/NAME what was run in it, a line of JSON each
  POST /control/reset         forgets counts, faults and switches; keeps sandboxes
  POST /control/clear         the same of violations, and deletes all sandboxes
  POST /control/state         {"name": N, "to": stopped|failed|deleted, "waits": N}: what stops is
                              on its way for so many requests
  POST /control/switch        members: pending (looks that find a new session on its way), clones
                              (outside, or inside: through the firewall of the sandbox),
                              leaves_token (in the remote of a clone), echoes_policy, most_ms (of a
                              session's life), vanish (looks that do not find a new sandbox yet),
                              page
  POST /control/fault         {"op": OP or api, "fault": F, "times": N, "skip": N, ...}

The faults; those that end in "after" have done what was asked:

  lost            after: the connection is reset      reset    before
  stall           nothing is answered                 stall_after
  cut             after: half of the answer, or LINES of a stream, and the connection is reset
  end             of a stream: it ends behind LINES   quiet    nothing comes behind LINES
  error           of a stream: LINES, and that it was closed
  bytes           after: a byte a packet
  status          STATUS with no body, or BODY        html     200 with a page
  answer          200 with BODY as JSON               answer_after
  later           429 with Retry-After: SECONDS
  echo            400 with the request's credentials in its message
  gone            the sandbox is deleted before       asleep   it is stopped before
  stopping        422 before it is stopped
"""
import atexit
import io
import json
import os
import socket
import stat
import struct
import sys
import tarfile
import threading
import urllib.parse

import loopback
import shapes
import vercel_server_api as api
from vercel_server_boxes import Boxes, Refused, policy_shown

top, key = sys.argv[1:3]
team, project = (sys.argv[3:] + ["team_test", "prj_test"][len(sys.argv[3:]):])[:2]
SWITCHES = {"pending": 0, "clones": "outside", "leaves_token": True, "echoes_policy": True,
            "most_ms": 86400000, "vanish": 0, "page": 50}
BEFORE = ("later", "status", "html", "answer", "stall", "reset", "echo")


class Store:
    """What the server knows. Its lock is held shortly."""

    def __init__(self):
        self.lock = threading.Lock()
        self.boxes = Boxes(top)
        self.violations = []
        self.reset()

    def reset(self):
        self.log, self.faults, self.switches = [], [], dict(SWITCHES)

    def fault(self, op):
        """The one that the next request of the operation meets, or None."""
        with self.lock:
            for fault in self.faults:
                if fault["op"] not in (op, "api") or fault["times"] == 0:
                    continue
                if fault["skip"]:
                    fault["skip"] -= 1
                    return None
                fault["times"] -= 1
                return fault
        return None


store = Store()


class Dropped(Exception):
    """The connection is to be reset."""


class Stream:
    """An answer of lines of JSON, as they come."""

    def __init__(self, lines):
        self.lines = lines


def bad(message):
    return Refused(400, "bad_request", "Invalid request: " + message)


# ---- sandboxes ----

def denied(policy):
    return policy and policy["mode"] != "allow-all"


def fill(box, source):
    if source["type"] == "snapshot":
        store.boxes.restore(box, source["snapshotId"])
    elif source["type"] != "git":
        raise bad("no tarball is fetched here")
    elif store.switches["clones"] == "inside" and denied(box.policy):
        host = urllib.parse.urlsplit(source["url"]).hostname
        if host not in box.policy.get("allowedDomains", ()):
            raise Refused(400, "bad_request", "Failed to clone the repository: no such host")
        box.clone(source, store.switches["leaves_token"])
    else:
        box.clone(source, store.switches["leaves_token"])


def check_create(body):
    vcpus = body.get("resources", {}).get("vcpus", 2)
    if vcpus != 1 and vcpus % 2:
        raise bad("`resources.vcpus` should be 1 or even.")
    if body.get("resources", {}).get("memory", vcpus * 2048) != vcpus * 2048:
        raise bad("`resources.memory` should be 2048 for each vcpu.")
    for what, most in (("ports", 15), ("tags", 5)):
        if len(body.get(what, ())) > most:
            raise bad(f"`{what}` should NOT have more than {most} items.")
    if "runtime" in body and ("image" in body or "snapshotId" in body.get("source", {})):
        raise bad("`runtime` should NOT be there with `image` or a snapshot.")
    if body.get("region") and body["region"] in body.get("failoverRegions", ()):
        raise bad("`failoverRegions` should NOT contain `region`.")


def handle_create(request, origin=None):
    body = request.json
    check_create(body)
    if origin is None and "projectId" not in body:
        request.violation("it names no project")
    if body.get("projectId", project) != project:
        raise Refused(404, "not_found", "Project not found.")
    box = store.boxes.add(body, project)
    try:
        os.makedirs(box.cwd)
        if origin:
            store.boxes.restore(box, origin)
        elif "source" in body:
            fill(box, body["source"])
    except Refused:
        box.delete()
        raise
    box.hidden = store.switches["vanish"]
    session = box.begin("pending" if store.switches["pending"] else "running")
    session.waits = store.switches["pending"] - 1
    return 200, box.whole()


def handle_create_runtime(request):
    if request.json.get("runtime", "python3.13") not in ("node22", "node24", "node26",
                                                          "python3.13"):
        raise bad("`runtime` should be one of node22, node24, node26, python3.13.")
    return handle_create(request)


def handle_fork(request):
    old = store.boxes.named(request.words[0])
    keep = ("ports", "timeout", "resources", "runtime", "image", "persistent", "networkPolicy",
            "env", "tags", "region")
    request.json = {**{k: old.body[k] for k in keep if k in old.body}, **request.json}
    snapshot = store.boxes.snapshot(old.session)
    return handle_create(request, snapshot["id"])


def named(request):
    box = store.boxes.named(request.words[0])
    if getattr(box, "hidden", 0) > 0:
        box.hidden -= 1
        raise Refused(404, "not_found", "Named sandbox '%s' not found for this project."
                      % box.name)
    return box


def handle_look(request):
    box, resumed = named(request), {}
    box.session.looked_at()
    if dict(request.query).get("resume") == "true":
        resumed = {"resumed": box.resume()}
    return 200, box.whole(**resumed)


def handle_list(request):
    query = dict(request.query)
    by = query.get("sortBy", "createdAt")
    if "namePrefix" in query and by != "name":
        raise bad("`namePrefix` is for `sortBy=name`.")
    key_, _, value = query.get("tags", "").partition(":")
    found = [b for b in store.boxes.living() if b.sessions
             and b.name.startswith(query.get("namePrefix", ""))
             and (not key_ or b.tags.get(key_) == value)]
    found.sort(key=lambda b: (b.name if by == "name" else b.created, b.number),
               reverse=query.get("sortOrder", "desc") == "desc")
    items, pagination = paged(found, query)
    return 200, {"sandboxes": [b.shown() for b in items], "pagination": pagination}


def paged(found, query):
    page = min(int(query.get("limit", 20)), store.switches["page"])
    at = int(query.get("cursor", "0"))
    items = found[at:at + page]
    more = str(at + page) if len(found) > at + page else None
    return items, {"count": len(items), "next": more}


def handle_update(request):
    box, body = named(request), request.json
    if "networkPolicy" in body:
        box.policy = policy_shown(body["networkPolicy"])
    box.tags = body.get("tags", box.tags)
    box.timeout = body.get("timeout", box.timeout)
    box.ports = body.get("ports", box.ports)
    box.persistent = body.get("persistent", box.persistent)
    return 200, {"sandbox": box.shown()}


def handle_delete(request):
    box = named(request)
    if box.session.status == "stopping":
        box.session.check()
    shown = {**box.shown(), "status": "stopped"}
    box.delete()
    return 200, {"sandbox": shown}


# ---- sessions ----

def session_of(request, may_be_stopped=False):
    session = store.boxes.session(request.words[0])
    if not may_be_stopped:
        session.check()
    return session


def handle_session(request):
    session = session_of(request, True)
    session.looked_at()
    return 200, {"session": session.shown(), "routes": session.box.routes()}


def handle_sessions(request):
    query = dict(request.query)
    found = [s for b in store.boxes.living() for s in b.sessions
             if query.get("name") in (None, b.name)]
    items, pagination = paged(found[::-1], query)
    return 200, {"sessions": [s.shown() for s in items], "pagination": pagination}


def handle_stop(request):
    session = session_of(request, True)
    session.stop()
    return 200, {"session": session.shown(), "sandbox": session.box.shown()}


def handle_extend(request):
    session = session_of(request)
    if session.life + request.json["duration"] > store.switches["most_ms"]:
        raise bad("the timeout would be longer than your plan allows.")
    session.life += request.json["duration"]
    session.set_timer()
    return 200, {"session": session.shown()}


def handle_snapshot(request):
    session = session_of(request)
    made = store.boxes.snapshot(session)
    session.stop(1, saved=True)
    session.status = "snapshotting"
    return 201, {"snapshot": made, "session": session.shown()}


def handle_snapshots(request):
    items, pagination = paged(list(store.boxes.snapshots.values()), dict(request.query))
    return 200, {"snapshots": items, "pagination": pagination}


def handle_snapshot_look(request):
    if request.words[0] not in store.boxes.snapshots:
        raise Refused(404, "not_found", "Snapshot not found.")
    return 200, {"snapshot": store.boxes.snapshots[request.words[0]]}


def handle_snapshot_delete(request):
    return 200, {"snapshot": store.boxes.delete_snapshot(request.words[0])}


def handle_policy(request):
    session = session_of(request)
    session.policy = policy_shown(request.json)
    return 200, {"session": session.shown()}


# ---- commands ----

def handle_run(request):
    command = session_of(request).run(request.json)
    if not request.json.get("wait"):
        return 200, {"command": command.shown(False)}
    return 200, Stream(waited(command, request.json.get("logs")))


def waited(command, logs):
    yield {"command": command.shown(False)}
    for line in command.follow():
        if logs:
            yield line
    if command.session.status != "running":
        yield {"stream": "error", "data": {
            "code": "sandbox_stream_closed",
            "message": "Sandbox stream was closed and is not accepting commands."}}
    else:
        yield {"command": command.shown()}


def command_of(request):
    session = session_of(request)
    try:
        return session.commands[request.words[1]]
    except KeyError:
        raise Refused(404, "not_found", "Command not found.") from None


def handle_commands(request):
    return 200, {"commands": [c.shown() for c in session_of(request).commands.values()]}


def handle_command(request):
    command = command_of(request)
    if dict(request.query).get("wait") == "true":
        for _ in command.follow():
            pass
    return 200, {"command": command.shown()}


def handle_logs(request):
    return 200, Stream(command_of(request).follow())


def handle_kill(request):
    command = command_of(request)
    shown = command.shown()
    command.signal(request.json["signal"])
    return 200, {"command": shown}


# ---- files ----

def place(request, session, text, cwd=None):
    path = session.box.path(text, cwd)
    if not path:
        request.violation(f"the path {text!r:.80} is not of the sandbox")
        raise Refused(400, "file_error", "error opening file: Permission denied")
    return path


def handle_write(request):
    session = session_of(request)
    where = request.headers.get("x-cwd") or session.cwd
    try:
        with tarfile.open(fileobj=io.BytesIO(request.body), mode="r:gz") as tar:
            for item in tar:
                if not item.isfile():
                    request.violation(f"{item.name!r:.60} is no regular file")
                    raise Refused(400, "file_error", "error writing file")
                path = place(request, session, item.name, where)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if os.path.lexists(path):
                    os.unlink(path)
                with open(path, "wb") as f:
                    f.write(tar.extractfile(item).read())
                os.chmod(path, stat.S_IMODE(item.mode))
    except (tarfile.TarError, EOFError, OSError) as e:
        raise Refused(400, "file_error", f"error writing file: {e}") from None
    return 200, {}


def handle_read(request):
    session = session_of(request)
    try:
        with open(place(request, session, request.json["path"], request.json.get("cwd")),
                  "rb") as f:
            request.answer_type = "application/octet-stream"
            return 200, f.read()
    except OSError:
        raise Refused(404, "not_found", "File not found.") from None


def handle_mkdir(request):
    session, body = session_of(request), request.json
    path = place(request, session, body["path"], body.get("cwd"))
    try:
        if body.get("recursive"):
            os.makedirs(path, exist_ok=True)
        else:
            os.mkdir(path)
    except FileExistsError:
        raise Refused(400, "file_error",
                      f"error creating directory: {path}: File exists") from None
    except FileNotFoundError:
        raise Refused(400, "file_error",
                      "error creating directory: No such file or directory") from None
    return 200, {}


# ---- what tests say ----

def control_get(words):
    word, *more = words
    with store.lock:
        if word == "count":
            return str(sum(more[0] in ("all", line[0]) for line in store.log))
        if word == "log":
            return "".join("%s %s %s\n" % line for line in store.log)
        if word == "violations":
            return "".join(line + "\n" for line in store.violations)
    if word == "living":
        return "".join(box.name + "\n" for box in store.boxes.living())
    box = store.boxes.named(more[0])
    if word == "root":
        return box.root
    if word == "session":
        return box.session.id
    if word == "box":
        return json.dumps({**box.body, "policyNow": box.session.policy}, sort_keys=True)
    if word == "commands":
        return "".join(json.dumps(c.body) + "\n" for s in box.sessions
                       for c in s.commands.values())
    raise Refused(404, "not_found", "no such control")


def control_post(word, body):
    if word == "reset":
        with store.lock:
            store.reset()
    elif word == "clear":
        for box in store.boxes.living():
            box.delete()
        with store.lock:
            store.reset()
            store.violations = []
    elif word == "switch":
        assert set(body) <= set(SWITCHES)
        store.switches.update(body)
    elif word == "fault":
        with store.lock:
            store.faults.append({"times": 1, "skip": 0, "lines": 1, **body})
    elif word == "state":
        set_state(store.boxes.named(body["name"]), body["to"], body.get("waits", 0))
    else:
        raise Refused(404, "not_found", "no such control")


def set_state(box, to, waits=0):
    if to == "deleted":
        box.delete()
    else:
        box.session.stop(waits)
        if to == "failed":
            box.session.status, box.persistent = "failed", False


# ---- requests ----

class Handler(loopback.Handler):
    wbufsize = -1
    disable_nagle_algorithm = True

    def violation(self, text):
        with store.lock:
            store.violations.append(f"{self.command} {self.path}: {text}")

    def read_body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        if len(data) < length:
            raise Dropped  # who sent it was killed meanwhile
        return data

    def serve(self):
        self.answer_type = "application/json; charset=utf-8"
        path, _, query = self.path.partition("?")
        self.query = urllib.parse.parse_qsl(query, keep_blank_values=True)
        try:
            self.body = self.read_body()
            if path.startswith("/control/"):
                self.serve_control(path.split("/")[2:])
            else:
                self.serve_operation(path[4:] if path.startswith("/api/") else path)
        except Dropped:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()

    def serve_control(self, words):
        try:
            if self.command == "GET":
                text = control_get(words)
            else:
                control_post(words[0], json.loads(self.body or b"{}"))
                text = ""
            self.reply(200, [("Content-Type", "text/plain")], text.encode())
        except Refused as e:
            self.reply(e.status, [], e.message.encode())

    # ---- one operation ----

    def serve_operation(self, path):
        found = shapes.find(api.TABLE, self.command, path)
        if not found:
            self.violation("there is no such operation")
            self.send(404, self.refusal(Refused(404, "not_found", "Not found")), None)
            return
        self.op, self.words = found[0], tuple(map(urllib.parse.unquote, found[1]))
        self.table = api.TABLE[self.op]
        fault = store.fault(self.op)
        if fault and fault["fault"] in BEFORE:
            self.meet(fault)
            return
        if fault and fault["fault"] in ("gone", "asleep", "stopping"):
            self.disturb(fault["fault"])
        status, made = self.outcome()
        self.note(status)
        self.send(status, made, fault)

    def note(self, status):
        whose = self.words[0] if self.words else "-"
        with store.lock:
            store.log.append((self.op, whose, status))

    def outcome(self):
        try:
            self.check_request()
            status, made = globals()["handle_" + self.op](self)
        except Refused as e:
            return e.status, self.refusal(e)
        if self.table.answer is not None:
            if complaint := shapes.wrong(made, self.table.answer, "the server's own answer"):
                self.violation(complaint)
        return status, made

    def check_request(self):
        self.check_headers()
        if complaint := shapes.wrong_query(self.query, self.table.query):
            self.violation(complaint)
        if not self.query or self.query[0] != ("teamId", team):
            raise Refused(403, "forbidden", "Not authorized")
        for name in ("project", "projectId"):
            if dict(self.query).get(name, project) != project:
                raise Refused(404, "not_found", "Project not found.")
            if name + "?" in self.table.query and name not in dict(self.query):
                self.violation("it names no project")
        if self.table.body is None:
            if self.body:
                self.violation("it has a body")
        elif self.table.body != api.DATA:
            self.check_body()

    def check_body(self):
        try:
            self.json = json.loads(self.body)
        except ValueError:
            self.violation("its body is no JSON")
            raise bad("no JSON") from None
        if complaint := shapes.wrong(self.json, self.table.body):
            self.violation(complaint)
            raise bad(complaint)

    def check_headers(self):
        h = self.headers
        want = "application/gzip" if self.table.body == api.DATA else "application/json"
        if h.get("Content-Type") != want:
            self.violation(f"its content type is {h.get('Content-Type')!r:.60}")
        if h.get("Expect"):
            self.violation("it expects a continue")
        if not h.get("User-Agent"):
            self.violation("there is no User-Agent")
        if h.get("Authorization") != "Bearer " + key:
            raise Refused(403, "forbidden", "Not authorized")

    def refusal(self, e):
        if e.code is None:
            return None
        return {"error": {"code": e.code, "message": e.message}}

    # ---- answers ----

    def encode(self, made):
        if made is None or isinstance(made, bytes):
            return made or b""
        if isinstance(made, dict) and "sandbox" in made:
            made = {**made, "addedLater": {"any": [1, None]}}
            if not store.switches["echoes_policy"]:
                for part in ("sandbox", "session"):
                    made[part] = {k: v for k, v in made.get(part, {}).items()
                                  if k != "networkPolicy"}
        return json.dumps(made, separators=(",", ":")).encode()

    def send(self, status, made, fault):
        how = fault["fault"] if fault else ""
        if how == "lost":
            raise Dropped
        if isinstance(made, Stream):
            self.send_stream(made, fault)
            return
        body = self.encode(made)
        headers = [("Content-Type", self.answer_type)] if body else []
        headers += [("x-ratelimit-limit", "1000"), ("x-ratelimit-remaining", "999")]
        if how == "stall_after":
            self.hang()
        elif how == "answer_after":
            self.reply(status, headers, fault["body"].encode())
        elif how == "cut":
            self.start_reply(status, headers, max(len(body), 2))
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            raise Dropped
        elif how == "bytes":
            self.start_reply(status, headers, len(body))
            for i in range(len(body)):
                self.wfile.write(body[i:i + 1])
                self.wfile.flush()
        else:
            self.reply(status, headers, body)

    def start_reply(self, status, headers, length):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.flush()

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def send_stream(self, made, fault):
        how, left = (fault["fault"], fault["lines"]) if fault else ("", -1)
        if how == "stall_after":
            self.hang()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for line in made.lines:
            if left == 0 and how in ("cut", "end", "quiet", "error"):
                self.break_stream(how)
                return
            left -= 1
            data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
            pieces = [data] if how != "bytes" else [data[i:i + 1] for i in range(len(data))]
            for piece in pieces:
                self.chunk(piece)
        self.chunk(b"")

    def break_stream(self, how):
        if how == "cut":
            raise Dropped
        if how == "quiet":
            self.hang()
            return
        if how == "error":
            self.chunk(b'{"stream":"error","data":{"code":"sandbox_stream_closed","message":'
                       b'"Sandbox stream was closed and is not accepting commands."}}\n')
        self.chunk(b"")

    # ---- faults before anything is done ----

    def disturb(self, how):
        try:
            box = store.boxes.named(self.words[0])
        except Refused:
            box = store.boxes.session(self.words[0]).box
        set_state(box, "deleted" if how == "gone" else "stopped", how == "stopping")

    def meet(self, fault):
        how = fault["fault"]
        if how in ("reset", "stall"):
            self.note(0)
            if how == "reset":
                raise Dropped
            self.hang()
        elif how == "echo":
            text = self.headers["Authorization"] + " " + self.body.decode("utf-8", "replace")
            self.note(400)
            self.send(400, self.refusal(bad("I got " + text)), None)
        elif how == "later":
            self.note(429)
            body = self.encode(self.refusal(Refused(429, "rate_limited", "Too many requests")))
            self.reply(429, [("Content-Type", self.answer_type),
                             ("Retry-After", str(fault.get("seconds", 1)))], body)
        elif how == "status":
            self.note(fault["status"])
            self.reply(fault["status"], [("Content-Type", "application/json; charset=utf-8")],
                       fault.get("body", "").encode())
        elif how == "html":
            self.note(200)
            self.reply(200, [("Content-Type", "text/html")], b"<!doctype html><title>V</title>")
        else:
            self.note(200)
            self.reply(200, [("Content-Type", self.answer_type)], fault["body"].encode())

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = serve


@atexit.register
def end_all():
    for box in store.boxes.living():
        box.delete()


loopback.serve(Handler)
