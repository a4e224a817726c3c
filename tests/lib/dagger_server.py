#!/usr/bin/env python3
"""A session of Dagger on the loopback: GraphQL at /query, and an engine in which commands really
run, each in a copy of the tree of the container it starts from. Prints its port and serves until
its stdin ends.

dagger_server.py DIR TOKEN [ERA]: trees are below DIR; who has TOKEN may come. ERA is 0.20 (ids are
recipes) or 0.21 (ids are handles, which the engine may forget).

Each query is held against the table of dagger_server_schema.py; what does not agree is refused, as
by the engine, and is a violation, as is what no client should ask. Tests speak to it at /control,
without a token:

  GET  /control/count/OP      how many requests the operation had; OP all: all of them together
  GET  /control/log           a line for each: operation, status
  GET  /control/violations    a line for each; empty is good
  POST /control/reset         forgets counts and faults
  POST /control/switch        members: git ({START of a URL: what stands there instead}), git_token,
                              layers (how many of a container it can mount)
  POST /control/fault         {"op": OP or any, "fault": F, "times": N, "skip": N, ...}
  POST /control/forget        the engine has lost all that it knew
  POST /control/restart       and its handles are numbered from 1 again
  POST /control/end_session   what is not kept over the end of a session is lost

The operations: probe, secret, git, upload, create, run, flat, put, look, export, other.
The faults; those that end in "after" have done what was asked:

  lost            after: the connection is reset      reset    before
  stall           nothing is answered                 stall_after
  cut             after: half of the answer           html     200 with a page
  status          STATUS with BODY as text            answer   200 with BODY as JSON
  error           200 with MESSAGE, as the engine says it
  echo            200 with an error that has the request's credentials in its message
  forget          what the engine knew is lost before
"""
import base64
import json
import select
import socket
import struct
import sys
import threading
import traceback

import dagger_server_graphql as graphql
import dagger_server_schema as schema
import loopback
from dagger_server_engine import Engine

top, token = sys.argv[1:3]
era = (sys.argv[3:] or ["0.21"])[0]
# The first that a query has names its operation.
OPS = (("__schema", "probe"), ("setSecret", "secret"), ("export", "export"),
       ("withMountedDirectory", "flat"), ("withExec", "run"),
       ("git", "git"), ("from", "create"), ("import", "create"), ("withRootfs", "create"),
       ("dockerBuild", "create"), ("label", "look"), ("host", "upload"), ("withDirectory", "put"),
       ("withNewFile", "put"), ("withFile", "put"))
types = schema.load(era)
engine = Engine(top, era)


class Store:
    """What tests ask about. Its lock is held shortly."""

    def __init__(self):
        self.lock = threading.Lock()
        self.reset()

    def reset(self):
        self.log, self.faults, self.violations = [], [], []

    def fault(self, op):
        """The one that the next request of the operation meets, or None."""
        with self.lock:
            for fault in self.faults:
                if fault["op"] not in (op, "any") or fault["times"] == 0:
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


def op_of(chosen):
    asked = set(graphql.fields_of(chosen))
    return next((op for field, op in OPS if field in asked), "other")


def control(command, word, words, body):
    if command == "GET" and word == "count":
        return str(sum(words[0] in ("all", op) for op, _ in store.log))
    if command == "GET" and word == "log":
        return "".join("%s %s\n" % line for line in store.log)
    if command == "GET" and word == "violations":
        return "".join(line + "\n" for line in store.violations)
    if word == "reset":
        store.reset()
    elif word == "switch":
        assert set(body) <= set(engine.switches)
        engine.switches.update(body)
    elif word == "fault":
        store.faults.append({"times": 1, "skip": 0, **body})
    elif word == "forget":
        forget()
    elif word == "restart":
        engine.restart()
    elif word == "end_session":
        engine.end_session()
    else:
        raise KeyError(word)
    return ""


def forget():
    """Numbers go on: a handle that was given never means another."""
    with engine.lock:
        engine.handles, engine.cache, engine.recipes, engine.numbers = {}, {}, {}, {}


class Handler(loopback.Handler):
    wbufsize = -1
    disable_nagle_algorithm = True

    def violation(self, text):
        with store.lock:
            store.violations.append(f"{self.command} {self.path}: {text}")

    def read_body(self):
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        if len(data) < length:
            raise Dropped  # who sent it was killed meanwhile
        return data

    def serve(self):
        words = self.path.split("/")[1:]
        try:
            self.body = self.read_body()
            if words[0] == "control":
                with store.lock:
                    text = control(self.command, words[1], words[2:],
                                   json.loads(self.body or b"{}"))
                self.reply(200, [("Content-Type", "text/plain")], text.encode())
            else:
                self.serve_engine()
        except Dropped:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
            self.connection.close()

    # ---- the session ----

    def serve_engine(self):
        right = "Basic " + base64.b64encode(f"{token}:".encode()).decode()
        if self.headers.get("Authorization") != right:
            self.note("none", 401)
            self.reply(401, [("WWW-Authenticate",
                              'Basic realm="Access to the Dagger engine session"')])
            return
        if self.path != "/query":
            self.violation("it goes nowhere")
            self.reply(404, [("Content-Type", "text/plain; charset=utf-8")],
                       b"404 page not found\n")
            return
        for header in ("Expect", "Transfer-Encoding"):
            if self.headers.get(header):
                self.violation(f"it has {header}")
        self.serve_query()

    def serve_query(self):
        if not self.headers.get("Content-Type", "").startswith("application/json"):
            self.violation("its body is not said to be JSON")
            self.refuse(400, "transport not supported", "text/plain; charset=utf-8")
            return
        try:
            asked = json.loads(self.body)
            text, variables = asked["query"], asked.get("variables") or {}
        except (ValueError, TypeError):
            self.violation("its body is no JSON")
            self.refuse(400, "json request body could not be decoded: invalid character")
            return
        except KeyError:
            self.refuse(422, "no operation provided", code="GRAPHQL_VALIDATION_FAILED")
            return
        try:
            chosen = graphql.check(text, variables, era, types)
        except graphql.Invalid as e:
            self.violation(e.message + " in " + text[:300])
            self.refuse(422, e.message, code=e.code)
            return
        self.serve_chosen(chosen)

    def serve_chosen(self, chosen):
        op = op_of(chosen)
        fault = store.fault(op)
        if fault and self.meet(op, fault):
            return
        engine.wanted.ask = self.is_wanted
        try:
            query = engine.replay(None)
            made = {"data": graphql.resolve(chosen, query, engine.ask)}
        except graphql.Failed as e:
            made = self.failure(e.message, e.extensions)
        except Exception:
            self.violation("the server has failed: " + traceback.format_exc())
            raise
        self.note(op, 200)
        self.send(json.dumps(made, ensure_ascii=False).encode("utf-8", "replace"), fault)

    def is_wanted(self):
        """Whether the client still waits."""
        if loopback.ended.is_set():
            return False
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return not readable or bool(self.connection.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def failure(self, message, extensions=None):
        if "traceparent" not in message:
            message += " [traceparent:0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331]"
        item = {"message": message, "path": ["container"]}
        return {"errors": [{**item, "extensions": extensions} if extensions else item],
                "data": None}

    # ---- answers ----

    def note(self, op, status):
        with store.lock:
            store.log.append((op, status))

    def refuse(self, status, message, kind="application/json", code=None):
        self.note("none", status)
        item = {"message": message}
        if code:
            item["extensions"] = {"code": code}
        self.reply(status, [("Content-Type", kind)],
                   json.dumps({"errors": [item], "data": None}).encode())

    def send(self, body, fault):
        how = fault["fault"] if fault else ""
        kind = [("Content-Type", "application/json")]
        if how == "lost":
            raise Dropped
        if how == "stall_after":
            self.hang()
        elif how == "cut":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            raise Dropped
        else:
            self.reply(200, kind, body)

    def meet(self, op, fault):
        """A fault before anything is done: whether it has answered."""
        how, kind = fault["fault"], "application/json"
        if how == "forget":
            forget()
        if how in ("forget", "lost", "stall_after", "cut"):
            return False
        self.note(op, fault.get("status", 200))
        if how == "reset":
            raise Dropped
        if how == "stall":
            self.hang()
        elif how == "status":
            self.reply(fault["status"], [("Content-Type", "text/plain; charset=utf-8")],
                       fault.get("body", "").encode())
        elif how == "html":
            self.reply(200, [("Content-Type", "text/html")], b"<!doctype html><title>x</title>")
        elif how == "answer":
            self.reply(200, [("Content-Type", kind)], fault["body"].encode())
        else:
            said = fault.get("message") or "I got " + self.headers["Authorization"] + " " + \
                token + " " + self.body.decode("utf-8", "replace")
            self.reply(200, [("Content-Type", kind)],
                       json.dumps(self.failure(said, fault.get("extensions"))).encode())
        return True

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = serve


# A recipe is as deep as a container has steps behind it.
sys.setrecursionlimit(100000)
threading.stack_size(256 << 20)
loopback.serve(Handler)
