#!/bin/sh
. "$TESTS/lib/mount.sh"
# A request is carried out whole, once, and never by its beginning, however many processes write it.

ctl() {
	echo "$MNT/a/ctl/$1"
}

jobs() {
	ls "$MNT/a/ctl/jobs" | grep -v last | wc -l
}

# said WANT: so says the only command that has been run since the last call, or since begun.
begun() {
	before=$(jobs)
}

said() {
	same "$1" "$(cat "$MNT/a/ctl/stdout")"
	same $((before + 1)) "$(jobs)"
	begun
}

# in_shell TEXT: run by every shell there is; F is ctl/exec.
in_shell() {
	begun
	for shell in bash dash 'busybox sh'; do
		command -v "${shell%% *}" >/dev/null || continue
		F=$(ctl exec) G=$ROOM/go D=$ROOM/done $shell -c "$1" || fail "$shell: $?"
		said "A $(date +%Y)"
	done
}

substitution() {
	in_shell '{ printf "echo A "; printf "%s\n" "$(date +%Y)"; } >"$F"'
}

kept_open() {
	in_shell 'exec 3>"$F"; printf "echo A " >&3; date +%Y >&3; exec 3>&-'
	in_shell 'exec 3>"$F"; printf "echo A " >&3; printf "%s" "$(date +%Y)" >&3; exec 3>&-'
}

programs() {
	in_shell '{ env printf "echo A "; date +%Y; } >"$F"'
	in_shell '{ env printf "echo "; env printf "A "; env printf "%s" "$(date +%Y)"; } >"$F"'
	in_shell '(env printf "echo A "; (date +%Y)) >"$F"'
	in_shell '{ printf "echo A "; true | cat; date +%Y; } >"$F"'
}

# Whoever opened the file closes it, or ends, before a child of it writes the rest.
in_background() {
	mkfifo "$ROOM/go" "$ROOM/done"
	in_shell '{ printf "echo A "; { read -r _ <&8; date +%Y; exec 1>&-; echo >"$D"; } 8<"$G" & } >"$F"
		echo >"$G"; read -r _ <"$D"'
	in_shell 'sh -c '\''exec 3>"$F"; { printf "echo A " >&3; read -r _; date +%Y >&3
		exec 3>&-; echo >"$D"; } <"$G" &'\'' ; echo >"$G"; read -r _ <"$D"'
}

unended() {
	begun
	for shell in bash dash 'busybox sh'; do
		command -v "${shell%% *}" >/dev/null || continue
		F=$(ctl exec) $shell -c 'printf "echo one" >"$F"'
		said one
		F=$(ctl exec) $shell -c '{ env printf "echo two"; } >"$F"'
		said two
	done
	python3 -c 'import sys; open(sys.argv[1], "w").write("echo three")' "$(ctl exec)"
	said three
	python3 -c 'import sys; f = open(sys.argv[1], "w"); f.write("echo four"); sys.exit()' "$(ctl exec)"
	said four
}

python() {
	begun
	python3 - "$(ctl exec)" <<'END'
import os, subprocess, sys, threading
fd = os.open(sys.argv[1], os.O_WRONLY)
os.write(fd, b"echo A ")
if os.fork() == 0:
    os._exit(0)
os.wait()
subprocess.run(["true"])
os.close(os.dup(fd))
t = threading.Thread(target=os.write, args=(fd, b"B "))
t.start()
t.join()
subprocess.run(["true"], close_fds=False)
if os.fork() == 0:
    os.write(fd, b"C\n")
    os._exit(0)
os.wait()
END
	said 'A B C'
}

# Each thread has the file open for itself, and its close waits for its own command.
threads() {
	python3 - "$MNT/a" <<'END'
import os, sys, threading
def one(i):
    for n in range(5):
        with open(sys.argv[1] + "/ctl/exec", "w") as f:
            f.write("touch t%d.%d" % (i, n))
        os.stat(sys.argv[1] + "/t%d.%d" % (i, n))
        os.unlink(sys.argv[1] + "/t%d.%d" % (i, n))
    ok.append(i)
ok = []
all = [threading.Thread(target=one, args=(i,)) for i in range(6)]
for t in all: t.start()
for t in all: t.join()
assert len(ok) == 6, ok
END
}

json() {
	in_shell '{ printf "{\"argv\":[\"echo\",\"A\","; printf "\"%s\"]}" "$(date +%Y)"; } >"$F"'
	in_shell '{ printf "[\"echo\",\"A\",\"%s\"" "$(date +%Y)"; true | cat; printf "]"; } >"$F"'
	in_shell '{ printf "echo\0"; env printf "A\0"; printf "%s\0" "$(date +%Y)"; } >"$F"'
}

environment() {
	{
		printf 'A='
		printf '%s\nB=2' "$(date +%Y)"
	} >"$(ctl env)"
	same "A=$(date +%Y) B=2" "$(tr '\n' ' ' <"$(ctl env)" | sed 's/ $//')"
	: >"$(ctl env)"
}

other_files() {
	{
		printf '{"message":'
		printf '"of %s"}' "$(date +%Y)"
	} >"$(ctl snapshot)"
	same 1 "$(ls "$(ctl snapshots)" | wc -l)"
	{
		printf 'bo'
		printf '%s\n' "$(echo x)"
	} >"$MNT/ctl/create"
	[ -d "$MNT/box" ]
	{
		printf 'b'
		printf 'o%s' "$(echo x)"
	} >"$MNT/ctl/teardown"
	expect ENOENT stat "$MNT/box"
}

# Whoever is ended by a signal has not said that the request is whole.
killed() {
	before=$(cat "$(ctl jobs)/last/status" | sed 's/.*job=\([0-9]*\).*/\1/')
	refuse sh -c 'printf "touch ran" >&3; kill -9 $$' 3>"$(ctl exec)"
	like '*signal*' "$(cat "$(ctl error)")"
	refuse sh -c 'exec 3>"$1"; printf "touch ran" >&3; sleep "$2" & kill -9 $$' \
		sh "$(ctl exec)" 0.1$$
	while ps -o args= | grep -q "[s]leep 0.1$$"; do tick; done
	expect ENOENT stat "$MNT/a/ran"
}

# A read after a request that was refused gives nothing of the one before it.
refused_after_success() {
	python3 - "$MNT" <<'END'
import errno, os, sys
def after(path, good, bad):
    fd = os.open(sys.argv[1] + path, os.O_RDWR)
    os.write(fd, good)
    # While a run goes on, what is read is its output.
    while path.endswith("run") and os.read(fd, 4096):
        pass
    try:
        os.write(fd, bad)
        sys.exit(path + " took what is bad")
    except OSError as e:
        assert e.errno == errno.EINVAL, e
    told = os.read(fd, 4096)
    os.close(fd)
    return told
assert after("/ctl/create", b"n1\n", b"{}\n") == b""
assert after("/a/ctl/snapshot", b"good\n", b"{}x\n") == b""
told = after("/a/ctl/exec", b"echo good\n", b"{}\n")
assert b'"errno":"EINVAL"' in told and b"good" not in told, told
assert b"good" not in after("/a/ctl/run", b"echo good\n", b"{}\n")
with open(sys.argv[1] + "/a/ctl/snapshot") as f:
    assert f.read() == ""
END
	echo n1 >"$MNT/ctl/teardown"
	echo again >"$(ctl snapshot)"
	[ -n "$(cat "$(ctl snapshot)")" ]
}

# What the machine keeps is listed here, of each message no more than somebody reads.
many_snapshots() {
	list=$(echo "$STATE"/remote/a-*/snapshots)
	cp "$list" "$ROOM/list"
	python3 - "$(ctl snapshot)" "$list" <<'END'
import json, sys
with open(sys.argv[1], "w") as f:
    json.dump({"message": "x" + "\u00e9" * 20000}, f, ensure_ascii=False)
with open(sys.argv[2]) as f:
    last = json.loads(f.readlines()[-1])
assert last["message"] == "x" + "\u00e9" * 511, len(last["message"])
with open(sys.argv[2], "a") as f:
    for i in range(18):
        print(json.dumps({"id": "%040x" % i, "message": "m" * 1000000, "time_ms": 1}), file=f)
END
	same $(($(wc -l <"$ROOM/list") + 19)) "$(ls "$(ctl snapshots)" | wc -l)"
	cp "$ROOM/list" "$list"
}

# What a snapshot was made of is kept, where it is made here.
drops_branch() {
	echo a >"$MNT/ctl/teardown"
	is_away || git -C "$REPO" branch -D sandbox/a
}

claim "mounting" mount_repo
claim "a sandbox" box a
claim "a request with a substitution in it" substitution
claim "a descriptor that is kept open" kept_open
claim "external programs and subshells write parts" programs
claim "a child in the background writes the rest" in_background
claim "what no newline ends is carried out inside the last close" unended
claim "Python: fork, subprocess, dup, threads" python
claim "threads with files of their own wait for their own commands" threads
claim "JSON and NUL-separated requests in parts" json
claim "env in parts" environment
claim "snapshot, create, teardown in parts" other_files
claim "a refusal is not told by the success before it" refused_after_success
claim "a beginning whose writer was killed is refused" killed
claim_away "there may be any number of snapshots" many_snapshots
claim "and nothing is left of it" drops_branch
finish
