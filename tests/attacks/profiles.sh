#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What is in force where the machine allows all, where it forbids user namespaces, and by choice;
# and that ctl/policy and --doctor say so.

# One sandbox is looked at under all of them, and a layered one is not
# shown where there is no isolation.
SBX_OPTIONS=${SBX_OPTIONS:+$SBX_OPTIONS,}cow=off

# policy KEY: of the isolation of a
policy() {
	"$TOOL" json isolation <"$MNT/a/ctl/policy" | "$TOOL" json "$1"
}

# policy_is MODE USER PID MOUNT NET SECCOMP CAPABILITIES
policy_is() {
	same "$*" "$(policy mode) $(policy user_ns) $(policy pid_ns) $(policy mount_ns)\
 $(policy net_ns) $(policy seccomp) $(policy no_capabilities)"
	same true "$(policy no_new_privs)"
}

everything() {
	policy_is namespaces true true true true true true
	[ "$(policy landlock)" -gt 0 ]
	same absent "$(policy reason || true)"
	same none "$("$TOOL" json network <"$MNT/a/ctl/policy")"
}

runs_as_itself() {
	everything
	same "$(id -u)" "$(policy run_as)"
	same "$(id -u)" "$(run a id -u)"
}

runs_as_nobody() {
	everything
	same 65534 "$(policy run_as)"
	same 65534 "$(run a id -u)"
}

runs_as_who_is_named() {
	policy_is namespaces true true true true true true
	same "$(id -u games)" "$(policy run_as)"
	same "$(id -u games)" "$(run a id -u)"
	: >"$MNT/a/outer"
	run a sh -c ': >inner; echo x >>outer'
	same "$(id -u games) $(id -u games)" "$(run a stat -c %u inner outer | tr '\n' ' ' | sed 's/ $//')"
	same "0 0" "$("$TOOL" stat "$MNT/a/inner" uid) $("$TOOL" stat "$MNT/a/outer" uid)"
}

nothing_by_choice() {
	policy_is none false false false false false false
	same 'isolation=none' "$(policy reason)"
	same "$(id -u)" "$(run a id -u)"
	same "of the host" "$(run a cat "$ROOM/home/secret")"
}

# The kernel cannot show overlayfs with other owners.
root_on_overlayfs() {
	mkdir -p "$ROOM/over/l" "$ROOM/over/u" "$ROOM/over/w" "$ROOM/over/m"
	mount -t overlay overlay -o "lowerdir=$ROOM/over/l,upperdir=$ROOM/over/u,workdir=$ROOM/over/w" \
		"$ROOM/over/m"
	mkdir "$ROOM/over/m/state"
	code=0
	refused_mount 'choose a state_dir' none "$MNT" -o "state_dir=$ROOM/over/m/state" || code=1
	TMPDIR=$ROOM/over/m "$SANDBOXFS" --doctor >"$ROOM/doctor" && code=1
	umount "$ROOM/over/m"
	grep -q '^no .*choose a state_dir' "$ROOM/doctor" || code=1
	return $code
}

doctor_says_all() {
	"$SANDBOXFS" --doctor >"$ROOM/doctor"
	grep -q '^ok .*commands have namespaces' "$ROOM/doctor"
	grep -q "^ok .*commands run as uid $1\$" "$ROOM/doctor"
}

own_policy() {
	mount_victims
	if [ "$(id -u)" = 0 ]; then
		runs_as_nobody
		doctor_says_all 65534
	else
		runs_as_itself
		doctor_says_all "$(id -u)"
	fi
	unmount
}

named_policy() {
	mount_repo run_as=games
	runs_as_who_is_named
	unmount
}

policy_of_none() {
	mount_repo isolation=none
	nothing_by_choice
	unmount
}

# ---- without user namespaces ----

lone_policy() {
	policy_is landlock false false false false true true
	[ "$(policy landlock)" -gt 0 ]
	like '*sysctl user.max_user_namespaces*' "$(policy reason)"
	same none "$("$TOOL" json network <"$MNT/a/ctl/policy")"
}

lone_doctor() {
	"$SANDBOXFS" --doctor >"$ROOM/doctor"
	grep -q '^warn .*user namespaces.*sysctl user.max_user_namespaces' "$ROOM/doctor"
	grep -q '^warn .*Landlock and seccomp alone' "$ROOM/doctor"
}

lone_require() {
	refuse "$SANDBOXFS" none "$ROOM/tmp" -o "state_dir=$ROOM/state2,isolation=require" 2>"$ROOM/said"
	grep -q 'user namespaces cannot be made: sysctl user.max_user_namespaces' "$ROOM/said"
	refuse is_mounted "$ROOM/tmp"
}

lone_work() {
	run a sh -c 'echo made >made; mkdir dir; mv made dir/moved; cat dir/moved; rm -r dir
		git status --short >/dev/null'
	same "$(id -u)" "$(run a stat -c %u README.md)"
}

lone_limits() {
	same 77 "$(run a sh -c 'ulimit -n 77; ulimit -n')"
	run a sh -c 'prlimit --pid $$ --nofile >/dev/null'
	refuse run a sh -c 'prlimit --pid $$ --nofile=77'
}

lone_git() {
	run a sh -c 'echo g >g; git add g; git commit -qm lone; ! echo x >>"$1"; ! cat "$1"' \
		sh "$REPO/.git/config"
	same lone "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	same '' "$(git -C "$MNT/a" status --porcelain --untracked-files=no)"
	run a git reset -q --hard HEAD~1
}

lone_creating() {
	for dir in "$ROOM/home" "$ROOM/tmp" /tmp /var/tmp /dev/shm; do
		answers EACCES create "$dir/attack-file"
		[ ! -e "$dir/attack-file" ]
	done
}

# Restarted by the first part in a room of its own, as an ordinary user
# who may make no user namespace.
lone() {
	claim "without user namespaces: mounting" mount_victims
	holds "policy says Landlock, and why not more" lone_policy
	holds "--doctor says so, and how to mend it" lone_doctor
	holds "isolation=require refuses, and says why" lone_require
	holds "commands work" lone_work
	holds "a command limits itself and no other" lone_limits
	holds "commits come over, and the source is out of reach" lone_git
	attack "landlock" "read the user's home" answers EACCES read "$ROOM/home/secret"
	attack "landlock" "write to the user's home" answers EACCES write "$ROOM/home/victim"
	attack "landlock" "empty a file there" answers EACCES truncate "$ROOM/home/victim"
	attack "landlock" "remove a file there" answers EACCES unlink "$ROOM/home/victim"
	attack "landlock" "move a file from there" answers 'EACCES|EXDEV' rename "$ROOM/home/victim" taken
	attack "landlock" "hard link to a file there" answers 'EACCES|EXDEV|EPERM' link "$ROOM/home/secret"
	attack "landlock" "create files outside" lone_creating
	attack "landlock" "read another sandbox" \
		answers EACCES read "$STATE/trees/$(ls "$STATE/trees" | grep ^b)/secret"
	attack "landlock" "read the records" answers EACCES read "$STATE/meta"
	attack "landlock" "read a file of the source" answers EACCES read "$REPO/README.md"
	attack "landlock" "/dev/fuse" answers EACCES read /dev/fuse
	attack "landlock" "signal the daemon" daemon_answers EPERM signal
	attack "landlock undumpable" "trace the daemon" daemon_answers EPERM ptrace
	attack "landlock undumpable" "read the daemon's memory" daemon_answers EPERM read-memory
	attack "landlock undumpable" "the daemon's environment" daemon_answers EACCES read environ
	attack "seccomp" "sockets of the Internet" answers EPERM socket inet
	attack "seccomp" "sockets of the machine" answers EPERM socket unix
	attack "seccomp" "limit the daemon" daemon_answers EPERM limit
	attack "seccomp" "memory that a process of the host shares" answers EPERM shm 1
	attack "seccomp" "set setuid" answers EPERM chmod-setuid attack
	attack -kernel "make a user namespace" answers 'EPERM|ENOSPC' unshare 0x10000000
	attack -daemon "deaf to SIGTERM and double-forked" lone_deaf
	withstood
}

lone_deaf() {
	talk a/ctl/exec '{"argv":["sh","-c","trap \"\" TERM; (setsid sh -c \"trap : TERM; '\
'sleep '$LONG'; sleep '$LONG'\" &); sleep '$LONG'"],"timeout_ms":200}' >/dev/null
	like '124 timeout*' "$(cat "$MNT/a/ctl/status")"
	refuse "$TOOL" pids "$LONG"
}

as_lone_user() {
	mkdir "$ROOM/lone" "$ROOM/lone/home" "$ROOM/lone/tmp" "$ROOM/lone/mnt"
	cp -r "$ROOM/bin" "$ROOM/tests" "$ROOM/lone"
	cp "$ROOM/home/.gitconfig" "$ROOM/lone/home"
	chown -R games:games "$ROOM/lone"
	cd "$ROOM/lone" || exit 1
	"$TOOL" without-userns "$(id -u games)" "$(id -g games)" env ROOM="$ROOM/lone" \
		HOME="$ROOM/lone/home" \
		TMPDIR="$ROOM/lone/tmp" TESTS="$ROOM/lone/tests" TOOL="$ROOM/lone/bin/tool" \
		SANDBOXFS="$ROOM/lone/bin/sandboxfs" LONE=1 "$0"
}

if [ -n "${LONE:-}" ]; then
	lone
	exit
fi
holds "everything is in force for $(id -un), and policy and --doctor say so" own_policy
[ "$(id -u)" != 0 ] ||
	holds "run_as=games: commands are games, the host sees one owner" named_policy
holds "isolation=none: nothing is, and policy says so" policy_of_none
[ "$(id -u)" != 0 ] || holds "root on overlayfs is refused in words" root_on_overlayfs
if [ "$(id -u)" = 0 ]; then
	as_lone_user
else
	echo "# not root: nobody to forbid user namespaces for this test alone"
fi
if [ -z "${SBX_WEAK:-}" ]; then
	claim "mounting" mount_repo
	finish
fi
