#!/usr/bin/env python3
"""
Writes into the index of the repository it runs in what a git would not write.

forge_index.py forge UID GID PATH   the entry of PATH has the stat data of the file as it is now,
                                    which belongs to UID and GID
forge_index.py extensions PATH      what other gits put behind the entries, which says that PATH
                                    need not be looked at
forge_index.py long BYTES           an index of version 4 of so many bytes, whose names are as
                                    long as they can be
forge_index.py age                  it was written before all time
"""
import hashlib
import os
import struct
import subprocess
import sys


def place():
    return subprocess.check_output(["git", "rev-parse", "--git-path", "index"], text=True).strip()


def write(data):
    """With the checksum, which DATA is without."""
    path = place()
    with open(path + ".new", "wb") as f:
        f.write(data + hashlib.sha1(data).digest())
    os.rename(path + ".new", path)


def read():
    with open(place(), "rb") as f:
        return bytearray(f.read()[:-20])


def forge(uid, gid, name):
    data, at = read(), 12
    st = os.lstat(name)
    for _ in range(struct.unpack(">I", data[8:12])[0]):
        flags = struct.unpack(">H", data[at + 60:at + 62])[0]
        begin = at + (64 if flags & 0x4000 else 62)
        end = data.index(b"\0", begin)
        if data[begin:end].decode() == name:
            data[at:at + 24] = struct.pack(
                ">6I", int(st.st_ctime), st.st_ctime_ns % 10**9, int(st.st_mtime),
                st.st_mtime_ns % 10**9, st.st_dev & 0xffffffff, st.st_ino & 0xffffffff)
            data[at + 28:at + 40] = struct.pack(">3I", int(uid), int(gid), st.st_size)
        at = at + (end - at + 8) // 8 * 8
    write(bytes(data[:at]))


def extensions(name):
    data = read()
    n = struct.unpack(">I", data[8:12])[0]
    words = (n + 63) // 64
    # An EWAH bitmap without a bit set: no entry is to be looked at.
    ewah = struct.pack(">II", n, 1) + struct.pack(">Q", words << 1) + struct.pack(">I", 0)
    fsmonitor = struct.pack(">I", 2) + b"x\0" + struct.pack(">I", len(ewah)) + ewah
    untracked = b"\x01x" + bytes(120)
    for sign, text in ((b"FSMN", fsmonitor), (b"UNTR", untracked), (b"EOIE", bytes(24)),
                       (b"IEOT", bytes(4))):
        data += sign + struct.pack(">I", len(text)) + text
    write(bytes(data))


def long(size):
    prefix = b"n" * 4000
    entries, total, last = [], 12, 0
    stat = (bytes(24) + struct.pack(">I", 0o100644) + bytes(12) + b"\x11" * 20
            + struct.pack(">H", 0x0fff))
    i = 0
    while total < int(size):
        tail = b"%09d" % i
        entry = stat + number(last and 9) + (tail if last else prefix + tail) + b"\0"
        last = 1
        entries.append(entry)
        total += len(entry)
        i += 1
    write(b"DIRC" + struct.pack(">II", 4, i) + b"".join(entries))


def number(v):
    out = [v & 0x7f]
    v >>= 7
    while v:
        v -= 1
        out.append(0x80 | v & 0x7f)
        v >>= 7
    return bytes(reversed(out))


def age():
    os.utime(place(), (0, 0))


{"forge": forge, "extensions": extensions, "long": long, "age": age}[sys.argv[1]](*sys.argv[2:])
