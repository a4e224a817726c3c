#!/usr/bin/env python3
"""The operations of Vercel's API for sandboxes that sandboxfs and the test of its SDK use.

vercel_server_api.py OPENAPI.json: compares this table with such a document, and fails where that
says otherwise.
"""
import json
import sys

from shapes import ANY, MAP, Document, Maybe, OneOf, Operation, Range

STATUS = set("pending running stopping stopped failed aborted snapshotting".split())
TEAM = {"teamId": str}
PAGE = {**TEAM, "project?": str, "limit?": Range(1, 50), "cursor?": str,
        "sortOrder?": {"asc", "desc"}}
PROJECT = {**TEAM, "projectId?": str}

POLICY = OneOf({"mode": {"allow-all"}}, {"mode": {"deny-all"}},
               {"allow?": OneOf([str], ANY), "subnets?": {"allow?": [str], "deny?": [str]}})
POLICY_SHOWN = OneOf({"mode": {"allow-all"}}, {"mode": {"deny-all"}},
                     {"mode": {"custom"}, "allowedDomains?": [str], "allowedCIDRs?": [str],
                      "deniedCIDRs?": [str]})
SOURCE = OneOf({"type": {"git"}, "url": str, "depth?": Range(1, 2 ** 31), "revision?": str,
                "username?": str, "password?": str},
               {"type": {"tarball"}, "url": str},
               {"type": {"snapshot"}, "snapshotId": str})

COMMON = {
    "name?": str, "ports?": [Range(1024, 65535)], "timeout?": Range(1000, 86400000),
    "resources?": {"vcpus?": Range(1, 32), "memory?": Range(2048, 65536)}, "image?": str,
    "persistent?": bool, "networkPolicy?": POLICY, "env?": MAP, "tags?": MAP, "region?": str,
    "failoverRegions?": [str],
}
CREATE = {**COMMON, "projectId?": str, "source?": SOURCE}
UPDATE = {
    "ports?": [Range(1024, 65535)], "timeout?": Range(1000, 86400000),
    "resources?": COMMON["resources?"], "persistent?": bool, "networkPolicy?": POLICY,
    "tags?": MAP, "region?": str, "failoverRegions?": [str],
}
RUN = {
    "command": str, "args?": [str], "cwd?": str, "env?": MAP, "sudo?": bool, "wait?": {True},
    "logs?": {True}, "timeout?": Range(100, 2 ** 53),
}

SESSION = {
    "id": str, "memory": float, "vcpus": float, "region": str, "runtime?": str,
    "timeout": float, "status": STATUS, "requestedAt": float, "startedAt?": float,
    "requestedStopAt?": float, "stoppedAt?": float, "snapshottedAt?": float, "duration?": float,
    "sourceSnapshotId?": str, "createdAt": float, "cwd": str, "updatedAt": float,
    "networkPolicy?": POLICY_SHOWN, "activeCpuDurationMs?": float, "architecture?": str,
    "sourceSandboxName?": str, "projectId?": str,
}
SANDBOX = {
    "name": str, "persistent": bool, "region?": str, "failoverRegions?": [str], "vcpus?": float,
    "memory?": float, "runtime?": str, "image?": str, "timeout?": float,
    "networkPolicy?": POLICY_SHOWN, "totalActiveCpuDurationMs?": float, "totalDurationMs?": float,
    "createdAt": float, "updatedAt": float, "expiresAt?": float, "currentSessionId": str,
    "currentSnapshotId?": str, "status": STATUS, "statusUpdatedAt?": float, "cwd?": str,
    "tags?": MAP, "architecture?": str,
}
SNAPSHOT = {
    "id": str, "sourceSessionId": str, "region": str, "status": {"created", "deleted", "failed"},
    "sizeBytes": float, "createdAt": float, "updatedAt": float, "creationMethod?": str,
}
COMMAND = {
    "id": str, "name": str, "args": [str], "cwd": str, "sessionId": str,
    "exitCode": Maybe(float), "durationMs?": float, "startedAt": float,
}
ROUTE = {"url": str, "subdomain": str, "port": float}
WHOLE = {"sandbox": SANDBOX, "session": SESSION, "routes": [ROUTE], "resumed?": bool}
PAGED = {"count": float, "next": Maybe(str)}
DATA = "data"  # a body that is not JSON

S = "/v2/sandboxes/sessions/{}"

# The lists come before what they name: a path of the first that fits is taken.
TABLE = {
    "sessions": Operation("GET", "/v2/sandboxes/sessions", {**PAGE, "name?": str}, None, 200,
                          {"sessions": [SESSION], "pagination": PAGED}),
    "snapshots": Operation("GET", "/v2/sandboxes/snapshots", {**PAGE, "name?": str}, None, 200,
                           {"snapshots": [SNAPSHOT], "pagination": PAGED}),
    "snapshot_look": Operation("GET", "/v2/sandboxes/snapshots/{}", TEAM, None, 200,
                               {"snapshot": SNAPSHOT}),
    "snapshot_delete": Operation("DELETE", "/v2/sandboxes/snapshots/{}", TEAM, None, 200,
                                 {"snapshot": SNAPSHOT}),
    "create": Operation("POST", "/v3/sandboxes", TEAM, CREATE, 200, WHOLE),
    "create_runtime": Operation("POST", "/v2/sandboxes", TEAM, {**CREATE, "runtime?": str}, 200,
                                WHOLE),
    "list": Operation("GET", "/v2/sandboxes",
                      {**PAGE, "sortBy?": {"createdAt", "name", "statusUpdatedAt"},
                       "namePrefix?": str, "tags?": str}, None, 200,
                      {"sandboxes": [SANDBOX], "pagination": PAGED}),
    "look": Operation("GET", "/v2/sandboxes/{}", {**PROJECT, "resume?": bool}, None, 200, WHOLE),
    "update": Operation("PATCH", "/v2/sandboxes/{}", PROJECT, UPDATE, 200,
                        {"sandbox": SANDBOX, "routes?": [ROUTE]}),
    "delete": Operation("DELETE", "/v2/sandboxes/{}",
                        {**PROJECT, "deleteOrphanSnapshots?": bool}, None, 200,
                        {"sandbox": SANDBOX}),
    "fork": Operation("POST", "/v2/sandboxes/{}/fork", PROJECT, COMMON, 200, WHOLE),
    "session": Operation("GET", S, TEAM, None, 200, {"session": SESSION, "routes": [ROUTE]}),
    "stop": Operation("POST", S + "/stop", TEAM, None, 200,
                      {"session": SESSION, "sandbox?": SANDBOX, "snapshot?": SNAPSHOT}),
    "extend": Operation("POST", S + "/extend-timeout", TEAM, {"duration": Range(1000, 2 ** 53)},
                        200, {"session": SESSION}),
    "snapshot": Operation("POST", S + "/snapshot", TEAM, None, 201,
                          {"snapshot": SNAPSHOT, "session": SESSION}),
    "policy": Operation("POST", S + "/network-policy", TEAM, POLICY, 200, {"session": SESSION}),
    "run": Operation("POST", S + "/cmd", TEAM, RUN, 200, None),
    "commands": Operation("GET", S + "/cmd", TEAM, None, 200, {"commands": [COMMAND]}),
    "command": Operation("GET", S + "/cmd/{}", {**TEAM, "wait?": bool}, None, 200,
                         {"command": COMMAND}),
    "logs": Operation("GET", S + "/cmd/{}/logs", TEAM, None, 200, None),
    "kill": Operation("POST", S + "/cmd/{}/kill", TEAM, {"signal": Range(1, 64)}, 200,
                      {"command": COMMAND}),
    "write": Operation("POST", S + "/fs/write", TEAM, DATA, 200, {}),
    "read": Operation("POST", S + "/fs/read", TEAM, {"path": str, "cwd?": str}, 200, None),
    "mkdir": Operation("POST", S + "/fs/mkdir", TEAM,
                       {"path": str, "cwd?": str, "recursive?": bool}, 200, {}),
}

if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as f:
        found = list(Document(json.load(f)).compare(TABLE))
    print("\n".join(found) or "no difference")
    sys.exit(bool(found))
