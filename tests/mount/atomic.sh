#!/bin/sh
. "$TESTS/lib/mount.sh"
# Editors and agents write a new file and rename it over the one they save: onto a
# control, the rename is the write.

ctl=$MNT/a/ctl

# save FILE TEXT: the errno of the rename of a file with TEXT onto the control.
save() {
	printf "$2" >"$ctl/$1.tmp.$$"
	"$TOOL" rename "$ctl/$1.tmp.$$" "$ctl/$1"
}

is_write() {
	same 0 "$(save exec 'echo one\n')"
	same one "$(cat "$ctl/stdout")"
	same 0 "$(save exec 'echo without an end of line')"
	same 'without an end of line' "$(cat "$ctl/stdout")"
	same 0 "$(save exec '{"argv": ["echo",\n"by json"]}')"
	same 'by json' "$(cat "$ctl/stdout")"
	same 0 "$(save exec 'sh -c "exit 7"')"
	like '7 exited *' "$(cat "$ctl/status")"
	echo >"$MNT/a/count"
	same 0 "$(save exec 'sh -c "echo a >>count"\nsh -c "echo b >>count"\n')"
	same ' a b ' "$(tr '\n' ' ' <"$MNT/a/count")"
	same 0 "$(save spawn 'echo spawned')"
	same 0 "$(save timeout_ms 12345)"
	same 12345 "$(cat "$ctl/timeout_ms")"
	same 0 "$(save env 'A=1\nB=2')"
	same 'A=1
B=2' "$(cat "$ctl/env")"
	same 0 "$(save env '')"
	same '' "$(cat "$ctl/env")"
	same 0 "$(save snapshot 'a message')"
	[ -n "$(ls "$ctl/snapshots")" ]
	same 0 "$(save limits/jobs 99)"
	same 99 "$(cat "$ctl/limits/jobs")"
	mkdir "$ctl/jobs/named"
	same 0 "$(save jobs/named/exec 'echo in a job of its own')"
	same 'in a job of its own' "$(cat "$ctl/jobs/named/stdout")"
	printf '{"name":"made"}' >"$MNT/ctl/new"
	mv "$MNT/ctl/new" "$MNT/ctl/create"
	expect 0 stat "$MNT/made"
	printf made >"$MNT/ctl/new"
	mv "$MNT/ctl/new" "$MNT/ctl/teardown"
	expect ENOENT stat "$MNT/made"
}

refused() {
	same ENOENT "$(save exec no-such-program)"
	error_says a 'no-such-program'
	same EINVAL "$(save exec 'a | b')"
	error_says a 'sh'
	same EINVAL "$(save exec '["echo", ')"
	same EACCES "$(save cwd '../b')"
	same EINVAL "$(save timeout_ms many)"
	same EACCES "$(save status '0 exited')"
	error_says a 'status can only be read'
	same EOPNOTSUPP "$(save run 'echo x')"
	same EISDIR "$(save jobs x)"
	head -c 1100000 /dev/zero | tr '\0' x >"$ctl/large"
	expect E2BIG rename "$ctl/large" "$ctl/exec"
	error_says a 1048576
	expect 0 stat "$ctl/large"
	expect 0 unlink "$ctl/large"
	refuse sh -c "head -c 3000000 /dev/zero >'$ctl/larger'"
	rm "$ctl/larger"
	for file in exec cwd timeout_ms status run jobs; do
		rm "$ctl/$file.tmp.$$"
	done
}

# It is the same node as before, for who asks at once and for who has forgotten.
as_before() {
	for file in exec cwd limits/procs; do
		stat -c '%A %U %i %h' "$ctl/$file" >"$ROOM/before"
		cat "$ctl/$file" >/dev/null
		case $file in
		exec) same 0 "$(save exec 'echo x')" ;;
		cwd) same 0 "$(save cwd src)" ;;
		*) same 0 "$(save $file 100)" ;;
		esac
		stat -c '%A %U %i %h' "$ctl/$file" | diff "$ROOM/before" -
		drop_caches
		stat -c '%A %U %i %h' "$ctl/$file" | diff "$ROOM/before" -
	done
	same src "$(cat "$ctl/cwd")"
	same 100 "$(cat "$ctl/limits/procs")"
	echo . >"$ctl/cwd"
	same . "$(cat "$ctl/cwd")"
	echo 'echo by write' >"$ctl/exec"
	same 'by write' "$(cat "$ctl/stdout")"
	refuse sh -c "{ ls -A '$ctl'; ls -A '$ctl/limits'; ls -A '$MNT/ctl'; } | grep tmp"
	expect ENOENT stat "$ctl/exec.tmp.$$"
}

private_files() {
	expect 0 open "$ctl/x.1" O_CREAT\|O_EXCL\|O_WRONLY
	expect EEXIST open "$ctl/x.1" O_CREAT\|O_EXCL\|O_WRONLY
	expect EEXIST open "$ctl/exec" O_CREAT\|O_EXCL\|O_WRONLY
	expect EEXIST open "$ctl/stdout" O_CREAT\|O_EXCL\|O_WRONLY
	echo one >"$ctl/x.1"
	echo two >>"$ctl/x.1"
	same 'one
two' "$(cat "$ctl/x.1")"
	same 8 "$("$TOOL" stat "$ctl/x.1" size)"
	expect 0 truncate "$ctl/x.1" 3
	same one "$(cat "$ctl/x.1")"
	expect 0 chmod "$ctl/x.1" 640
	expect 0 utimens "$ctl/x.1" 12345.0 12345.0
	same 640 "$(stat -c %a "$ctl/x.1")"
	expect 0 rename "$ctl/x.1" "$ctl/x.2"
	expect ENOENT stat "$ctl/x.1"
	same one "$(cat "$ctl/x.2")"
	echo other >"$ctl/x.3"
	expect EEXIST rename "$ctl/x.3" "$ctl/x.2" NOREPLACE
	expect EEXIST rename "$ctl/x.3" "$ctl/exec" NOREPLACE
	expect EINVAL rename "$ctl/x.3" "$ctl/exec" EXCHANGE
	expect 0 rename "$ctl/x.3" "$ctl/x.2"
	same other "$(cat "$ctl/x.2")"
	refuse sh -c "ls -a '$ctl' | grep -F x."
	expect EPERM link "$ctl/x.2" "$ctl/x.4"
	expect EPERM\|EACCES symlink x "$ctl/x.5"
	expect EPERM\|EACCES mkdir "$ctl/x.6"
	expect EPERM rename "$ctl/status" "$ctl/x.7"
	expect EXDEV rename "$ctl/x.2" "$ctl/limits/procs"
	expect 0 unlink "$ctl/x.2"
	expect ENOENT stat "$ctl/x.2"
	expect ENOENT unlink "$ctl/x.2"
	expect EACCES open "$ctl/jobs/x" O_CREAT\|O_WRONLY
	expect EACCES open "$ctl/snapshots/x" O_CREAT\|O_WRONLY
}

# What is taken for a control must not go nowhere.
slips() {
	expect EACCES open "$ctl/exce" O_CREAT\|O_WRONLY
	error_says a 'is exec meant?'
	expect EACCES open "$ctl/kil" O_CREAT\|O_WRONLY
	expect EACCES open "$ctl/limits/memory_kb" O_CREAT\|O_WRONLY
	echo 'echo x' >"$ctl/exec"
	id=$(basename "$(readlink "$ctl/jobs/last")")
	expect EACCES open "$ctl/jobs/$id/exec" O_CREAT\|O_WRONLY
}

attributes() {
	for file in exec cwd status; do
		expect 0 chmod "$ctl/$file" 644
		expect 0 chown "$ctl/$file" "$(id -u)" "$(id -g)"
		expect EPERM chown "$ctl/$file" 12345 12345
		expect 0 utimens "$ctl/$file" 12345.0 12345.0
	done
	same 600 "$(stat -c %a "$ctl/exec")"
	! command -v setfacl || setfacl -m u::rw-,g::---,o::--- "$ctl/exec"
}

bounded() {
	i=0
	while [ $i -lt 70 ] && "$TOOL" open "$ctl/n.$i" O_CREAT\|O_WRONLY | grep -qx 0; do
		i=$((i + 1))
	done
	same 64 "$i"
	expect ENOSPC open "$ctl/n.64" O_CREAT\|O_WRONLY
	error_says a 'too many files'
	expect ENOSPC open "$ctl/limits/n" O_CREAT\|O_WRONLY
	expect 0 open "$MNT/ctl/n" O_CREAT\|O_WRONLY
	expect 0 unlink "$MNT/ctl/n"
	echo 'echo still' >"$ctl/exec"
	expect 0 unlink "$ctl/n.0"
	expect 0 open "$ctl/n.64" O_CREAT\|O_WRONLY
	while [ $i -gt 0 ]; do
		expect 0 unlink "$ctl/n.$i"
		i=$((i - 1))
	done
}

# One request by rename runs long: everybody else does as ever, also who
# has not looked at the controls yet.
others_go_on() {
	box fresh
	printf "sleep $LONG" >"$MNT/fresh/ctl/new"
	mv "$MNT/fresh/ctl/new" "$MNT/fresh/ctl/exec" &
	saver=$!
	until "$TOOL" pids "$LONG" >/dev/null; do tick; done
	drop_caches
	like '- running*' "$(timeout 60 cat "$MNT/fresh/ctl/status")"
	timeout 60 sh -c "echo echo beside >'$MNT/fresh/ctl/exec'"
	same beside "$(timeout 60 cat "$MNT/fresh/ctl/stdout")"
	printf 'echo by rename too' >"$MNT/fresh/ctl/new2"
	timeout 60 mv "$MNT/fresh/ctl/new2" "$MNT/fresh/ctl/exec"
	same 'by rename too' "$(timeout 60 cat "$MNT/fresh/ctl/stdout")"
	timeout 60 sh -c "echo 1 >'$MNT/fresh/ctl/kill'"
	wait $saver
	refuse "$TOOL" pids "$LONG"
	teardown fresh
}

# Many at once take no longer than one needs, and each gets its own answer.
many() {
	: >"$MNT/a/ran"
	i=0
	while [ $i -lt 8 ]; do
		(
			printf 'sh -c "sleep 0.3; echo %s >>ran"' $i >"$ctl/many.$i"
			mv "$ctl/many.$i" "$ctl/exec" || echo failed >>"$ROOM/many.failed"
		) &
		(
			printf 'no-such-%s' $i >"$ctl/none.$i"
			same ENOENT "$("$TOOL" rename "$ctl/none.$i" "$ctl/exec")" || echo found >>"$ROOM/many.failed"
			rm "$ctl/none.$i"
		) &
		i=$((i + 1))
	done
	wait
	[ ! -e "$ROOM/many.failed" ]
	same '0 1 2 3 4 5 6 7 ' "$(sort -n "$MNT/a/ran" | tr '\n' ' ')"
}

# From within the directory: the same, though its paths have no names
# to be looked up before the last.
within() {
	cd "$ctl"
	printf 'echo within' >new
	expect 0 rename new exec
	same within "$(cat stdout)"
	printf 'no-such-program' >new
	expect ENOENT rename new exec
	rm new
	cd "$MNT/a"
	printf 'echo relative' >ctl/new
	expect 0 rename ctl/new ctl/exec
	same relative "$(cat ctl/stdout)"
	cd /
}

handled_signals() {
	: >"$MNT/a/ran"
	printf 'sh -c "echo x >>ran; sleep 0.5"' >"$ctl/new"
	python3 - "$ctl" <<'END'
import os, signal, sys
count = 0
def handler(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
os.rename(sys.argv[1] + "/new", sys.argv[1] + "/exec")
signal.setitimer(signal.ITIMER_REAL, 0)
assert count > 0
END
	same x "$(cat "$MNT/a/ran")"
	like '0 exited*' "$(cat "$ctl/status")"
}

fatal_signal() {
	printf "sleep $LONG" >"$ctl/new"
	mv "$ctl/new" "$ctl/exec" &
	saver=$!
	until "$TOOL" pids "$LONG" >/dev/null; do tick; done
	kill -"$1" $saver
	wait $saver || true
	while "$TOOL" pids "$LONG" >/dev/null; do tick; done
	read -r code how rest <"$ctl/status"
	same killed "$how"
}

# Its descriptor stays a descriptor of its own file.
kept_open() {
	python3 - "$ctl" <<'END'
import os, sys
os.chdir(sys.argv[1])
f = open("new", "w+")
f.write("echo first")
f.flush()
os.rename("new", "exec")
assert open("stdout").read() == "first\n"
f.write("\necho second")
f.flush()
os.fsync(f.fileno())
f.seek(0)
assert f.read() == "echo first\necho second"
f.close()
assert open("stdout").read() == "first\n"
END
}

tools() {
	printf 'echo by mv\n' >"$ROOM/request"
	mv "$ROOM/request" "$ctl/exec"
	same 'by mv' "$(cat "$ctl/stdout")"
	[ ! -e "$ROOM/request" ]
	printf 'echo by mv within' >"$MNT/a/request"
	mv "$MNT/a/request" "$ctl/exec"
	same 'by mv within' "$(cat "$ctl/stdout")"
	printf 'echo by install' >"$ROOM/request"
	install -m 600 "$ROOM/request" "$ctl/exec"
	same 'by install' "$(cat "$ctl/stdout")"
	printf 'echo by cp' >"$ROOM/request"
	cp -a "$ROOM/request" "$ctl/exec"
	same 'by cp' "$(cat "$ctl/stdout")"
	cp --remove-destination "$ROOM/request" "$ctl/exec"
	sed -i 's/.*/77/' "$ctl/cwd" 2>/dev/null && return 1
	sed -i 's/.*/src/' "$ctl/cwd"
	same src "$(cat "$ctl/cwd")"
	sed -i 's/.*/./' "$ctl/cwd"
	printf 'no-such-program\n' >"$ROOM/request"
	refuse mv "$ROOM/request" "$ctl/exec"
	refuse install "$ROOM/request" "$ctl/exec"
	refuse cp -a "$ROOM/request" "$ctl/exec"
	same no-such-program "$(cat "$ROOM/request")"
	expect 0 stat "$ctl/exec"
}

# Whoever removes a control is told that it stays; who removes it to
# make it anew (tools, above) is let.
removed() {
	refuse rm -f "$ctl/exec"
	error_says a 'exec is a control file: it cannot be removed'
	expect EPERM unlink "$ctl/cwd"
	expect 0 open "$ctl/cwd" O_RDONLY
	expect EEXIST open "$ctl/cwd" O_CREAT\|O_EXCL\|O_WRONLY
	printf 'x' >"$ROOM/request"
	refuse mv "$ROOM/request" "$ctl/status"
	refuse install "$ROOM/request" "$ctl/info"
	same x "$(cat "$ROOM/request")"
	rm -f "$ROOM/request" "$ctl/no-such"
	echo x >"$MNT/a/untracked"
	git -C "$MNT/a" clean -fdxq
	expect ENOENT stat "$MNT/a/untracked"
	expect 0 stat "$ctl/exec"
	find "$MNT/a" -name 'exec' -delete
	expect 0 stat "$ctl/exec"
	box removed
	echo x >"$MNT/removed/ctl/mine"
	run removed true
	rm -rf "$MNT/removed"
	expect ENOENT stat "$MNT/removed"
}

# Nothing that makes a file takes the place of an alias, and the rest of what it makes is there.
aliases() {
	box aliased
	mkdir "$ROOM/files"
	for file in stdout stderr status other; do
		echo "mine $file" >"$ROOM/files/$file"
	done
	run aliased true
	refuse sh -c "tar -C '$ROOM/files' -cf - . | tar -C '$MNT/aliased' -xf -"
	refuse cp -f --remove-destination "$ROOM/files/stdout" "$MNT/aliased/stdout"
	refuse mv "$ROOM/files/stderr" "$MNT/aliased/stderr"
	like '0 exited *' "$(cat "$MNT/aliased/status")"
	same '' "$(cat "$MNT/aliased/stdout")"
	same 'mine other' "$(cat "$MNT/aliased/other")"
	same 'Makefile README.md link other src' "$(ls "$MNT/aliased" | tr '\n' ' ' | sed 's/ $//')"
	rm -r "$ROOM/files"
	rm -rf "$MNT/aliased"
	expect ENOENT stat "$MNT/aliased"
}

# From two threads of one process at once: each request runs once.
threads() {
	: >"$MNT/a/ran"
	python3 - "$ctl" <<'END'
import os, sys, threading
failed = []
def save(i):
    try:
        new = f"{sys.argv[1]}/thread.{i}"
        with open(new, "w") as f:
            f.write(f'sh -c "sleep 0.2; echo {i} >>ran"')
        os.rename(new, sys.argv[1] + "/exec")
    except OSError as e:
        failed.append(e)
threads = [threading.Thread(target=save, args=(i,)) for i in range(6)]
for t in threads: t.start()
for t in threads: t.join()
sys.exit(str(failed) if failed else 0)
END
	same '0 1 2 3 4 5 ' "$(sort -n "$MNT/a/ran" | tr '\n' ' ')"
}

# Another user, if he comes here at all, does not see a private file, nor saves it.
private_to_user() {
	[ "$(id -u)" = 0 ] || return 0
	printf 'echo of root' >"$ctl/roots"
	refuse setpriv --reuid 12345 --clear-groups stat "$ctl/roots"
	refuse setpriv --reuid 12345 --clear-groups mv "$ctl/roots" "$ctl/exec"
	same 'echo of root' "$(cat "$ctl/roots")"
	rm "$ctl/roots"
}

# The sandbox is taken down while a rename waits: its client is told, and nothing hangs.
torn_down() {
	box torn
	printf "sleep $LONG" >"$MNT/torn/ctl/new"
	"$TOOL" rename "$MNT/torn/ctl/new" "$MNT/torn/ctl/exec" >"$ROOM/torn" &
	saver=$!
	until "$TOOL" pids "$LONG" >/dev/null; do tick; done
	timeout 60 rmdir "$MNT/torn"
	wait $saver
	refuse "$TOOL" pids "$LONG"
	[ -s "$ROOM/torn" ]
	refuse grep -qx 0 "$ROOM/torn"
	expect ENOENT stat "$MNT/torn"
}

# The mount goes while a rename waits: daemon, job and client end.
unmounted() {
	printf "sleep $LONG" >"$ctl/new"
	"$TOOL" rename "$ctl/new" "$ctl/exec" >"$ROOM/unmounted" &
	saver=$!
	until "$TOOL" pids "$LONG" >/dev/null; do tick; done
	kill "$(daemon_pid)"
	await_end
	wait $saver || true
	refuse "$TOOL" pids "$LONG"
	refuse grep -qx 0 "$ROOM/unmounted"
	remount
}

# A sandbox that goes takes its private files along, and who is in one is told.
gone() {
	box going
	echo x >"$MNT/going/ctl/left"
	teardown going
	box going
	expect ENOENT stat "$MNT/going/ctl/left"
	teardown going
}

all() {
	claim "$1: mounting" mount_repo "controls=$1"
	claim "$1: mkdir" box a
	claim "$1: the rename is the write" is_write
	claim "$1: it is refused as the write is, with errno and sentence" refused
	claim "$1: the control is as before" as_before
	claim "$1: files of other names are private files" private_files
	claim "$1: a mistyped control is no private file" slips
	claim "$1: what tools copy along is accepted" attributes
	claim "$1: private files are bounded in number" bounded
	claim "$1: others go on while one waits" others_go_on
	claim "$1: many at once" many
	claim "$1: relative paths" within
	claim "$1: a handled signal runs nothing twice" handled_signals
	claim "$1: KILL ends client and job" fatal_signal KILL
	claim "$1: TERM ends client and job" fatal_signal TERM
	claim "$1: the file can stay open" kept_open
	claim "$1: mv, install, cp, sed" tools
	claim "$1: a control cannot be removed" removed
	claim "$1: an alias stays" aliases
	claim "$1: threads of one process" threads
	claim "$1: private files are of their user" private_to_user
	claim "$1: a sandbox goes while a rename waits" torn_down
	claim "$1: private files go with their sandbox" gone
	claim "$1: unmounting while a rename waits" unmounted
	claim "$1: teardown" teardown a
	git -C "$REPO" branch -qD sandbox/a 2>/dev/null
	finish
}

all linked
all inline
