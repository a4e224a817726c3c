#!/usr/bin/env python3
"""Daytona on the loopback: the control plane at /api, and the toolbox of each sandbox at
/toolbox/ID, where commands really run. Prints its port and serves until its stdin ends.

daytona_server.py DIR KEY [ERA]: sandboxes are below DIR; who has KEY may come. ERA is v0.190 or
new, and says which of the daemon's answers are given where they differ.

Each request is held against the table of daytona_server_api.py, and each answer too; what does not
agree is a violation. Tests speak to it at /control, without a key:

  GET  /control/count/OP      how many requests the operation had; OP all: all of them together
  GET  /control/log           a line for each: operation, sandbox, status
  GET  /control/violations    a line for each; empty is good
  GET  /control/living        the names of the sandboxes that there are
  GET  /control/root/NAME     the directory of one
  GET  /control/box/NAME      what was asked for when it was made
  POST /control/reset         forgets counts, faults and switches; keeps sandboxes
  POST /control/clear         removes all sandboxes, forgets violations
  POST /control/state         {"name": N, "to": stopped|started|error|destroyed}
  POST /control/switch        members: create (started, stale, slow, fails, error), looks (of slow:
                              how many find it on its way), proxy_url (field, apart), gone (the
                              status of the toolbox of a sandbox that is no more), vanish (looks
                              that still find one that was deleted), list_lags, page
  POST /control/fault         {"op": OP or api or toolbox, "fault": F, "times": N, "skip": N, ...}

The faults; those that end in "after" have done what was asked:

  lost            after: the connection is reset      reset    before
  stall           nothing is answered                 stall_after
  cut             after: half of the answer           bytes    after: a byte a packet
  status          STATUS with no body, or BODY        html     200 with a page
  answer          200 with BODY as JSON               answer_after
  later           429 with Retry-After-BUCKET: SECONDS
  echo            400 with the request's credentials in its message
  gone            the sandbox is destroyed before     asleep   it is stopped before
"""
import atexit
import base64
import hashlib
import json
import re
import socket
import struct
import sys
import threading
import urllib.parse

import daytona_server_api as api
import daytona_server_toolbox as toolbox
import loopback
from daytona_server_boxes import REGIONS, SIZES, Boxes, Refused, now

top, key = sys.argv[1:3]
era = (sys.argv[3:] or ["v0.190"])[0]
SWITCHES = {"create": "started", "looks": 2, "proxy_url": "field", "gone": 401, "vanish": 0,
            "list_lags": False, "page": 100}
BUCKETS = {"create": "sandbox-create", "delete": "sandbox-lifecycle", "start": "sandbox-lifecycle",
           "stop": "sandbox-lifecycle", "list": "sandbox-list"}
BROWSERS = re.compile("chrome|safari|firefox|edge|mozilla|opera", re.I)
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
FRAME = 100  # bytes, at most 125
REASONS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           408: "Request Timeout", 409: "Conflict", 422: "Unprocessable Entity",
           429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway",
           503: "Service Unavailable"}


class Store:
    """What the server knows. Its lock is held shortly."""

    def __init__(self):
        self.lock = threading.Lock()
        self.boxes = Boxes(top, era)
        self.violations = []
        self.reset()

    def reset(self):
        self.log, self.faults, self.switches = [], [], dict(SWITCHES)

    def fault(self, op, is_toolbox):
        """The one that the next request of the operation meets, or None."""
        groups = (op, "toolbox" if is_toolbox else "api")
        with self.lock:
            for fault in self.faults:
                if fault["op"] not in groups or fault["times"] == 0:
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


# ---- the control plane ----

def refuse_resources(body):
    sizes = [n for n in ("cpu", "gpu", "memory", "disk") if body.get(n)]
    if "buildInfo" in body and "snapshot" in body:
        raise Refused(400, "Cannot specify a snapshot when using a build info entry")
    if "buildInfo" not in body and sizes:
        raise Refused(400, "Cannot specify Sandbox resources when using a snapshot")
    if body.get("snapshot", "daytona-medium") not in SIZES:
        raise Refused(400, f"Snapshot {body['snapshot']} not found. Did you add it?")
    if body.get("target", "us") not in REGIONS:
        raise Refused(404, "Region not found")
    if body.get("autoStopInterval", 0) < 0:
        raise Refused(400, "Auto-stop interval must be a non-negative integer")


def handle_create(request):
    body = request.json
    refuse_resources(body)
    box = store.boxes.add(body)
    how = store.switches["create"]
    if how == "started":
        box.looked_at()
    stale = box.shown(request.toolbox_url())
    if how == "stale":
        box.looked_at()
    elif how == "slow":
        box.waits = store.switches["looks"]
    elif how == "error":
        box.reason = "no runner has room"
    elif how == "fails":
        box.state, box.reason = "error", "no runner has room"
        raise Refused(400, "Sandbox failed to start: no runner has room")
    return 200, stale


def handle_list(request):
    query = dict(request.query)
    labels = json.loads(query.get("labels", "{}"))
    found = sorted((b for b in store.boxes.all.values() if b.state != "destroyed" or
                    store.switches["list_lags"]), key=lambda b: b.id)
    found = [b for b in found if labels.items() <= b.body.get("labels", {}).items()]
    page = min(int(query.get("limit", 100)), store.switches["page"])
    at = int(query.get("cursor", 0))
    more = str(at + page) if len(found) > at + page else None
    items = [b.item(request.toolbox_url()) for b in found[at:at + page]]
    return 200, {"items": items, "nextCursor": more}


def handle_look(request):
    box = store.boxes.named(request.words[0])
    box.looked_at()
    return 200, store.boxes.named(request.words[0]).shown(request.toolbox_url())


def handle_delete(request):
    box = store.boxes.named(request.words[0])
    shown = {**box.shown(request.toolbox_url()), "state": "destroying",
             "desiredState": "destroyed"}
    box.destroy(store.switches["vanish"])
    return 200, shown


def handle_start(request):
    box = store.boxes.named(request.words[0])
    box.begin_start()
    return 200, box.shown(request.toolbox_url())


def handle_stop(request):
    box = store.boxes.named(request.words[0])
    box.stop()
    return 200, box.shown(request.toolbox_url())


def handle_touch(request):
    store.boxes.named(request.words[0]).active = now()
    return 201, None


def handle_network(request):
    box, body = store.boxes.named(request.words[0]), request.json
    box.blocked = body.get("networkBlockAll", box.blocked)
    box.hosts = body.get("domainAllowList", box.hosts)
    box.addresses = body.get("networkAllowList", box.addresses)
    return 200, box.shown(request.toolbox_url())


def handle_proxy_url(request):
    store.boxes.named(request.words[0])
    return 200, {"url": f"http://127.0.0.1:{request.server.server_address[1]}/toolbox"}


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
    if word == "root":
        return store.boxes.named(more[0]).root
    if word == "box":
        return json.dumps(store.boxes.named(more[0]).body, sort_keys=True)
    if word == "network":
        box = store.boxes.named(more[0])
        return "none" if box.blocked else f"{box.hosts or ''}|{box.addresses or ''}"
    raise Refused(404, "no such control")


def control_post(word, body):
    if word == "reset":
        with store.lock:
            store.reset()
    elif word == "clear":
        for box in store.boxes.living():
            set_state(box, "destroyed")
        store.violations.clear()
    elif word == "switch":
        assert set(body) <= set(SWITCHES)
        store.switches.update(body)
    elif word == "fault":
        with store.lock:
            store.faults.append({"times": 1, "skip": 0, **body})
    elif word == "state":
        set_state(store.boxes.named(body["name"]), body["to"])
    else:
        raise Refused(404, "no such control")


def set_state(box, to):
    if to == "destroyed":
        box.state = "started"
        box.destroy()
    elif to == "stopped":
        box.state = box.desired = "stopped"
        box.end_processes()
    elif to == "error":
        box.state, box.reason = "error", "its disk is broken"
    else:
        box.state = to


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

    def toolbox_url(self):
        if store.switches["proxy_url"] == "apart":
            return None
        return f"http://127.0.0.1:{self.server.server_address[1]}/toolbox"

    def serve(self):
        self.answer_type = "application/json; charset=utf-8"
        path, _, query = self.path.partition("?")
        self.query = urllib.parse.parse_qsl(query, keep_blank_values=True)
        try:
            self.body = self.read_body()
            self.dispatch(path.split("/")[1:])
        except Dropped:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()

    def dispatch(self, words):
        if words[0] == "control":
            self.serve_control(words[1:])
        elif words[0] == "api" and words[1:2] == ["socket.io"]:
            self.reply(404, [])
        elif words[0] == "api":
            self.serve_operation("", api.CONTROL, "/" + "/".join(words[1:]))
        elif words[0] == "toolbox" and len(words) > 2:
            self.serve_operation(words[1], api.TOOLBOX, "/" + "/".join(words[2:]))
        else:
            self.violation("it goes nowhere")
            self.page()

    def page(self):
        self.reply(200, [("Content-Type", "text/html")], b"<!doctype html><title>Daytona</title>")

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

    def serve_operation(self, box_id, table, path):
        self.is_toolbox = table is api.TOOLBOX
        found = api.find(table, self.command, path)
        if not found:
            self.violation("there is no such operation")
            self.reply(404, [("Content-Type", "text/plain")], b"404 page not found")
            return
        self.op, self.words = found[0], tuple(map(urllib.parse.unquote, found[1]))
        self.box_id = box_id or (self.words or ("-",))[0]
        fault = store.fault(self.op, self.is_toolbox)
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self.serve_follow()
            return
        before = fault and self.meet(fault)
        if before:
            status, made = before
        elif fault and fault["fault"] in ("later", "status", "html", "answer", "stall", "reset"):
            return
        else:
            status, made = self.outcome()
        self.note(status)
        self.send(status, made, fault)

    def note(self, status):
        with store.lock:
            store.log.append((self.op, self.box_id, status))

    def outcome(self):
        try:
            self.check_request()
            box = self.box() if self.is_toolbox else None
            if box:
                status, made = getattr(toolbox, "handle_" + self.op)(box, self)
            else:
                status, made = globals()["handle_" + self.op](self)
        except Refused as e:
            return e.status, self.refusal(e)
        self.check_answer(made)
        return status, made

    def check_request(self):
        op = (api.TOOLBOX if self.is_toolbox else api.CONTROL)[self.op]
        self.check_headers(op)
        if complaint := api.wrong_query(self.query, op.query):
            self.violation(complaint)
        if isinstance(op.body, dict):
            try:
                self.json = json.loads(self.body)
            except ValueError:
                self.violation("its body is no JSON")
                raise Refused(400, "Invalid JSON in request body") from None
            if complaint := api.wrong(self.json, op.body):
                self.violation(complaint)
                raise Refused(400, "invalid body request: " + complaint)
        elif not op.body and self.body:
            self.violation("it has a body")

    def check_headers(self, op):
        h = self.headers
        if h.get("Authorization") != "Bearer " + key:
            raise Refused(401, "unauthorized: authentication failed: Bearer token is invalid"
                          if self.is_toolbox else "Invalid credentials", "UNAUTHORIZED")
        version = re.match(r"(\d+)\.(\d+)", h.get("X-Daytona-SDK-Version") or "")
        if h.get("Upgrade") is None and (
                not version or (int(version[1]), int(version[2])) < (0, 167)):
            self.violation("X-Daytona-SDK-Version is not at least 0.167")
        if not h.get("X-Daytona-Source") and h.get("Upgrade") is None:
            self.violation("there is no X-Daytona-Source")
        if BROWSERS.search(h.get("User-Agent") or "Mozilla"):
            self.violation("User-Agent is that of a browser, or none")
        if h.get("Expect"):
            self.violation("it expects a continue")
        if bool(h.get("X-Daytona-Organization-ID")) != (key.count(".") == 2):
            self.violation("X-Daytona-Organization-ID comes with a JWT, and only then")
        if isinstance(op.body, dict) and not (h.get("Content-Type") or "").startswith(
                "application/json"):
            self.violation("its body is not said to be JSON")

    def box(self):
        try:
            box = store.boxes.all[self.box_id]
        except KeyError:
            self.violation("there never was such a sandbox")
            raise Refused(400, "bad request: failed to get runner info: not found") from None
        if box.state == "started":
            box.active = now()
            return box
        if box.desired == "destroyed":
            texts = {401: "unauthorized: authentication failed: Bearer token is invalid",
                     400: "bad request: failed to get runner info: not found",
                     404: "not found: sandbox container not found: no such container", 502: None}
            raise Refused(store.switches["gone"], texts[store.switches["gone"]])
        raise Refused(400, "bad request: no IP address found. Is the Sandbox started?")

    def check_answer(self, made):
        op = (api.TOOLBOX if self.is_toolbox else api.CONTROL)[self.op]
        if op.answer and self.toolbox_url():
            if complaint := api.wrong(made, op.answer, "the server's own answer"):
                self.violation(complaint)

    def refusal(self, e):
        """As the control plane, or the toolbox, says it; None: no body."""
        if e.message is None or isinstance(e.message, dict):
            return e.message
        if not self.is_toolbox:
            return {"path": self.path, "timestamp": now(), "statusCode": e.status,
                    "error": REASONS[e.status], "message": e.message}
        made = {"statusCode": e.status, "message": e.message, "timestamp": now(),
                "path": self.path.partition("?")[0], "method": self.command}
        if era == "v0.190":
            made["code"] = REASONS[e.status].upper().replace(" ", "_")
        else:
            made["source"] = "DAYTONA_DAEMON"
            made["code"] = e.code or REASONS[e.status].upper().replace(" ", "_")
        return made

    # ---- answers ----

    def encode(self, made, status):
        if made is None or isinstance(made, bytes):
            return made or b""
        if isinstance(made, dict) and not self.is_toolbox and "id" in made:
            made = {**made, "addedLater": {"any": [1, None]}}
            made = {k: v for k, v in made.items() if k != "toolboxProxyUrl" or v}
        text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
        if self.is_toolbox:
            for c in "<>&\u2028\u2029":
                text = text.replace(c, "\\u%04x" % ord(c))
        return text.encode("utf-8", "surrogatepass")

    def send(self, status, made, fault):
        body, how = self.encode(made, status), fault["fault"] if fault else ""
        headers = [("Content-Type", self.answer_type)] if body else []
        if how == "lost":
            raise Dropped
        if how == "stall_after":
            self.hang()
        elif how == "answer_after":
            self.reply(status, [("Content-Type", self.answer_type)], fault["body"].encode())
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

    def meet(self, fault):
        """Faults before anything is done: what is answered instead, or None."""
        how = fault["fault"]
        if how in ("gone", "asleep"):
            set_state(store.boxes.named(self.box_id),
                      "destroyed" if how == "gone" else "stopped")
            return None
        if how == "echo":
            text = self.headers["Authorization"] + " " + self.body.decode("utf-8", "replace")
            return 400, self.refusal(Refused(400, "I got " + text))
        if how == "reset":
            self.note(0)
            raise Dropped
        if how == "stall":
            self.note(0)
            self.hang()
        elif how == "later":
            self.note(429)
            self.reply(429, [("Content-Type", "application/json; charset=utf-8"),
                             ("Retry-After-" + BUCKETS.get(self.op, "authenticated"),
                              str(fault.get("seconds", 1)))],
                       self.encode(self.refusal(
                           Refused(429, "ThrottlerException: Too Many Requests")), 429))
        elif how == "status":
            self.note(fault["status"])
            self.reply(fault["status"], [("Content-Type", "application/json")],
                       fault.get("body", "").encode())
        elif how == "html":
            self.note(200)
            self.page()
        elif how == "answer":
            self.note(200)
            self.reply(200, [("Content-Type", "application/json")], fault["body"].encode())
        return None

    # ---- the log of a session by WebSocket ----

    def serve_follow(self):
        """Whole, when the command has ended, in frames that cut its lines."""
        try:
            self.check_request()
            data = toolbox.follow(self.box(), self)
        except Refused as e:
            self.note(e.status)
            self.send(e.status, self.refusal(e), None)
            return
        accept = hashlib.sha1((self.headers["Sec-WebSocket-Key"] + WEBSOCKET).encode()).digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
        self.end_headers()
        for at in range(0, len(data), FRAME):
            piece = data[at:at + FRAME]
            self.wfile.write(bytes([0x82, len(piece)]) + piece)
        self.wfile.write(b"\x88\x02" + struct.pack(">H", 1000))
        self.note(101)
        self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = serve


@atexit.register
def end_all():
    for box in store.boxes.living():
        box.end_processes()


loopback.serve(Handler)
