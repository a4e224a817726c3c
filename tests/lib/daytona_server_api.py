#!/usr/bin/env python3
"""The operations of Daytona's API that sandboxfs and the test of its SDK use: what a request may
have and what an answer has to have.

daytona_server_api.py CONTROL.json TOOLBOX.json: compares this table with OpenAPI documents of
Daytona (of the control plane and of the toolbox), and fails where a document says otherwise.

A type is str, bool, int, float, MAP (of strings), a set of words, [TYPE], TYPES (a dictionary of
members), or Maybe(TYPE), which may be null. A member that ends with "?" may be left out.
"""
import collections
import json
import re
import sys

MAP = "map of strings"
Maybe = collections.namedtuple("Maybe", "type")
Operation = collections.namedtuple("Operation", "method path query body status answer",
                                   defaults=(None, None, 200, None))

STATES = set("""creating restoring destroyed destroying started stopped starting stopping error
build_failed pending_build building_snapshot unknown pulling_snapshot archived archiving resizing
snapshotting forking pausing paused resuming""".split())
DESIRED = set("destroyed started stopped resized archived paused".split())

ITEM = {
    "id": str, "organizationId": str, "name": str, "user": str, "labels": MAP, "public": bool,
    "target": str, "cpu": float, "gpu": float, "memory": float, "disk": float,
    "toolboxProxyUrl": str, "snapshot?": Maybe(str), "state?": STATES, "desiredState?": DESIRED,
    "errorReason?": Maybe(str), "recoverable?": bool, "backupState?": str,
    "autoStopInterval?": float, "autoArchiveInterval?": float, "autoDeleteInterval?": float,
    "createdAt?": str, "updatedAt?": str, "lastActivityAt?": str, "sandboxClass?": str,
    "daemonVersion?": str, "runnerId?": str,
}
SANDBOX = {
    **ITEM, "networkBlockAll": bool, "networkAllowList?": Maybe(str),
    "domainAllowList?": Maybe(str), "env": MAP, "volumes?": [MAP],
    "buildInfo?": {"dockerfileContent?": str, "createdAt": str, "updatedAt": str,
                   "snapshotRef": str},
}
CREATE = {
    "name?": str, "snapshot?": str, "user?": str, "env?": MAP, "labels?": MAP, "public?": bool,
    "networkBlockAll?": bool, "networkAllowList?": str, "domainAllowList?": str, "target?": str,
    "cpu?": int, "gpu?": int, "memory?": int, "disk?": int, "autoStopInterval?": int,
    "autoArchiveInterval?": int, "autoDeleteInterval?": int, "volumes?": [MAP],
    "buildInfo?": {"dockerfileContent": str, "contextHashes?": [str]},
}
NETWORK = {"networkBlockAll?": bool, "networkAllowList?": str, "domainAllowList?": str}
LIST = {
    "cursor?": str, "limit?": int, "id?": str, "name?": str, "labels?": str, "states?": STATES,
    "sort?": str, "order?": str,
}
CREDENTIALS = {"path": str, "username?": str, "password?": str}
COMMAND = {"id": str, "command": str, "exitCode?": int}
STREAMS = ("output", "stdout", "stderr")

# {s} is an id or a name; of the toolbox a path follows the id.
CONTROL = {
    "create": Operation("POST", "/sandbox", {}, CREATE, 200, SANDBOX),
    "list": Operation("GET", "/sandbox", LIST, None, 200,
                      {"items": [ITEM], "nextCursor": Maybe(str)}),
    "look": Operation("GET", "/sandbox/{s}", {"verbose?": bool}, None, 200, SANDBOX),
    "delete": Operation("DELETE", "/sandbox/{s}", {}, None, 200, SANDBOX),
    "start": Operation("POST", "/sandbox/{s}/start", {}, None, 200, SANDBOX),
    "stop": Operation("POST", "/sandbox/{s}/stop", {"force?": bool}, None, 200, SANDBOX),
    "touch": Operation("POST", "/sandbox/{s}/last-activity", {}, None, 201, None),
    "network": Operation("POST", "/sandbox/{s}/network-settings", {}, NETWORK, 200, SANDBOX),
    "proxy_url": Operation("GET", "/sandbox/{s}/toolbox-proxy-url", {}, None, 200, {"url": str}),
}
TOOLBOX = {
    "version": Operation("GET", "/version", {}, None, 200, MAP),
    "home": Operation("GET", "/user-home-dir", {}, None, 200, {"dir": str}),
    "work_dir": Operation("GET", "/work-dir", {}, None, 200, {"dir": str}),
    "execute": Operation("POST", "/process/execute", {},
                         {"command": str, "timeout?": int, "cwd?": str, "envs?": MAP}, 200,
                         {"exitCode?": int, "result": str}),
    "session": Operation("POST", "/process/session", {}, {"sessionId": str}, 201, None),
    "session_end": Operation("DELETE", "/process/session/{}", {}, None, 204, None),
    "session_execute": Operation("POST", "/process/session/{}/exec", {},
                                 {"command": str, "runAsync?": bool, "async?": bool,
                                  "suppressInputEcho?": bool}, 200,
                                 {"cmdId": str, "exitCode?": Maybe(int),
                                  **{name + "?": Maybe(str) for name in STREAMS}}),
    "session_command": Operation("GET", "/process/session/{}/command/{}", {}, None, 200, COMMAND),
    "session_logs": Operation("GET", "/process/session/{}/command/{}/logs", {"follow?": bool},
                              None, 200, {name: str for name in STREAMS}),
    "folder": Operation("POST", "/files/folder", {"path": str, "mode": str}, None, 201, None),
    "upload": Operation("POST", "/files/bulk-upload", {}, "multipart", 200, None),
    "download": Operation("POST", "/files/bulk-download", {}, {"paths": [str]}, 200, None),
    "clone": Operation("POST", "/git/clone", {},
                       {"url": str, "path": str, "branch?": str, "commit_id?": str,
                        "username?": str, "password?": str}, 200, None),
    "status": Operation("GET", "/git/status", {"path": str}, None, 200,
                        {"currentBranch": str, "fileStatus": [
                            {"name": str, "extra": str, "staging": str, "worktree": str}],
                         "branchPublished?": bool, "ahead?": int, "behind?": int}),
    "branches": Operation("GET", "/git/branches", {"path": str}, None, 200,
                          {"branches": Maybe([str])}),
    "branch": Operation("POST", "/git/branches", {}, {"path": str, "name": str}, 201, None),
    "checkout": Operation("POST", "/git/checkout", {}, {"path": str, "branch": str}, 200, None),
    "add": Operation("POST", "/git/add", {}, {"path": str, "files": [str]}, 200, None),
    "commit": Operation("POST", "/git/commit", {},
                        {"path": str, "message": str, "author": str, "email": str,
                         "allow_empty?": bool}, 200, {"hash": str}),
    "push": Operation("POST", "/git/push", {}, CREDENTIALS, 200, None),
}


def find(table, method, path):
    """The name of the operation and the words of the path that stand for {}; or None."""
    for name, op in table.items():
        pattern = re.sub(r"\{s?\}", "([^/]+)", op.path)
        match = re.fullmatch(pattern, path)
        if match and op.method == method:
            return name, match.groups()
    return None


def wrong(value, want, where="it"):
    """What is wrong with VALUE, or None."""
    if isinstance(want, Maybe):
        return None if value is None else wrong(value, want.type, where)
    if want is float:
        want = (int, float)
    if isinstance(want, (type, tuple)):
        is_bool = isinstance(value, bool)
        good = isinstance(value, want) and is_bool == (want is bool)
        return None if good else f"{where} is {value!r:.60}"
    if isinstance(want, set):
        return None if value in want else f"{where} is {value!r:.60}"
    if isinstance(want, list):
        if not isinstance(value, list):
            return f"{where} is no list"
        found = (wrong(v, want[0], f"{where}[{i}]") for i, v in enumerate(value))
        return next(filter(None, found), None)
    if not isinstance(value, dict):
        return f"{where} is no object"
    if want is MAP:
        found = (wrong(v, str, f"{where}.{k}") for k, v in value.items())
        return next(filter(None, found), None)
    return wrong_members(value, want, where)


def wrong_members(value, want, where):
    known = {name.rstrip("?"): (kind, name.endswith("?")) for name, kind in want.items()}
    for name in value:
        if name not in known:
            return f"{where} has {name!r:.60}, which nobody knows"
    for name, (kind, optional) in known.items():
        if name not in value:
            if not optional:
                return f"{where} has no {name}"
        elif complaint := wrong(value[name], kind, f"{where}.{name}"):
            return complaint
    return None


def wrong_query(query, want):
    """QUERY: pairs of a name and a text."""
    known = {name.rstrip("?"): kind for name, kind in want.items()}
    for name, text in query:
        kind = known.get(name)
        if not kind:
            return f"the query has {name}, which nobody knows"
        if kind is int and not text.isdigit() or kind is bool and text not in ("true", "false"):
            return f"the query's {name} is {text!r:.60}"
        if isinstance(kind, set) and text not in kind:
            return f"the query's {name} is {text!r:.60}"
    missing = {name for name in want if not name.endswith("?")} - {name for name, _ in query}
    return f"the query has no {missing.pop()}" if missing else None


# ---- comparing with the documents ----

class Document:
    """An OpenAPI document, version 2 or 3."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.doc = json.load(f)

    def follow(self, schema):
        while True:
            if "$ref" in schema:
                found = self.doc
                for word in schema["$ref"].split("/")[1:]:
                    found = found[word]
                schema = found
            elif len(schema.get("allOf", ())) == 1:
                schema = schema["allOf"][0]
            else:
                return schema

    def operation(self, op):
        for path, methods in self.doc["paths"].items():
            if re.sub(r"\{[^}]*\}", "{}", path) == op.path.replace("{s}", "{}"):
                return methods.get(op.method.lower())
        return None

    def body(self, operation):
        for p in operation.get("parameters", ()):
            if p["in"] == "body":
                return p["schema"]
        content = operation.get("requestBody", {}).get("content", {})
        return content.get("application/json", {}).get("schema")

    def answer(self, operation, status):
        answer = operation["responses"][str(status)]
        return answer.get("schema") or next(iter(answer.get("content", {}).values()), {}).get(
            "schema")


def differences(doc, schema, want, where, is_answer):
    """An answer of ours may have less than it could, a request no more than it may."""
    schema = doc.follow(schema)
    if isinstance(want, Maybe):
        want = want.type
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number"}
    kind = schema.get("type")
    if isinstance(want, type):
        if kind != kinds[want] and not (want is float and kind == "integer"):
            yield f"{where} is {kind}"
    elif isinstance(want, set):
        if extra := want - set(schema.get("enum") or schema.get("items", {}).get("enum", want)):
            yield f"{where} cannot be {sorted(extra)}"
    elif isinstance(want, list):
        if kind != "array":
            yield f"{where} is {kind}"
        elif want[0] is not MAP:
            yield from differences(doc, schema["items"], want[0], where + "[]", is_answer)
    elif want is MAP:
        if kind != "object":
            yield f"{where} is {kind}"
    elif isinstance(want, dict):
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        mine = {name.rstrip("?"): kind for name, kind in want.items()}
        for name in mine:
            if name not in properties:
                yield f"{where} has no {name}"
            else:
                yield from differences(doc, properties[name], mine[name], f"{where}.{name}",
                                       is_answer)
        needed = {name for name in want if not name.endswith("?")}
        # Items of a list had no networkBlockAll before.
        if is_answer and (left := required - needed - {"networkBlockAll"}):
            yield f"{where} needs {sorted(left)}"
        if not is_answer and required != needed:
            yield f"{where} needs {sorted(required)}"


def compare(doc, table):
    for name, op in table.items():
        operation = doc.operation(op)
        if not operation:
            yield f"{name}: there is no {op.method} {op.path}"
            continue
        query = {p["name"]: p for p in operation.get("parameters", ()) if p["in"] == "query"}
        for key in op.query or ():
            if key.rstrip("?") not in query:
                yield f"{name}: the query has no {key}"
        for key, p in query.items():
            if p.get("required") and key not in op.query:
                yield f"{name}: the query needs {key}"
        if isinstance(op.body, dict):
            yield from differences(doc, doc.body(operation), op.body, name, False)
        if str(op.status) not in operation["responses"]:
            yield f"{name}: no answer has {op.status}"
        elif op.answer:
            yield from differences(doc, doc.answer(operation, op.status), op.answer,
                                   name + "'s answer", True)


if __name__ == "__main__":
    found = [line for path, table in zip(sys.argv[1:], (CONTROL, TOOLBOX))
             for line in compare(Document(path), table)]
    print("\n".join(found) or "no difference")
    sys.exit(bool(found))
