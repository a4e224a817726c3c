"""The toolbox of the loopback Daytona: commands, files and git in the directory of a sandbox, with
the answers, and the oddities, of the daemon that a real sandbox has.

Each function handle_OPERATION(box, request) answers (status, object or bytes or None), or raises
Refused.
"""
import base64
import os
import re
import signal
import subprocess
import time
import uuid

from daytona_server_boxes import Refused

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BOUNDARY = "DAYTONA-FILE-BOUNDARY"


def handle_version(box, request):
    return 200, {"version": "v0.190.0" if box.era == "v0.190" else "v0.205.1"}


def handle_home(box, request):
    return 200, {"dir": box.home}


handle_work_dir = handle_home


# ---- commands ----

def shell():
    try:
        with open("/etc/shells", encoding="utf-8") as f:
            known = f.read().split()
    except OSError:
        known = []
    wanted = ("/usr/bin/zsh", "/bin/zsh", "/usr/bin/bash", "/bin/bash")
    return next((s for s in wanted if s in known), "sh")


def text_of(data):
    """As Go writes bytes that are not UTF-8."""
    return data.decode("utf-8", "replace")


def kill(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def handle_execute(box, request):
    body = request.json
    envs, timeout = body.get("envs", {}), body.get("timeout", 0)
    for name in envs:
        if not NAME.fullmatch(name):
            raise Refused(400, f"bad request: invalid environment variable name: '{name}'")
    if not body["command"]:
        raise Refused(400, "bad request: command is required")
    if timeout < 0:
        raise Refused(400, "invalid body request: timeout is negative")
    try:
        process = box.spawn([shell()], cwd=body.get("cwd") or box.home, env=box.env(envs),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    except OSError as e:
        return 200, {"exitCode": -1, "result": f"fork/exec {shell()}: {e.strerror.lower()}"}
    try:
        out, _ = process.communicate(body["command"].encode(), timeout or None)
    except subprocess.TimeoutExpired:
        kill(process)
        process.communicate()
        code = "REQUEST_TIMEOUT" if box.era == "v0.190" else "PROCESS_EXECUTION_TIMEOUT"
        raise Refused(408, "request timeout: command execution timeout", code) from None
    if box.state != "started":
        raise Refused(502, None)
    return 200, {"exitCode": max(process.returncode, -1), "result": text_of(out)}


# ---- sessions: a shell that lives, and sources each command ----

class Session:
    def __init__(self, box):
        self.box = box
        self.commands = {}
        self.shell = box.spawn(["bash"], cwd=box.home, env=box.env(), stdin=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def run(self, text):
        made = str(uuid.uuid4())
        base = f"{self.box.root}/session-{made}"
        with open(base, "w", encoding="utf-8") as f:
            f.write(text + "\n")
        self.commands[made] = text
        line = f". {base} </dev/null >{base}.out 2>{base}.err; echo $? >{base}.new; " \
               f"mv {base}.new {base}.rc\n"
        self.shell.stdin.write(line.encode())
        self.shell.stdin.flush()
        return made

    def code(self, command):
        try:
            with open(f"{self.box.root}/session-{command}.rc", encoding="utf-8") as f:
                return int(f.read())
        except FileNotFoundError:
            return None

    def streams(self, command):
        """Lines: each stream gains a newline at its end, and loses NULs."""
        texts = []
        for end in ("out", "err"):
            try:
                with open(f"{self.box.root}/session-{command}.{end}", "rb") as f:
                    text = text_of(f.read().replace(b"\0", b""))
            except FileNotFoundError:
                text = ""
            texts.append(text + ("\n" if text and text[-1] != "\n" else ""))
        return texts

    def end(self):
        kill(self.shell)
        self.shell.wait()


def session_of(box, request):
    session = box.sessions.get(request.words[0])
    if not session:
        raise Refused(404, "not found: session not found", "NOT_FOUND")
    return session


def raw_log(out, err):
    lines = [b"\1\1\1" + line for line in out.encode().splitlines(True)]
    return b"".join(lines + [b"\2\2\2" + line for line in err.encode().splitlines(True)])


def all_streams(session, command):
    out, err = session.streams(command)
    return {"output": raw_log(out, err).decode(), "stdout": out, "stderr": err}


def handle_session(box, request):
    name = request.json["sessionId"]
    if name in box.sessions:
        raise Refused(409, "conflict: session already exists", "CONFLICT")
    box.sessions[name] = Session(box)
    return 201, None


def handle_session_end(box, request):
    session = session_of(box, request)
    del box.sessions[request.words[0]]
    session.end()
    return 204, None


def handle_session_execute(box, request):
    session = session_of(box, request)
    command = session.run(request.json["command"])
    if request.json.get("runAsync") or request.json.get("async"):
        return 202, {"cmdId": command, "output": None, "stdout": None, "stderr": None,
                     "exitCode": None}
    while session.code(command) is None:
        if box.state != "started":
            raise Refused(502, None)
        time.sleep(0.02)
    return 200, {"cmdId": command, "exitCode": session.code(command),
                 **all_streams(session, command)}


def handle_session_command(box, request):
    session, command = session_of(box, request), request.words[1]
    if command not in session.commands:
        raise Refused(404, "not found: command not found", "NOT_FOUND")
    found = {"id": command, "command": session.commands[command]}
    if session.code(command) is not None:
        found["exitCode"] = session.code(command)
    return 200, found


def handle_session_logs(box, request):
    handle_session_command(box, request)
    return 200, all_streams(session_of(box, request), request.words[1])


def follow(box, request):
    """The whole log of a command, when it has ended, for the WebSocket that follows it."""
    session, command = session_of(box, request), request.words[1]
    handle_session_command(box, request)
    while session.code(command) is None and box.state == "started":
        time.sleep(0.02)
    return raw_log(*session.streams(command))


# ---- files ----

def inside(box, request, text):
    path = box.path(text)
    if not path:
        request.violation(f"{text!r} is outside of the sandbox")
        raise Refused(403, None)
    return path


def handle_folder(box, request):
    query = dict(request.query)
    path = inside(box, request, query["path"])
    try:
        os.makedirs(path, mode=int(query["mode"], 8) & 0o777, exist_ok=True)
    except (OSError, ValueError):
        raise Refused(400, None) from None
    return 201, None


def parts_of(body, content_type):
    """Pairs of a name and bytes; the last may be cut short: then True comes behind them."""
    match = re.search(r'boundary="?([^";]+)', content_type or "")
    if not content_type.startswith("multipart/form-data") or not match:
        raise Refused(400, {"errors": ["invalid multipart form"]})
    mark = b"\r\n--" + match[1].encode()
    pieces = (b"\r\n" + body).split(mark)
    cut = not pieces[-1].startswith(b"--")
    found = []
    for piece in pieces[1:] if cut else pieces[1:-1]:
        head, _, data = piece.partition(b"\r\n\r\n")
        name = re.search(rb'name="([^"]*)"', head)
        if name:
            found.append((name[1].decode(), data))
    return found, cut


def keep(box, request, path, data):
    path = inside(box, request, path)
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
    except OSError as e:
        return f"{path}: create: open {path}: {e.strerror.lower()}"
    return None


def handle_upload(box, request):
    parts, cut = parts_of(request.body, request.headers.get("Content-Type"))
    paths, errors, files = {}, [], []
    for name, data in parts:
        match = re.fullmatch(r"files\[(\d+)\]\.(path|file)", name)
        if not match:
            request.violation(f"a part is called {name!r}")
            continue
        if match[2] == "path":
            paths[match[1]] = data.decode().strip()
        elif match[1] not in paths:
            request.violation(f"the path of {name} has not come before it")
            errors.append(f"missing path for file index {match[1]}")
        elif error := keep(box, request, paths[match[1]], data):
            errors.append(error)
        else:
            files.append({"path": paths[match[1]], "bytes": len(data)})
    if cut:
        errors.append("reading part: multipart: NextPart: EOF")
        files = None
    if errors:
        raise Refused(400, {"errors": errors, "files": files or None})
    return 200, {"files": files or None}


def handle_download(box, request):
    out = []
    for text in request.json["paths"]:
        quoted = "".join(c if c.isalnum() or c in "-._~" else "%%%02X" % b
                         for c in text for b in c.encode())
        try:
            with open(inside(box, request, text), "rb") as f:
                data, kind, mime = f.read(), "file", "application/octet-stream"
        except OSError:
            data, kind, mime = b'{"statusCode":404,"code":"FILE_NOT_FOUND"}', "error", \
                "application/json; charset=utf-8"
        out.append(f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{kind}"; '
                   f"filename=\"{text}\"; filename*=utf-8''{quoted}\r\n"
                   f"Content-Length: {len(data)}\r\nContent-Type: {mime}\r\n\r\n".encode() +
                   data + b"\r\n")
    out.append(f"--{BOUNDARY}--\r\n".encode())
    request.answer_type = "multipart/form-data; boundary=" + BOUNDARY
    return 200, b"".join(out)


# ---- git ----

def git(box, *words, credentials=None, path=None):
    env = box.env()
    if credentials and all(credentials):
        basic = base64.b64encode(":".join(credentials).encode()).decode()
        env.update(GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="http.extraHeader",
                   GIT_CONFIG_VALUE_0="Authorization: Basic " + basic)
    where = ["-C", path] if path else []
    done = box.spawn(["git", *where, *words], env=env, cwd=box.home, stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = done.communicate()[0].decode("utf-8", "replace")
    return done.returncode, out


def git_failure(box, out):
    """What the daemon makes of the failure of a transport."""
    if "Authentication failed" in out or "could not read Username" in out:
        return Refused(401, "unauthorized: authentication required", "GIT_AUTH_FAILED")
    if "403" in out:
        return Refused(403, "forbidden: authorization failed", "GIT_AUTH_FAILED")
    if "not found" in out and "branch" not in out.lower():
        return Refused(404, "not found: repository not found", "GIT_REPO_NOT_FOUND")
    if "Remote branch" in out or "couldn't find remote ref" in out:
        if box.era == "v0.190":
            return Refused(500, "internal server error: couldn't find remote ref")
        return Refused(404, "not found: couldn't find remote ref", "GIT_BRANCH_NOT_FOUND")
    if "already exists and is not an empty directory" in out:
        return Refused(409, "conflict: repository already exists", "CONFLICT")
    if box.era == "v0.190":
        return Refused(500, "internal server error: " + out.strip()[-200:])
    return Refused(502, "transport: " + out.strip()[-200:], "GIT_TRANSPORT_FAILED")


def handle_clone(box, request):
    body = request.json
    path = inside(box, request, body["path"])
    if box.blocked or box.hosts is not None:
        raise Refused(500, "internal server error: dial tcp: i/o timeout")
    words = ["clone", "-q", "--single-branch"]
    if body.get("branch"):
        words += ["--branch", body["branch"]]
    code, out = git(box, *words, "--", body["url"], path,
                    credentials=(body.get("username"), body.get("password")))
    if code:
        raise git_failure(box, out)
    if not body.get("branch"):
        # The daemon's git library asks for HEAD alone, and names no branch of the remote.
        git(box, "config", "remote.origin.fetch", "+HEAD:refs/remotes/origin/HEAD", path=path)
    if body.get("commit_id"):
        code, out = git(box, "checkout", "-q", "--detach", body["commit_id"], path=path)
        if code:
            raise Refused(404, "not found: object not found", "NOT_FOUND")
    return 200, None


def repository(box, request, text):
    path = inside(box, request, text)
    if not os.path.isdir(path + "/.git"):
        raise Refused(404, "not found: repository does not exist", "GIT_REPO_NOT_FOUND")
    return path


def branches(box, path):
    return git(box, "for-each-ref", "--format=%(refname:short)", "refs/heads",
               path=path)[1].split()


def current(box, path):
    code, out = git(box, "symbolic-ref", "-q", "--short", "HEAD", path=path)
    return out.strip() if code == 0 else "HEAD"


def handle_branches(box, request):
    path = repository(box, request, dict(request.query)["path"])
    return 200, {"branches": branches(box, path) or None}


def handle_branch(box, request):
    body = request.json
    path = repository(box, request, body["path"])
    if body["name"] in branches(box, path):
        if box.era == "v0.190":
            raise Refused(500, "internal server error: a branch named "
                          f'"refs/heads/{body["name"]}" already exists')
        raise Refused(409, "conflict: branch already exists", "GIT_BRANCH_EXISTS")
    # Of newer daemons nothing says that they check it out.
    words = ["checkout", "-q", "-b"] if box.era == "v0.190" else ["branch"]
    code, out = git(box, *words, body["name"], path=path)
    if code:
        raise Refused(500, "internal server error: " + out.strip()[-200:])
    return 201, None


def handle_checkout(box, request):
    body = request.json
    path = repository(box, request, body["path"])
    code, out = git(box, "checkout", "-q", body["branch"], "--", path=path)
    if code:
        raise Refused(404, "not found: reference not found", "GIT_BRANCH_NOT_FOUND")
    return 200, None


WORDS = {" ": "Unmodified", "?": "Untracked", "M": "Modified", "A": "Added", "D": "Deleted",
         "R": "Renamed", "C": "Copied", "U": "Updated but unmerged"}


def handle_status(box, request):
    path = repository(box, request, dict(request.query)["path"])
    lines = git(box, "status", "--porcelain", "-uall", path=path)[1].splitlines()
    return 200, {
        "currentBranch": current(box, path),
        "fileStatus": [{"name": line[3:], "extra": "", "staging": WORDS[line[0]],
                        "worktree": WORDS[line[1]]} for line in lines],
        "branchPublished": False, "ahead": 0, "behind": 0,
    }


def handle_add(box, request):
    path = repository(box, request, request.json["path"])
    code, out = git(box, "add", "--", *request.json["files"], path=path)
    if code:
        raise Refused(500, "internal server error: entry not found")
    return 200, None


def handle_commit(box, request):
    body = request.json
    path = repository(box, request, body["path"])
    words = ["--allow-empty"] if body.get("allow_empty") else []
    code, out = git(box, "-c", "user.name=" + body["author"], "-c", "user.email=" + body["email"],
                    "commit", "-q", "-m", body["message"], *words, path=path)
    if code:
        raise Refused(500, "internal server error: cannot create empty commit: clean working tree")
    return 200, {"hash": git(box, "rev-parse", "HEAD", path=path)[1].strip()}


def handle_push(box, request):
    body = request.json
    path = repository(box, request, body["path"])
    branch = current(box, path)
    if branch == "HEAD":
        raise Refused(500, "internal server error: command error on HEAD: funny refname")
    code, out = git(box, "push", "-q", "origin", f"refs/heads/{branch}:refs/heads/{branch}",
                    credentials=(body.get("username"), body.get("password")), path=path)
    if code and ("non-fast-forward" in out or "fetch first" in out):
        text = f"non-fast-forward update: refs/heads/{branch}"
        if box.era == "v0.190":
            raise Refused(500, "internal server error: " + text)
        raise Refused(409, "conflict: " + text, "GIT_PUSH_REJECTED")
    if code and "declined" in out:
        if box.era == "v0.190":
            raise Refused(500, "internal server error: command error on refs/heads/" + branch +
                          ": pre-receive hook declined")
        raise Refused(422, "pre-receive hook declined", "GIT_REMOTE_REJECTED")
    if code:
        raise git_failure(box, out)
    return 200, None
