"""The engine: values that never change, their ids in both regimes, and what each field does."""
import base64
import contextlib
import fnmatch
import hashlib
import itertools
import json
import os
import re
import subprocess
import tarfile
import threading

import dagger_server_schema as schema
import dagger_server_tree as trees
from dagger_server_graphql import Failed

OUTPUT_MAX = 102400
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MISSING_IMAGES = ("example.com/missing", "docker.io/library/missing")


class Value:
    """TYPE, what it consists of, and how it came to be: the recipe, whose digest is its identity.
    """

    def __init__(self, kind, data, recipe=None, digest="", kept=False):
        self.type, self.data, self.recipe, self.digest = kind, data, recipe, digest
        self.kept = kept


def digest_of(*parts):
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode("utf-8", "replace")).hexdigest()


def text_of(data):
    return data.decode("utf-8", "replace")


def cut_text(data):
    text = data.strip()
    if len(text) > OUTPUT_MAX:
        note = b"[omitting %d bytes]..." % (len(text) - OUTPUT_MAX)
        text = note + text[-(OUTPUT_MAX - len(note)):]
    return text_of(text)


def varint(n):
    made = b""
    while n > 127:
        made += bytes([n & 127 | 128])
        n >>= 7
    return made + bytes([n])


class Engine:
    def __init__(self, top, era):
        self.era, self.lock = era, threading.RLock()
        self.trees = trees.store
        self.trees.open(top)
        self.image = self.trees.image()
        self.switches = {"git": {}, "git_token": None, "layers": trees.LAYERS_MAX}
        self.trees.switches = self.switches
        self.restart()

    def restart(self):
        """As after an unclean stop: no handle is left, and their numbers begin again."""
        self.handles, self.numbers = {}, {}
        self.next = itertools.count(1)
        self.cache, self.recipes = {}, {}

    def end_session(self):
        for number, value in list(self.handles.items()):
            if not value.kept:
                del self.handles[number]
                self.numbers.pop(value.digest)
                self.cache.pop(value.digest, None)

    # ---- ids ----

    def id_of(self, value):
        if self.era == "0.20":
            return base64.b64encode(json.dumps([value.type, value.recipe]).encode()).decode()
        with self.lock:
            number = self.numbers.get(value.digest) or next(self.next)
            self.numbers[value.digest] = number
            self.handles[number] = value
        kind = value.type.encode()
        inner = b"\x0a" + varint(len(kind)) + kind + b"\x18\x01"
        outer = b"\x08" + varint(number) + b"\x12" + varint(len(inner)) + inner
        return base64.b64encode(b"\x12" + varint(len(outer)) + outer).decode()

    def load(self, text, kind=None):
        """KIND None: any."""
        try:
            data = base64.b64decode(text, validate=True)
            value = self.load_recipe(data) if self.era == "0.20" else self.load_handle(data)
        except (ValueError, IndexError):
            raise Failed(f"failed to decode ID: invalid ID string {text[:40]!r}") from None
        if kind and value.type != kind:
            raise Failed(f"load: expected {kind}, got {value.type}")
        return value

    def load_handle(self, data):
        found = re.match(rb"\x12[^\x08]\x08([\x80-\xff]*[\x00-\x7f])\x12", data, re.S)
        if not found:
            raise ValueError
        number = sum((b & 127) << 7 * i for i, b in enumerate(found[1]))
        if number not in self.handles:
            raise Failed(f"load: missing shared result {number}")
        return self.handles[number]

    def load_recipe(self, data):
        return self.replay(json.loads(data)[1])

    def replay(self, recipe):
        """The value that RECIPE makes; what is known is not made again."""
        if recipe is None:
            return Value("Query", {})
        known = self.recipes.get(json.dumps(recipe))
        if known:
            return known
        parent, field, args = recipe
        args = {name: self.id_of(self.replay(value["of"]))
                if isinstance(value, dict) else value for name, value in args.items()}
        args.pop("_content", None)
        return self.ask(self.replay(parent), field, args)

    # ---- asking ----

    def ask(self, value, field, args):
        """FIELD of VALUE. Objects are remembered: what was asked before does not run again."""
        if field in ("id", "sync"):
            return self.id_of(value)
        wanted = schema.load(self.era)[value.type][field]
        made = schema.bare(wanted.made)
        if made not in NODES_AND_HELPERS:
            return getattr(self, f"{value.type}_{field}")(value, **args)
        args, recipe_args = self.load_args(args, wanted)
        digest = digest_of(value.digest, field, recipe_args)
        with self.lock:
            known = self.cache.get(digest) if "_content" not in recipe_args else None
        if known:
            return known
        data = getattr(self, f"{value.type}_{field}")(value, **args)
        if isinstance(data, (Value, list)):
            return data
        content = data.pop("content", None)
        if content:
            recipe_args["_content"] = content
            digest = digest_of(value.digest, field, recipe_args)
        found = Value(made, data, [value.recipe, field, recipe_args], digest,
                      field in schema.KEPT)
        with self.lock:
            if self.era == "0.20":
                self.recipes[json.dumps(found.recipe)] = found
            return self.cache.setdefault(digest, found)

    def load_args(self, args, wanted):
        """The arguments with their objects; and as a recipe has them."""
        made, recipe = dict(args), dict(args)
        for name, of in wanted.args.items():
            if of.startswith("&") and args.get(name) is not None:
                made[name] = self.load(args[name], of[1:].rstrip("!"))
                recipe[name] = {"of": made[name].recipe}
        return made, recipe

    # ---- Query ----

    def Query_version(self, _):
        return {"0.20": "v0.20.8", "0.21": "v0.21.8"}[self.era]

    def Query_defaultPlatform(self, _):
        return "linux/amd64"

    def Query___schema(self, _):
        fields = [Value("__Field", {"name": n}) for n in schema.load(self.era)["Query"]
                  if n != "__schema"]
        return Value("__Schema", {"queryType": Value("__Type", {"name": "Query",
                                                                "fields": fields})})

    def Query_node(self, _, id):
        return self.load(id)

    def Query_loadContainerFromID(self, _, id):
        return id

    Query_loadDirectoryFromID = Query_loadFileFromID = Query_loadSecretFromID = \
        Query_loadContainerFromID

    def Query_container(self, _, platform=None):
        return {"tree": self.trees.new(), "env": {}, "workdir": "", "user": "", "labels": {},
                "mounts": {}}

    def Query_directory(self, _):
        return {"tree": self.trees.new(), "path": "/"}

    def Query_host(self, _):
        return {}

    def Query_git(self, _, url, keepGitDir=True, httpAuthUsername="", httpAuthToken=None, **rest):
        for start, there in self.switches["git"].items():
            if url.startswith(start):
                url = there + url[len(start):]
        given = httpAuthToken.data["plaintext"] if httpAuthToken else None
        if self.switches["git_token"] not in (None, given):
            raise Failed("git authentication failed: failed to list remote: could not read "
                         "Username")
        return {"url": url, "content": url}

    def Query_setSecret(self, _, name, plaintext):
        return {"name": name, "plaintext": plaintext}

    # ---- Host ----

    def Host_directory(self, _, path, noCache=False, exclude=(), include=(), gitignore=False):
        if not os.path.isdir(path):
            raise Failed(f"failed to get snapshot: lstat {path}: no such file or directory")
        tree = self.trees.new()
        trees.copy_into(path, tree)
        trees.give(tree, "")
        for pattern in exclude or ():
            for at, dirs, files in os.walk(tree):
                for name in dirs + files:
                    inside = f"{at}/{name}"[len(tree) + 1:]
                    if fnmatch.fnmatch(inside, pattern.rstrip("/")):
                        trees.remove(tree, inside)
        return {"tree": tree, "path": "/", **({"content": os.path.basename(tree)}
                                              if noCache else {})}

    def Host_file(self, _, path, noCache=False):
        if not os.path.isfile(path):
            raise Failed(f"lstat {path}: no such file or directory")
        tree, name = self.trees.new(), os.path.basename(path)
        trees.put_file(tree, "/" + name, path, None)
        return {"tree": tree, "path": "/" + name,
                **({"content": os.path.basename(tree)} if noCache else {})}

    # ---- git ----

    def git(self, *words):
        done = subprocess.run(["git", "-c", "safe.directory=*", *words], capture_output=True)
        if done.returncode:
            raise Failed("failed to fetch remote: " + text_of(done.stderr).strip())
        return text_of(done.stdout)

    def refs(self, repo):
        return dict(reversed(line.split("\t", 1)) for line in
                    self.git("ls-remote", repo.data["url"]).splitlines())

    def find_ref(self, repo, name, *starts):
        refs = self.refs(repo)
        for ref in [start + name for start in starts] or [name]:
            if ref in refs:
                return {"url": repo.data["url"], "ref": ref, "commit": refs[ref],
                        "content": refs[ref]}
        if re.fullmatch("[0-9a-f]{40}", name):
            return {"url": repo.data["url"], "ref": "", "commit": name, "content": name}
        raise Failed(f'resolve "{name}": repository does not contain ref "{name}"')

    def GitRepository_branch(self, repo, name):
        return self.find_ref(repo, name, "refs/heads/")

    def GitRepository_tag(self, repo, name):
        return self.find_ref(repo, name, "refs/tags/")

    def GitRepository_ref(self, repo, name):
        return self.find_ref(repo, name, "", "refs/heads/", "refs/tags/")

    def GitRepository_head(self, repo):
        url = repo.data["url"]
        lines = self.git("ls-remote", "--symref", url, "HEAD").splitlines()
        if not lines:
            raise Failed('repository does not contain ref "HEAD"')
        return self.find_ref(repo, lines[0].split()[1])

    def GitRepository_branches(self, repo, patterns=None):
        names = [r[11:] for r in self.refs(repo) if r.startswith("refs/heads/")]
        return [n for n in names if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)]

    def GitRef_commit(self, ref):
        return ref.data["commit"]

    def GitRef_ref(self, ref):
        return ref.data["ref"]

    def GitRef_tree(self, ref, discardGitDir=False, depth=1, includeTags=False):
        tree, d = self.trees.new(), ref.data
        self.git("init", "-q", tree)
        self.git("-C", tree, "fetch", "-q", *([f"--depth={depth}"] if depth > 0 else []),
                 d["url"], d["ref"] or d["commit"])
        head = re.sub("^refs/heads/", "", d["ref"])
        self.git("-C", tree, "remote", "add", "origin", d["url"])
        self.git("-C", tree, "checkout", "-q",
                 *(["-B", head] if head != d["ref"] else ["--detach"]), d["commit"])
        if discardGitDir:
            trees.remove(tree, "/.git")
        os.chmod(tree, 0o711)
        return {"tree": tree, "path": "/"}

    # ---- files of a container or a directory ----

    def inside(self, value, path):
        if value.type == "Directory":
            return os.path.normpath("/" + value.data["path"] + "/" + path)
        return os.path.normpath(os.path.join("/", value.data["workdir"], path))

    def changed(self, value, do, path, *args):
        with self.trees.changing(value.data["tree"]) as tree:
            do(tree, self.inside(value, path), *args)
        return {**value.data, "tree": tree, "ran": None}

    def with_new_file(self, value, path, contents, permissions=None, owner="", expand=False):
        data = contents.encode("utf-8", "surrogatepass")
        return self.changed(value, trees.new_file, path, data, permissions, owner or "")

    def with_file(self, value, path, source, permissions=None, owner="", expand=False):
        at = trees.existing(source.data["tree"], source.data["path"])
        return self.changed(value, trees.put_file, path, at, permissions, owner or "")

    def with_directory(self, value, path, source, owner="", **rest):
        at = trees.existing(source.data["tree"], source.data["path"])
        return self.changed(value, trees.put_directory, path, at, owner or "")

    def without(self, value, path, expand=False):
        return self.changed(value, trees.remove, path)

    def with_symlink(self, value, target, linkName, expand=False):
        return self.changed(value, lambda tree, at: trees.symlink(tree, target, at), linkName)

    def entries(self, value, path="."):
        return trees.entries(value.data["tree"], self.inside(value, path))

    def stat(self, value, path, doNotFollowSymlinks=False):
        return Value("Stat", trees.stat_of(value.data["tree"], self.inside(value, path),
                                           not doNotFollowSymlinks))

    def exists(self, value, path, expectedType=None, doNotFollowSymlinks=False):
        at = trees.resolve(value.data["tree"], self.inside(value, path),
                           not doNotFollowSymlinks and expectedType != "SYMLINK_TYPE")
        if not os.path.lexists(at):
            return False
        kind = trees.stat_of(value.data["tree"], at[len(value.data["tree"]):], False)["fileType"]
        return expectedType in (None, kind + "_TYPE")

    def directory(self, value, path, expand=False):
        at = self.inside(value, path)
        if at in value.data.get("mounts", ()):
            return {"tree": value.data["mounts"][at], "path": "/"}
        trees.entries(value.data["tree"], at)
        return {"tree": value.data["tree"], "path": at}

    def file(self, value, path, expand=False):
        at = self.inside(value, path)
        if os.path.isdir(trees.existing(value.data["tree"], at)):
            raise Failed(f"path {path} is a directory, not a file")
        return {"tree": value.data["tree"], "path": at}

    Container_withNewFile = Directory_withNewFile = with_new_file
    Container_withFile = Directory_withFile = with_file
    Container_withDirectory = Directory_withDirectory = with_directory
    Container_withoutFile = Directory_withoutFile = without
    Container_withoutDirectory = Directory_withoutDirectory = without
    Container_withSymlink = Directory_withSymlink = with_symlink
    Container_stat = Directory_stat = stat
    Container_exists = Directory_exists = exists
    Container_directory = Directory_directory = directory
    Container_file = Directory_file = file
    Directory_entries = entries

    def Container_withoutFiles(self, value, paths, expand=False):
        with self.trees.changing(value.data["tree"]) as tree:
            for path in paths:
                trees.remove(tree, self.inside(value, path))
        return {**value.data, "tree": tree}

    def Directory_withNewDirectory(self, value, path, permissions=0o644):
        return self.changed(value, trees.new_directory, path, permissions)

    def Directory_digest(self, value):
        """Of names, kinds, modes, owners and contents, but no times."""
        return trees.digest(trees.existing(value.data["tree"], value.data["path"]))

    def Directory_export(self, value, path, wipe=False):
        if wipe and os.path.isdir(path):
            for name in os.listdir(path):
                trees.remove(path, "/" + name)
        if not os.path.isdir(path):
            os.makedirs(path)
        source = trees.existing(value.data["tree"], value.data["path"])
        subprocess.run(["cp", "-dR", "--preserve=mode,timestamps,links", source + "/.", path],
                       check=True)
        os.chmod(path, 0o700)
        return os.path.abspath(path)

    def File_contents(self, value, offsetLines=None, limitLines=None):
        with open(trees.existing(value.data["tree"], value.data["path"]), "rb") as f:
            return text_of(f.read())

    def File_size(self, value):
        return os.stat(trees.existing(value.data["tree"], value.data["path"])).st_size

    def File_name(self, value):
        return os.path.basename(value.data["path"])

    def File_export(self, value, path, allowParentDirPath=False):
        if os.path.isdir(path):
            raise Failed(f"destination {path!r} is a directory; must be a file path")
        source = trees.existing(value.data["tree"], value.data["path"])
        subprocess.run(["cp", "--preserve=mode", source, path], check=True)
        return os.path.abspath(path)

    # ---- containers ----

    def Container_from(self, value, address):
        if any(address.startswith(name) for name in MISSING_IMAGES):
            raise Failed(f'failed to resolve image "{address}": not found')
        user = "1000:1000" if "nonroot" in address else ""
        return {**value.data, "tree": self.image, "env": {"PATH": PATH}, "user": user}

    def whole(self, directory):
        """A tree that is DIRECTORY."""
        if directory.data["path"] == "/":
            return directory.data["tree"]
        tree = self.trees.new()
        trees.copy_into(trees.existing(directory.data["tree"], directory.data["path"]), tree)
        return tree

    def Container_withRootfs(self, value, directory):
        return {**value.data, "tree": self.whole(directory)}

    def Container_withMountedDirectory(self, value, path, source, owner="", expand=False):
        """Only commands and directory() see it here."""
        return {**value.data, "mounts": {**value.data["mounts"],
                                         self.inside(value, path): self.whole(source)}}

    def Container_rootfs(self, value):
        return {"tree": value.data["tree"], "path": "/"}

    def Container_withEnvVariable(self, box, /, name, value, expand=False):
        return {**box.data, "env": {**box.data["env"], name: value}}

    def Container_withoutEnvVariable(self, value, name):
        return {**value.data,
                "env": {k: v for k, v in value.data["env"].items() if k != name}}

    def Container_withWorkdir(self, value, path, expand=False):
        return {**value.data, "workdir": self.inside(value, path)}

    def Container_withUser(self, value, name):
        return {**value.data, "user": name}

    def Container_withLabel(self, box, /, name, value):
        return {**box.data, "labels": {**box.data["labels"], name: value}}

    def Container_label(self, value, name):
        return value.data["labels"].get(name)

    def Container_workdir(self, value):
        return value.data["workdir"]

    def Container_user(self, value):
        return value.data["user"]

    def Container_envVariable(self, value, name):
        return value.data["env"].get(name)

    def Container_envVariables(self, value):
        return [Value("EnvVariable", {"name": k, "value": v})
                for k, v in value.data["env"].items()]

    # ---- running ----

    def Container_withExec(self, value, args, stdin="", redirectStdin="", redirectStdout="",
                           redirectStderr="", expect="SUCCESS", **rest):
        if not args:
            raise Failed("no command has been set")
        if stdin and redirectStdin:
            raise Failed("cannot set both stdin and redirectStdin")
        if max(len(a.encode("utf-8", "replace")) for a in args) >= 131072:
            return self.ran(value, {}, expect, args, 1, b"",
                            b"exec /.init: argument list too long")
        data = stdin.encode("utf-8", "replace")
        with contextlib.ExitStack() as changing:
            tree, *mounted = [changing.enter_context(self.trees.changing(t)) for t in
                              (value.data["tree"], *value.data["mounts"].values())]
            mounts = dict(zip(value.data["mounts"], mounted))
            if redirectStdin:
                with open(trees.existing(tree, self.inside(value, redirectStdin)), "rb") as f:
                    data = f.read()
            done = trees.run(tree, args, self.environment(value), value.data["user"],
                             value.data["workdir"] or "/", mounts, data, self.is_wanted)
            if not done:
                raise Failed("context canceled")
            for path, output in ((redirectStdout, done[1]), (redirectStderr, done[2])):
                if path:
                    trees.new_file(tree, self.inside(value, path), output, 0o600)
        return self.ran(value, {"tree": tree, "mounts": mounts}, expect, args, *done)

    wanted = threading.local()

    def is_wanted(self):
        return getattr(self.wanted, "ask", lambda: True)()

    def environment(self, value):
        port = hash(threading.get_ident()) % 20000 + 20000
        noise = {f"OTEL_EXPORTER_OTLP_{k}": f"http://127.0.0.1:{port}/v1/{k.lower()}"
                 for k in ("TRACES_ENDPOINT", "LOGS_ENDPOINT", "METRICS_ENDPOINT")}
        return {"HOME": "/root", "PATH": PATH, **noise, "BAGGAGE": "a=b",
                "TRACEPARENT": "00-1-2-01", **value.data["env"]}

    def ran(self, value, changed, expect, args, code, out, err):
        good = {"SUCCESS": code == 0, "FAILURE": 1 <= code <= 127 or code >= 192,
                "ANY": code <= 127 or code >= 192}[expect]
        if not good:
            raise Failed(f"exit code: {code} [traceparent:0af7651916cd43dd-b7ad6b7169203331]",
                         {"_type": "EXEC_ERROR", "cmd": args, "exitCode": code,
                          "stdout": cut_text(out), "stderr": cut_text(err)})
        return {**value.data, **changed, "ran": (code, out, err)}

    def result(self, value):
        if not value.data.get("ran"):
            raise Failed("no command has been executed")
        return value.data["ran"]

    def Container_exitCode(self, value):
        return self.result(value)[0]

    def Container_stdout(self, value):
        return text_of(self.result(value)[1])

    def Container_stderr(self, value):
        return text_of(self.result(value)[2])

    # ---- archives, Dockerfiles ----

    def Container_export(self, value, path, expand=False):
        """An OCI archive of one layer."""
        temp = self.trees.new()
        blobs = f"{temp}/blobs/sha256"
        os.makedirs(blobs)
        d = value.data

        def blob(data):
            name = hashlib.sha256(data).hexdigest()
            trees.write(f"{blobs}/{name}", data, 0o644)
            return {"digest": "sha256:" + name, "size": len(data)}
        trees.pack(trees.existing(d["tree"], "/"), f"{temp}/layer")
        with open(f"{temp}/layer", "rb") as f:
            layer = blob(f.read())
        os.unlink(f"{temp}/layer")
        config = {"os": "linux", "architecture": "amd64", "rootfs": {
            "type": "layers", "diff_ids": [layer["digest"]]}, "config": {
                "Env": [f"{k}={v}" for k, v in d["env"].items()], "WorkingDir": d["workdir"],
                "User": d["user"], "Labels": d["labels"]}}
        manifest = blob(json.dumps({"schemaVersion": 2, "config": blob(
            json.dumps(config).encode()), "layers": [layer]}).encode())
        trees.write(f"{temp}/oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644)
        trees.write(f"{temp}/index.json", json.dumps(
            {"schemaVersion": 2, "manifests": [manifest]}).encode(), 0o644)
        trees.pack(temp, path)
        return os.path.abspath(path)

    def Container_import(self, value, source, tag=""):
        at = trees.existing(source.data["tree"], source.data["path"])
        temp, tree = self.trees.new(), self.trees.new()
        try:
            trees.unpack(at, temp)
            blob = lambda of: f"{temp}/blobs/sha256/{of['digest'][7:]}"  # noqa: E731
            read = lambda path: json.loads(open(path, "rb").read())  # noqa: E731
            manifest = read(blob(read(f"{temp}/index.json")["manifests"][0]))
            for layer in manifest["layers"]:
                trees.unpack(blob(layer), tree)
            config = read(blob(manifest["config"]))["config"]
        except (OSError, KeyError, ValueError, tarfile.TarError) as e:
            raise Failed(f"failed to import container: {e}") from None
        return {**value.data, "tree": tree, "workdir": config["WorkingDir"] or "",
                "env": dict(e.split("=", 1) for e in config["Env"] or []),
                "user": config["User"] or "", "labels": config["Labels"] or {}}

    def Directory_dockerBuild(self, value, dockerfile="Dockerfile", **rest):
        """FROM, RUN, COPY, ENV, WORKDIR, USER and LABEL."""
        at = trees.existing(value.data["tree"], value.data["path"])
        with open(trees.existing(at, dockerfile)) as f:
            lines = [line.split(None, 1) for line in f.read().splitlines() if line.strip()]
        made = Value("Container", self.Query_container(None))
        for word, rest in lines:
            if word == "FROM":
                made.data = self.Container_from(made, rest)
            elif word == "RUN":
                made.data = self.Container_withExec(made, ["/bin/sh", "-c", rest])
            elif word == "COPY":
                source, target = rest.split()
                with self.trees.changing(made.data["tree"]) as tree:
                    trees.put_file(tree, target, trees.existing(at, source), None)
                made.data = {**made.data, "tree": tree}
            elif word == "ENV":
                name, _, text = rest.partition("=")
                made.data = {**made.data, "env": {**made.data["env"], name: text}}
            elif word == "WORKDIR":
                made.data = {**made.data, "workdir": rest}
            elif word == "USER":
                made.data = {**made.data, "user": rest}
            else:
                raise Failed(f"dockerfile parse error: unknown instruction: {word}")
        return {**made.data, "ran": None}

    def __getattr__(self, name):
        """A member of a plain object."""
        kind, _, field = name.rpartition("_")
        if kind.lstrip("_") not in ("Secret", "Stat", "EnvVariable", "Schema", "Type", "Field"):
            raise AttributeError(name)
        return lambda value: value.data[field]


NODES_AND_HELPERS = schema.NODES | {"Host", "GitRepository", "GitRef", "Stat", "EnvVariable",
                                    "Node", "__Schema", "__Type", "__Field"}
