"""Reads an answer of the runner (backends/remote/frames.sh) and prints it with another manifest.

  hostile.py MODE

MODE a number: the answer is nothing but that errno.
"""
import base64
import gzip
import sys

HUGE = 10 ** 7


def record(flag, kind, mode, size, mtime, ino, nlink, path, target=b""):
    fields = (flag, kind, mode, size, mtime, ino, nlink)
    return " ".join(map(str, fields)).encode() + b" " + path + b"\0" + target + b"\0"


def file(path, size=5, kind="f", target=b"", mode="644", mtime="1000.5", ino=77, nlink=1):
    return record("-", kind, mode, size, mtime, ino, nlink, path, target)


def listed(path):
    return record("L", "d", "755", 0, "1000", 78, 2, path)


def entries(mode):
    if mode == "dots":
        for path in (b"../evil", b"a/../../evil", b"./evil", b"src/..", b"..", b"a//evil", b"evil/",
                     b"src/./evil"):
            yield file(path)
    elif mode == "absolute":
        for path in (b"/evil", b"/etc/passwd", b"//evil"):
            yield file(path)
    elif mode == "links":
        yield file(b"way", kind="l", target=b"/etc")
        yield file(b"way/passwd")
        yield file(b"up", kind="l", target=b"../../../..")
        yield file(b"up/evil")
        yield file(b"self", kind="l", target=b"self")
        yield file(b"self/evil")
        yield file(b"long", kind="l", target=b"x" * 100000)
        yield file(b"none", kind="l")
    elif mode == "cycles":
        yield listed(b"cycle")
        yield listed(b"cycle/cycle")
        yield listed(b"cycle")
        yield file(b"cycle/cycle", kind="d", ino=78)
        yield file(b"README.md/evil")
        yield listed(b"README.md")
        yield file(b"README.md", ino=78, nlink=4000000000)
    elif mode == "sizes":
        for i, size in enumerate((2 ** 62, 2 ** 63, 2 ** 64, 10 ** 30, -1, "x", 2 ** 61)):
            yield file(b"size%d" % i, size=size)
        for i, mtime in enumerate(("-1", "9" * 40, "1.999999999999", "x", "", 2 ** 63)):
            yield file(b"time%d" % i, mtime=mtime)
        yield file(b"mode", mode="7777")
        yield file(b"mode2", mode="99999999999")
        yield file(b"links", nlink=-1)
        yield file(b"number", ino=2 ** 70)
    elif mode == "names":
        yield file(b"new\nline")
        yield file(b"\xff\xfe")
        yield file(b"n" * 256)
        yield file(b"d/" * 3000 + b"deep")
        yield file(b"")
        yield b"garbage\0garbage\0"
        yield b"- f 644 5 1000 77 1 cut"
    elif mode == "devices":
        for kind in "bcDpsx?":
            yield file(b"kind" + kind.encode(), kind=kind)
    elif mode == "controls":
        for path in (b"ctl", b"ctl/exec", b"stdout", b"status", b".git", b".git/config"):
            yield file(path)


def manifest(mode):
    if mode == "many":
        line = b"".join(file(b"many/%d" % i) for i in range(HUGE // 100))
        return line * 100
    if mode == "bomb":
        return b"\0" * (1 << 31)
    return b"".join(entries(mode))


def main():
    mode = sys.argv[1]
    lines = sys.stdin.buffer.read().split(b"\n")
    out = sys.stdout.buffer
    if mode.isdigit():
        lines = [b"Ft - " + mode.encode() + b" 0 0 it says", b".", b""]
    for line in lines[:-1]:
        words = line.split(b" ")
        if words[0][:1] == b"M":
            data = base64.b64decode(words[5])
            data = gzip.decompress(data) if words[0] == b"Mz" else data
            packed = gzip.compress(data + manifest(mode), 1)
            line = b" ".join([b"Mz"] + words[1:5] + [base64.b64encode(packed)])
        elif mode == "junk":
            line = b"Z - 1 2 3 !!!!"
        out.write(line + b"\n")


main()
