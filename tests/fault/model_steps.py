"""Steps on the files of one tree: what the host takes through the mount, and a command inside.
Only the standard library.

A step is a list: its word, then its arguments. Contents are told by a seed, so that a step is
short. A command gets this file as its program and [["step", ...], ...] on stdin, and prints a list
of what came of each.
"""
import ctypes
import errno
import hashlib
import json
import os
import random
import shutil
import stat
import subprocess
import sys


def content(seed, size, text):
    """Of SIZE bytes. TEXT is lines, which end as in DOS in half of all files."""
    rng = random.Random(seed)
    if not text:
        return rng.randbytes(size)
    end = b"\r\n" if rng.random() < 0.5 else b"\n"
    out = bytearray()
    while len(out) < size:
        out += b"%x" % rng.getrandbits(rng.choice((8, 64, 200))) + end
    return bytes(out[:size])


def put(path, data, flags=0):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view):]
    finally:
        os.close(fd)


def write(path, seed, size, text):
    put(path, content(seed, size, text), os.O_TRUNC)


def replace(path, seed, size, text):
    put(path + ".new~", content(seed, size, text), os.O_EXCL)
    os.rename(path + ".new~", path)


def append(path, seed, size, text):
    put(path, content(seed, size, text), os.O_APPEND)


def pwrite(path, at, seed, size, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, content(seed, size, text), at)
    finally:
        os.close(fd)


def same(path, seed, size, text):
    """Another content that shows in neither size nor time of modification. Whether it
    shows in no second either."""
    was = os.lstat(path)
    put(path, content(seed, size, text))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    return int(os.lstat(path).st_ctime) == int(was.st_ctime)


def rename(old, new):
    try:
        os.rename(old, new)
    except OSError as e:
        # A directory of the base, under an ordinary user's mount: mv makes another one
        # and moves what is in it.
        if e.errno != errno.EXDEV:
            raise
        subprocess.check_call(["mv", "-T", old, new])


def exchange(old, new):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, old.encode(), -100, new.encode(), 2):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), old)


def nested(path, message):
    git = ["git", "-C", path, "-c", "user.name=n", "-c", "user.email=n@n"]
    subprocess.check_call(["git", "init", "-q", path])
    put(path + "/inner", message.encode())
    subprocess.check_call(git + ["add", "inner"])
    subprocess.check_call(git + ["commit", "-qm", message])


def nested_says(path):
    return subprocess.check_output(["git", "-C", path, "log", "-1", "--format=%s"],
                                   text=True).strip()


def git(*args):
    return subprocess.run(["git", *args], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout.strip()


def shell(script):
    return subprocess.run(["sh", "-ec", script], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout.strip()


def look(root):
    """What there is: path -> [kind, mode, digest or target, number of names, inode, times].
    No .git is part of it."""
    seen = {}
    for at, dirs, files in os.walk(root):
        dirs[:] = [d for d in dirs if d != ".git"]
        for name in dirs + [f for f in files if f != ".git"]:
            path = os.path.join(at, name)
            seen[os.path.relpath(path, root)] = look_at(path)
    return seen


def look_at(path):
    st = os.lstat(path)
    mode = stat.S_IMODE(st.st_mode)
    if stat.S_ISLNK(st.st_mode):
        return ["l", 0o777, os.readlink(path), st.st_nlink, st.st_ino, st.st_mtime_ns | 1,
                st.st_ctime_ns]
    if stat.S_ISDIR(st.st_mode):
        return ["d", mode, "", 1, st.st_ino, 0, 0]
    with open(path, "rb") as f:
        data = f.read()
    if len(data) != st.st_size:
        raise OSError(errno.EIO, f"{len(data)} bytes read of {st.st_size}", path)
    return ["f", mode, hashlib.sha1(data).hexdigest(), st.st_nlink, st.st_ino, st.st_mtime_ns | 1,
            st.st_ctime_ns]


WORDS = {
    "write": write, "replace": replace, "append": append, "pwrite": pwrite, "same": same,
    "truncate": os.truncate, "unlink": os.unlink, "rename": rename, "exchange": exchange,
    "link": os.link, "symlink": os.symlink, "chmod": os.chmod, "mkdir": os.mkdir, "rmdir": os.rmdir,
    "rmtree": shutil.rmtree, "nested": nested,
    "nested_says": nested_says, "git": git, "shell": shell, "look": look,
}


def take(step):
    return WORDS[step[0]](*step[1:])


def main():
    os.umask(0o022)
    done = []
    for step in json.load(sys.stdin):
        try:
            done.append(take(step))
        except subprocess.CalledProcessError as e:
            raise SystemExit(f"{step}: {e.output}")
        except OSError as e:
            raise SystemExit(f"{step}: {e}")
    print(json.dumps(done))


if __name__ == "__main__":
    main()
