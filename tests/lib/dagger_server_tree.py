"""Trees of containers, which are never changed once they stand, and processes that find one as
their root. As at the engine, a tree is layers of an overlay, so that what a command leaves alone
keeps its inodes and times; who is not root has a copy instead, since the mounts of an ordinary user
would come with all others of this host, and keep these busy."""
import contextlib
import ctypes
import hashlib
import itertools
import os
import shutil
import stat
import subprocess
import tarfile
import threading

from dagger_server_graphql import Failed

HOST_DIRS = ("usr", "lib", "lib32", "lib64", "libx32", "bin", "sbin")
LINKS_MAX = 40
KINDS = {stat.S_IFREG: "REGULAR", stat.S_IFDIR: "DIRECTORY", stat.S_IFLNK: "SYMLINK"}
# Nothing of this host can be changed from inside: its programs are read-only, /dev is a new one
# with a few devices, /proc is read-only, and root there has no more rights than in a container.
RIGHTS = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid"
ENTER = """r=$1 user=$2 dir=$3 rights=$4 mounts=$5; shift 5
fail() { echo "the server cannot make a root: $*" >&2; exit 125; }
for d in usr lib lib32 lib64 libx32 bin sbin; do
	if [ -d "/$d" ] && ! [ -L "/$d" ]; then
		mount --bind "/$d" "$r/$d" || fail "$d"
		mount -o remount,bind,ro "$r/$d" 2>/dev/null || [ "$(id -u)" != 0 ] ||
			[ -n "$SERVER_IS_NOT_ROOT" ] || fail "$d"
	fi
done
mount -t tmpfs -o mode=755,size=1m tmpfs "$r/dev" || fail dev
for d in null zero full random urandom; do
	: >"$r/dev/$d" && mount --bind "/dev/$d" "$r/dev/$d" || fail "dev/$d"
done
mkdir -m 1777 "$r/dev/shm"
ln -s /proc/self/fd "$r/dev/fd"
mount -t proc -o ro proc "$r/proc" 2>/dev/null ||
	{ [ -n "$SERVER_IS_NOT_ROOT" ] && mount --rbind /proc "$r/proc"; } || fail proc
while [ "$mounts" -gt 0 ]; do
	mount --bind "$1" "$r$2" || fail "$2"
	mounts=$((mounts - 1))
	shift 2
done
unset SERVER_IS_NOT_ROOT
chroot "$r" /usr/bin/setpriv --bounding-set "$rights" --no-new-privs \
	${user:+--reuid "${user%:*}" --regid "${user#*:}" --clear-groups} \
	/usr/bin/env -C "$dir" -- "$@" <&3 3<&-
exit $?
"""
is_root = os.geteuid() == 0
numbers = itertools.count(1)
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_RDONLY, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 1, 0x4000, 1 << 18, 2
LAYERS_MAX = 440  # of containerd's options for a mount, which are to fit in a page
MOUNTED_MAX = 64


def checked(result, what):
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def mount_overlay(at, options, flags):
    """A directory of a lower layer cannot be renamed there (EXDEV, whereupon mv(1) copies it), but
    for kernels that are set so; SERVER_REDIRECTS: this one is."""
    if os.environ.get("SERVER_REDIRECTS"):
        options += ",redirect_dir=on"
    checked(libc.mount(b"overlay", at.encode(), b"overlay", flags, options.encode()), at)


def unmount(at):
    checked(libc.umount2(at.encode(), MNT_DETACH), at)


def leave_mounts():
    """What is mounted from here on goes with this process. Of what others have mounted nothing
    stays busy that a process serves, since that one would wait for us."""
    checked(libc.unshare(CLONE_NEWNS), "unshare")
    checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "private")
    with open("/proc/self/mountinfo") as f:
        lines = [line.split() for line in f]
    for words in reversed(lines):
        if words[words.index("-") + 1].startswith("fuse"):
            libc.umount2(words[4].encode().decode("unicode_escape").encode("latin-1"), MNT_DETACH)


class Store:
    """A tree is known by the path TOP/NUMBER. It is that directory, or an overlay that is mounted
    there while somebody looks: of TOP/NUMBER.u over the layers that it began with."""

    def __init__(self):
        # Of each tree its layers, the newest first; which are mounted, the last used last.
        self.layers, self.mounted, self.lock = {}, {}, threading.Lock()

    def open(self, top):
        """Before anything else, in the only thread."""
        self.top = os.path.abspath(top)
        os.makedirs(self.top, exist_ok=True)
        if is_root:
            leave_mounts()
            os.chdir(self.top)  # names of layers are short

    def new(self, name=None):
        name = str(name or next(numbers))
        path = f"{self.top}/{name}"
        os.mkdir(path, 0o755)
        self.layers[path] = [name]
        return path

    @contextlib.contextmanager
    def changing(self, tree):
        """The path of a new tree with what is in TREE, until which it may be changed."""
        below = self.layers[tree]
        if len(below) >= self.switches["layers"]:
            raise Failed("failed to mount /tmp/dagger-mount9: mount options is too long")
        made = self.new()
        name = os.path.basename(made)
        if is_root:
            for kind in "uw":
                os.mkdir(f"{made}.{kind}")
            mount_overlay(made, f"lowerdir={':'.join(below)},upperdir={name}.u,workdir={name}.w", 0)
        else:
            copy_into(tree, made)
        try:
            yield made
        finally:
            if is_root:
                unmount(made)
        self.layers[made] = [name + ".u" if is_root else name, *below]

    def look(self, tree):
        """Has TREE at its path; what is no tree is left alone."""
        layers = self.layers.get(tree, ())
        if not is_root or len(layers) < 2:
            return
        with self.lock:
            if not self.mounted.pop(tree, None):
                mount_overlay(tree, f"lowerdir={':'.join(layers)}", MS_RDONLY)
            self.mounted[tree] = True
            if len(self.mounted) > MOUNTED_MAX:
                oldest = next(iter(self.mounted))
                del self.mounted[oldest]
                unmount(oldest)

    def image(self):
        """What every image has."""
        root = self.new()
        for name in HOST_DIRS:
            if os.path.islink("/" + name):
                os.symlink(os.readlink("/" + name), f"{root}/{name}")
            elif os.path.isdir("/" + name):
                os.mkdir(f"{root}/{name}")
        for name, mode in (("etc", 0o755), ("root", 0o700), ("tmp", 0o1777), ("dev", 0o755),
                           ("proc", 0o555)):
            os.mkdir(f"{root}/{name}")
            os.chmod(f"{root}/{name}", mode)
        write(f"{root}/etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"
              b"app:x:1000:1000:app:/tmp:/bin/sh\n", 0o644)
        write(f"{root}/etc/group", b"root:x:0:\napp:x:1000:\n", 0o644)
        return root


store = Store()


def write(path, data, mode):
    with open(path, "wb") as f:
        f.write(data)
    os.chmod(path, mode)


def copy_into(source, target):
    """What is in the directory SOURCE, merged into TARGET, which gets its mode."""
    subprocess.run(["cp", "-dR", "--preserve=mode,timestamps,links,ownership", "--reflink=auto",
                    "-T", source, target], check=True)


def give(path, owner):
    """OWNER: UID[:GID] or a name of etc/passwd, "" for root."""
    if not is_root:
        return
    uid, _, gid = {"": "0:0", "root": "0:0", "app": "1000:1000"}.get(owner, owner).partition(":")
    subprocess.run(["chown", "-hR", f"{uid}:{gid or uid}", path],
                   check=True)


# ---- names ----

def resolve(root, path, follow=True):
    """The host's path of PATH in ROOT, which links do not leave. What is missing at the end is
    not refused."""
    store.look(root)
    todo, at, links = [p for p in path.split("/") if p not in ("", ".")], [], 0
    while todo:
        part = todo.pop(0)
        if part == "..":
            at[-1:] = []
            continue
        here = "/".join([root, *at, part])
        if os.path.islink(here) and (todo or follow):
            links += 1
            if links > LINKS_MAX:
                raise Failed(f"lstat {path}: too many levels of symbolic links")
            target = os.readlink(here)
            if target.startswith("/"):
                at = []
            todo[:0] = [p for p in target.split("/") if p not in ("", ".")]
            continue
        if todo and os.path.lexists(here) and not os.path.isdir(here):
            raise Failed(f"lstat /tmp/dagger-mount7{path}: not a directory")
        at.append(part)
    return "/".join([root, *at])


def existing(root, path, follow=True):
    found = resolve(root, path, follow)
    if not os.path.lexists(found):
        raise Failed(f"lstat {path}: no such file or directory")
    return found


def make_parents(root, path):
    """The host's path of PATH; the directories above it are there afterwards."""
    parent, name = os.path.split(path.rstrip("/"))
    if not name:
        return root
    above = root
    for part in [p for p in parent.split("/") if p]:
        above = resolve(root, f"{above[len(root):]}/{part}")
        if not os.path.lexists(above):
            os.mkdir(above, 0o755)
        elif not os.path.isdir(above):
            raise Failed(f"mkdir {above[len(root):]}: not a directory")
    return f"{above}/{name}"


# ---- what fields do; each returns nothing and changes the tree ROOT, which is new ----

def place_file(root, path, name):
    """Where a file goes that is written to PATH: beneath a directory that is there already."""
    at = make_parents(root, path)
    if os.path.isdir(at) and not os.path.islink(at):
        at = f"{at}/{name}"
    if len(os.path.basename(at).encode("utf-8", "surrogateescape")) > 255:
        raise Failed(f"open {path}: file name too long")
    if os.path.lexists(at):
        os.unlink(at)
    return at


def new_file(root, path, data, mode, owner=""):
    at = place_file(root, path, os.path.basename(path))
    write(at, data, mode or 0o644)
    give(at, owner)


def put_file(root, path, source, mode, owner=""):
    at = place_file(root, path, os.path.basename(source))
    shutil.copyfile(source, at)
    os.chmod(at, mode if mode is not None else os.stat(source).st_mode & 0o777)
    give(at, owner)


def put_directory(root, path, source, owner=""):
    at = make_parents(root, path)
    if os.path.islink(at):
        at = resolve(root, path)
    if os.path.lexists(at) and not os.path.isdir(at):
        os.unlink(at)
    if not owner:
        copy_into(source, at)
        return
    temp = at + ".of-the-server"
    copy_into(source, temp)
    give(temp, owner)
    copy_into(temp, at)
    shutil.rmtree(temp)


def new_directory(root, path, mode):
    at = make_parents(root, path)
    if not os.path.isdir(at):
        os.mkdir(at)
    os.chmod(at, mode)


def remove(root, path):
    at = resolve(root, path, follow=False)
    if os.path.isdir(at) and not os.path.islink(at):
        shutil.rmtree(at)
    elif os.path.lexists(at):
        os.unlink(at)


def symlink(root, target, path):
    at = make_parents(root, path)
    if os.path.lexists(at):
        raise Failed(f"symlink {target} {path}: file exists")
    os.symlink(target, at)


def entries(root, path):
    at = existing(root, path)
    if not os.path.isdir(at):
        raise Failed(f"path {path} is a file, not a directory")
    return sorted(e.name + ("/" if e.is_dir(follow_symlinks=False) else "")
                  for e in os.scandir(at))


def stat_of(root, path, follow):
    at = resolve(root, path, follow)
    if not os.path.lexists(at):
        raise Failed(f"stat {path}: no such file or directory")
    st = os.lstat(at)
    return {"name": os.path.basename(path), "size": st.st_size,
            "fileType": KINDS.get(stat.S_IFMT(st.st_mode), "UNKNOWN"),
            "permissions": st.st_mode & 0o777}


def digest(root):
    """What tells the files in ROOT from other ones; times do not count."""
    told = hashlib.sha256()
    for at, dirs, files in os.walk(root):
        dirs.sort()
        for name in sorted(dirs + files):
            path = f"{at}/{name}"
            st = os.lstat(path)
            told.update(repr((path[len(root):], st.st_mode, st.st_uid, st.st_gid)).encode())
            if stat.S_ISLNK(st.st_mode):
                told.update(os.readlink(path).encode("utf-8", "surrogateescape"))
            elif stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    told.update(hashlib.sha256(f.read()).digest())
    return "sha256:" + told.hexdigest()


# ---- processes ----

def enter(root, user, workdir, mounts):
    """The words in front of a command that is to find ROOT as its root."""
    namespaces = ["--mount", "--pid"] + ([] if is_root else ["--user", "--map-root-user"])
    # It ends with the server, although nobody waits for it then.
    return ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "--fork", "--kill-child",
            "sh", "-c", ENTER, "sh", root, user if is_root else "", workdir, RIGHTS,
            str(len(mounts)), *(word for at, tree in mounts.items() for word in (tree, at))]


def run(root, args, env, user, workdir, mounts, stdin, is_wanted):
    """Runs ARGS in ROOT, which it changes, as it does what MOUNTS has at each path. Its exit code,
    stdout and stderr; None: nobody wants them any more."""
    for path in [workdir, *mounts]:
        os.makedirs(make_parents(root, path), exist_ok=True)
    read, feed = os.pipe()
    words = enter(root, user, workdir, mounts)
    with open("/dev/null", "rb") as null:
        child = subprocess.Popen(
            ["sh", "-c", 'exec 3<&0 </dev/null; exec "$@"', "sh", *words, *args],
            stdin=read if stdin else null, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**env, **({} if is_root else {"SERVER_IS_NOT_ROOT": "1"})},
            start_new_session=True)
    os.close(read)
    feeder = feed_with(feed, stdin)
    try:
        while True:
            try:
                out, err = child.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if not is_wanted():
                    child.kill()
                    child.communicate()
                    return None
    finally:
        feeder.join()
    for name in ("dev", "proc", "sys"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    code = child.returncode
    if code == 127 and err.startswith(b"/usr/bin/env: "):
        code, err = 1, f'exec: "{args[0]}": executable file not found in $PATH\n'.encode()
    return code, out, err


def feed_with(fd, data):
    def feed():
        with open(fd, "wb", buffering=0) as f:
            try:
                f.write(data)
            except BrokenPipeError:
                pass
    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    return thread


# ---- archives ----

def pack(root, path):
    """The tree as a tar; sockets and the like are left out."""
    with tarfile.open(path, "w") as tar:
        for name in sorted(os.listdir(root)):
            tar.add(f"{root}/{name}", arcname=name)


def unpack(path, root):
    with tarfile.open(path) as tar:
        tar.extractall(root, numeric_owner=True)
