#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Reaching other processes, and becoming somebody else.

cannot_end_its_init() {
	run a sh -c 'kill -9 1; kill -TERM 1; kill -STOP 1; echo still here' >"$ROOM/out" 2>/dev/null
	same 'still here' "$(cat "$ROOM/out")"
}

# Init would take the stop for the end.
makes_init_its_tracer() {
	answers 0 traced
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
}

kills_only_itself() {
	run b mkfifo end
	id=$("$TOOL" result "$MNT/b/ctl/spawn" sh -c 'read -r line <end')
	run a sh -c 'kill -9 -1' || true
	like '- running*' "$(cat "$MNT/b/ctl/jobs/$id/status")"
	run b sh -c 'echo >end'
	like '0 exited*' "$(cat "$MNT/b/ctl/jobs/$id/wait")"
	[ -n "$(daemon_pid)" ]
}

sees_only_itself() {
	run a sh -c 'cat /proc/[0-9]*/cmdline' | tr '\0' ' ' >"$ROOM/cmdlines"
	refuse grep -F "$ROOM/bin/sandboxfs" "$ROOM/cmdlines"
	refuse grep -F "$(basename "$0")" "$ROOM/cmdlines"
}

# As the host sees it, not as its own namespace tells.
is_not_root_on_the_host() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sleep "$LONG")
	# It has been started, and may not have become the program yet.
	until pid=$("$TOOL" pids "$LONG" | tail -n 1) && [ -n "$pid" ]; do tick; done
	uid=$(awk '$1 == "Uid:" { print $2 $3 $4 $5 }' "/proc/$pid/status")
	caps=$(awk '/^Cap(Inh|Prm|Eff|Bnd|Amb)/ { sum = sum $2 } END { gsub(/0/, "", sum); print sum }' \
		"/proc/$pid/status")
	echo "$id" >"$MNT/a/ctl/kill"
	cat "$MNT/a/ctl/jobs/$id/wait" >/dev/null
	[ "$uid" != 0000 ] || fail "runs as root"
	same '' "$caps"
}

# A process of the same user, outside of any sandbox: the debugger of somebody careless.
host_cannot_trace() {
	for pid in $("$TOOL" pids "$MNT"); do
		same EPERM "$("$ROOM/bin/attack" ptrace "$pid")"
		same EPERM "$("$ROOM/bin/attack" read-memory "$pid")"
		same EACCES "$("$ROOM/bin/attack" read "/proc/$pid/environ")"
	done
}

no_new_privileges() {
	same 1 "$(run a awk '$1 == "NoNewPrivs:" { print $2 }' /proc/self/status)"
}

policy_says_so() {
	policy=$(cat "$MNT/a/ctl/policy")
	like '*"user_ns":true*"pid_ns":true*"mount_ns":true*"net_ns":true*' "$policy"
	like '*"no_capabilities":true*"no_new_privs":true*' "$policy"
	refuse grep -q '"run_as":0[,}]' "$MNT/a/ctl/policy"
}

owner_inside_is_the_job() {
	same "$(run a id -u)" "$(run a stat -c %u README.md)"
	run a sh -c 'echo from inside >>README.md; echo new >made'
	same "$("$TOOL" stat "$MNT/a/README.md" uid)" "$("$TOOL" stat "$MNT/a/made" uid)"
	echo 'from outside' >"$MNT/a/outer"
	run a sh -c 'echo and inside >>outer; rm made'
	same 2 "$(wc -l <"$MNT/a/outer")"
}

git_works() {
	box c
	echo new >"$MNT/c/new"
	run c sh -c 'git status --short >/dev/null && git add -A &&
			git -c user.name=x -c user.email=x@y commit -qm inside'
	same inside "$(git -C "$MNT/c" log -1 --format=%s)"
	same '' "$(git -C "$MNT/c" status --short)"
	teardown c
	git -C "$REPO" branch -q -D sandbox/c
}

require_holds() {
	mount_repo isolation=require
	same ok "$(run a echo ok)"
	unmount
	[ "$(id -u)" != 0 ] ||
		refused_mount 'commands never run as root' none "$MNT" -o "state_dir=$STATE,run_as=root"
	[ "$(id -u)" != 0 ] ||
		refused_mount 'no such user' none "$MNT" -o "state_dir=$STATE,run_as=no-such-user"
	[ "$(id -u)" = 0 ] ||
		refused_mount 'needs a mount made by root' none "$MNT" -o "state_dir=$STATE,run_as=1"
}

claim "mounting" mount_victims
attack "pid_ns view landlock" "signal the daemon" daemon_answers 'ESRCH|EPERM' signal
attack "user:pid_ns view seccomp" "limit the daemon" daemon_answers 'ESRCH|EPERM' limit
attack "pid_ns view" "a descriptor of the daemon's process" daemon_answers 'ESRCH|EINVAL' pidfd
attack "root:run_as pid_ns view landlock undumpable user_ns capabilities" "trace the daemon" \
	daemon_answers 'ESRCH|EPERM' ptrace
attack "root:run_as pid_ns view landlock undumpable user_ns capabilities" \
	"read the daemon's memory" daemon_answers 'ESRCH|EPERM' read-memory
attack "root:run_as pid_ns view landlock undumpable user_ns capabilities" \
	"the daemon's environment" daemon_answers 'ENOENT|EACCES' read environ
attack "pid_ns view landlock undumpable user_ns" "the daemon's descriptors" \
	daemon_answers 'ENOENT|EACCES' read fd
attack "root:run_as pid_ns view landlock undumpable user_ns capabilities" "the daemon's root" \
	daemon_answers 'ENOENT|EACCES' read root
[ "$(id -u)" = 0 ] || attack "undumpable" \
	"the user's other processes trace the daemon and its children" host_cannot_trace
attack "user:landlock undumpable user_ns" "trace its own init" answers EPERM ptrace 1
attack "user:landlock undumpable user_ns" "read its init's memory" answers EPERM read-memory 1
attack "user:landlock undumpable user_ns" "its init's environment" \
	answers 'EACCES|ENOENT|EPERM' read /proc/1/environ
for file in root cwd fd map_files ns/mnt; do
	attack "user:landlock undumpable user_ns" "its init's /proc/1/$file" \
		answers 'EACCES|ENOENT|EPERM' read /proc/1/$file
done
attack -kernel "end its own init" cannot_end_its_init
attack -daemon "make its init its tracer" makes_init_its_tracer
attack -danger "kill everybody" kills_only_itself
attack "view" "the host's processes by /proc" sees_only_itself
attack "root:run_as" "become root" answers 'EPERM|EINVAL' setuid 0
attack "root:run_as capabilities user_ns" "become another user" answers 'EPERM|EINVAL' setuid 1
attack "root:run_as capabilities user_ns" "join a group" answers 'EPERM|EINVAL' setgroups 0
attack "root:run_as capabilities user_ns" "take capabilities" answers EPERM capset
attack "no_new_privs seccomp" "gain privileges by a program" no_new_privileges
attack -kernel "allow new privileges again" answers EINVAL new-privileges
attack -kernel "raise a limit" answers EPERM raise-limit
attack "root:run_as capabilities user_ns" "go before others" answers 'EACCES|EPERM' priority
attack "root:seccomp run_as capabilities user_ns" "type into a terminal" answers EPERM sti
attack "root:seccomp run_as capabilities user_ns" "the same by a wide number" answers EPERM sti-wide
holds "a command is not root for the host and has no capability" is_not_root_on_the_host
holds "policy names what is in force" policy_says_so
holds "inside, the tree belongs to the command; outside, to one owner" owner_inside_is_the_job
holds "git works inside" git_works
holds "unmounting" unmount
holds "isolation=require starts where all is there; run_as is checked" require_holds
holds "mounting again" mount_repo
withstood
