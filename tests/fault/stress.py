"""stress.py MNT SECONDS PROCESSES: many processes make, run in, kill, rename, fork and
remove sandboxes at once.

They share a few names, so that each of these meets each other on the same sandbox. A refusal is an
answer here; what is held against the daemon is EIO, ENOTCONN (it is gone) and an operation that
does not return, which ends the process by SIGALRM.
"""
import errno
import mmap
import os
import random
import signal
import sys
import time

mnt, seconds, processes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
NAMES = ["s1", "s2", "s3", "s4"]
NEVER = {errno.EIO, errno.ENOTCONN, errno.ECONNABORTED, errno.ENOSYS}
LONGEST = 120


def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def create(name):
    os.mkdir(f"{mnt}/{name}")


def remove(name):
    os.rmdir(f"{mnt}/{name}")


def teardown(name):
    write(f"{mnt}/ctl/teardown", name + "\n")


def rename(name):
    os.rename(f"{mnt}/{name}", f"{mnt}/{random.choice(NAMES)}")


def fork(name):
    write(f"{mnt}/{name}/ctl/fork", random.choice(NAMES) + "\n")


def execute(name):
    write(f"{mnt}/{name}/ctl/exec",
          '{"argv":["sh","-c","echo x >>made; cat README.md"],"cwd":"sub"}\n')


def spawn(name):
    write(f"{mnt}/{name}/ctl/spawn", '["sh","-c","sleep 0.2; echo y >sub/made"]\n')


def kill(name):
    write(f"{mnt}/{name}/ctl/kill", "1\n")


def make_cwd(name):
    os.makedirs(f"{mnt}/{name}/sub", exist_ok=True)


def remove_cwd(name):
    for entry in os.listdir(f"{mnt}/{name}/sub"):
        os.unlink(f"{mnt}/{name}/sub/{entry}")
    os.rmdir(f"{mnt}/{name}/sub")


def look(name):
    for path in ("ctl/info", "ctl/status", "ctl/stdout", "sub/made", "README.md"):
        with open(f"{mnt}/{name}/{path}", "rb") as f:
            f.read()
    os.listdir(f"{mnt}/{name}")
    os.listdir(mnt)


def snapshot(name):
    write(f"{mnt}/{name}/ctl/snapshot", "stress\n")


STEPS = [create] * 4 + [execute] * 6 + [make_cwd] * 3 + [look] * 3 + [spawn] * 2 + [
    kill, rename, fork, remove, teardown, remove_cwd, snapshot]
KINDS = list(dict.fromkeys(STEPS))
# Of KINDS, whether it has succeeded in any process. Each is to do so: what a slow machine lacks
# of that gets more time.
succeeded = mmap.mmap(-1, len(KINDS))
MORE = 5


def work(seed):
    random.seed(seed)
    begun = time.monotonic()
    while time.monotonic() < begun + seconds * (1 if all(succeeded[:]) else MORE):
        step = random.choice(STEPS)
        signal.alarm(LONGEST)
        try:
            step(random.choice(NAMES))
            succeeded[KINDS.index(step)] = 1
        except OSError as e:
            if e.errno in NEVER:
                print(f"{step.__name__}: {e}", file=sys.stderr, flush=True)
                return 1
        signal.alarm(0)
    return 0


children = {}
for number in range(1, processes + 1):
    pid = os.fork()
    if pid == 0:
        os._exit(work(number))
    children[pid] = number
failed = 0
while children:
    pid, status = os.wait()
    number = children.pop(pid)
    if status:
        print(f"process {number}: "
              f"{'signal ' + str(os.WTERMSIG(status)) if os.WIFSIGNALED(status) else 'failed'}",
              file=sys.stderr)
        failed = 1
for number, step in enumerate(KINDS):
    if not succeeded[number]:
        print(f"{step.__name__}: has never succeeded", file=sys.stderr)
        failed = 1
sys.exit(failed)
