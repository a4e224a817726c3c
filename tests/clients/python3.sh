#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	python3 - <<'END'
import json, os, mmap
with open("f", "w") as f:
    f.write("line\n" * 10000)
assert open("f").read() == "line\n" * 10000
os.rename("f", "g")
assert sorted(n for n in os.listdir(".") if n[0] != ".") == [
    "Makefile", "README.md", "g", "link", "src"]
with open("ctl/exec", "w") as f:
    f.write(json.dumps(["sh", "-c", "wc -l <g; exit 4"]))
assert open("ctl/stdout").read().strip() == "10000"
assert open("ctl/status").read().split()[:2] == ["4", "exited"]
with open("ctl/exec", "r+b", buffering=0) as f:
    f.write(b"echo same\0file\0\0".replace(b" ", b"\0"))
    assert json.loads(f.readall())["stdout"] == "same file\n"
with open("g", "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
    m[0:4] = b"LINE"
assert open("g").read(9) == "LINE\nline"
END
}

reports() {
	python3 - <<'END'
import errno
def refused(number, path, text):
    try:
        with open(path, "w") as f:
            f.write(text)
    except OSError as e:
        assert e.errno == number, e
    else:
        raise SystemExit("not refused: " + text)
refused(errno.ENOENT, "ctl/exec", "no-such-program\n")
refused(errno.EINVAL, "ctl/exec", "a | b\n")
refused(errno.EINVAL, "ctl/exec", '{"argv":[]}')
END
}

begin python3
claim "python3 writes, reads, maps, runs commands" works
claim "python3 gets the errno as OSError" reports
end
