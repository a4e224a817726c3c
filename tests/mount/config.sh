#!/bin/sh
. "$TESTS/lib/mount.sh"
# The command line, the configuration file, and what cannot be mounted.

help_and_version() {
	"$SANDBOXFS" --help | grep -q 'MOUNTPOINT'
	"$SANDBOXFS" --help | grep -q 'state_dir'
	"$SANDBOXFS" --version | grep -q '[0-9]\.[0-9]'
}

doctor() {
	"$SANDBOXFS" --doctor >"$ROOM/doctor"
	for word in FUSE namespace overlay Landlock cgroup; do
		grep -qi "$word" "$ROOM/doctor" || fail "nothing on $word"
	done
}

bad_options() {
	refused_mount nonsense "$REPO" "$MNT" -o nonsense=1
	refused_mount backend "$REPO" "$MNT" -o backend=nonsense
	refused_mount ctl "$REPO" "$MNT" -o ctl=a/b
	refused_mount controls "$REPO" "$MNT" -o controls=sideways
	refused_mount isolation "$REPO" "$MNT" -o isolation=perhaps
	refused_mount net "$REPO" "$MNT" -o net=some
	refused_mount timeout "$REPO" "$MNT" -o operation_timeout_ms=soon
	refused_mount ''
	refused_mount '' "$REPO" "$MNT" extra
}

# Who forgets an argument does not find the source covered.
no_source() {
	refused_mount 'not empty' "$REPO"
	refuse is_mounted "$REPO"
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" "$MNT" -o "state_dir=$STATE"
	unmount
}

bad_places() {
	refused_mount missing "$REPO" "$ROOM/missing" -o "state_dir=$STATE"
	refused_mount missing "$ROOM/missing" "$MNT" -o "state_dir=$STATE"
	echo x >"$ROOM/file"
	refused_mount '' "$REPO" "$ROOM/file" -o "state_dir=$STATE"
	git init -q --bare "$ROOM/bare"
	refused_mount '' "$ROOM/bare" "$MNT" -o "state_dir=$STATE"
	git init -q "$ROOM/empty"
	refused_mount '' "$ROOM/empty" "$MNT" -o "state_dir=$STATE"
}

habits() {
	refused_mount 'allow_root is not served: root enters with allow_other' "$REPO" "$MNT" \
		-o "state_dir=$STATE,allow_root"
	refused_mount 'attr_timeout is not served: what the kernel may keep' "$REPO" "$MNT" \
		-o "state_dir=$STATE,attr_timeout=1"
	refused_mount 'suid is never granted' "$REPO" "$MNT" -o "state_dir=$STATE,suid"
	mount_fs "$REPO" nonempty,big_writes,noatime,max_read=65536
	unmount
}

# What mount(8) makes of a line of fstab: it hands dev, suid and its own words on.
from_fstab() {
	words=rw,defaults,noauto,user,users,nofail,_netdev,x-systemd.automount
	words=$words,x-gvfs-show,relatime,nonempty
	helper=$(PATH=$PATH:/usr/sbin:/sbin command -v mount.fuse3) || return 0
	"$TOOL" mount "$LOG" "$RECORD" "$helper" "$SANDBOXFS#$REPO" "$MNT" \
		-o "state_dir=$STATE,$words,dev,suid"
	box h
	same hello "$(cat "$MNT/h/README.md")"
	teardown h
	unmount
	[ "$(id -u)" = 0 ] || return 0
	"$TOOL" mount "$LOG" "$RECORD" mount -t fuse "$SANDBOXFS#$REPO" "$MNT" \
		-o "state_dir=$STATE,$words,allow_other"
	like '*nosuid,nodev*allow_other*' "$(grep " $MNT " /proc/mounts)"
	unmount
}

# What could never work is told now, not by the first sandbox.
bad_directories() {
	echo x >"$ROOM/file"
	mkdir -p "$ROOM/real"
	refused_mount "\"logs_dir\": $ROOM/file is not a directory" "$REPO" "$MNT" \
		-o "state_dir=$STATE,logs_dir=$ROOM/file"
	refused_mount '"logs_dir": *Not a directory' "$REPO" "$MNT" \
		-o "state_dir=$STATE,logs_dir=$ROOM/file/sub"
	refused_mount '"logs_dir" must not contain ..' "$REPO" "$MNT" \
		-o "state_dir=$STATE,logs_dir=$ROOM/none/../x"
	refused_mount "\"state_dir\": $ROOM/file is not a directory" "$REPO" "$MNT" \
		-o "state_dir=$ROOM/file"
	refused_mount "\"cache_dir\": $ROOM/file is not a directory" "$REPO" "$MNT" \
		-o "state_dir=$STATE,cache_dir=$ROOM/file"
	for key in ro_paths rw_paths hide_paths; do
		refused_mount "\"$key\": $ROOM/none: No such file" "$REPO" "$MNT" \
			-o "state_dir=$STATE,$key=$ROOM/real:$ROOM/none"
		refused_mount "\"$key\" must not contain ..: $ROOM/real/.." "$REPO" "$MNT" \
			-o "state_dir=$STATE,$key=$ROOM/real/.."
		refused_mount "\"$key\" must hold absolute paths" "$REPO" "$MNT" -o "state_dir=$STATE,$key=real"
	done
	refused_mount '"branch": a..{name} makes no valid branch name' "$REPO" "$MNT" \
		-o "state_dir=$STATE,branch=a..{name}"
	refused_mount '"branch_exists" must be one of new|refuse|continue' "$REPO" "$MNT" \
		-o "branch_exists=old"
	[ "$(id -u)" = 0 ] ||
		refused_mount '"logs_dir": nothing can be written in /: Permission' "$REPO" "$MNT" \
			-o "state_dir=$STATE,logs_dir=/logs"
	[ "$(id -u)" != 0 ] ||
		refused_mount 'no-such-user' "$REPO" "$MNT" -o "state_dir=$STATE,run_as=no-such-user"
}

logs_are_made() {
	mount_fs "$REPO" "logs_dir=$ROOM/deep/er/logs,ro_paths=$ROOM/real"
	box l
	refuse flock -n -x "$ROOM/deep/er/logs" true
	teardown l
	[ -s "$ROOM/deep/er/logs/l.jsonl" ]
	unmount
}

configuration_file() {
	cat >"$ROOM/config.json" <<END
{"operation_timeout_ms": 1234, "ctl": ".box", "env": {"FROM_FILE": "yes"}}
END
	mount_fs "$REPO" "config=$ROOM/config.json"
	box c
	same 1234 "$(cat "$MNT/c/.box/timeout_ms")"
	same yes "$("$TOOL" exec "$MNT/c/.box/exec" sh -c 'echo $FROM_FILE')"
	same 1234 "$("$TOOL" json operation_timeout_ms <"$MNT/ctl/config")"
	unmount
	mount_fs "$REPO" "config=$ROOM/config.json,operation_timeout_ms=99"
	same 99 "$(cat "$MNT/c/.box/timeout_ms")"
	echo c >"$MNT/ctl/teardown"
	unmount
}

bad_configuration() {
	for text in '{"nonsense":1}' '{"ctl":1}' '{"ctl":"a","ctl":"b"}' '[]' '{' '' \
		'{"operation_timeout_ms":"x"}'; do
		printf '%s' "$text" >"$ROOM/bad.json"
		refused_mount '' "$REPO" "$MNT" -o "state_dir=$STATE,config=$ROOM/bad.json"
	done
	printf '{"nonsense":1}' >"$ROOM/bad.json"
	refused_mount nonsense "$REPO" "$MNT" -o "state_dir=$STATE,config=$ROOM/bad.json"
	refused_mount none.json "$REPO" "$MNT" -o "state_dir=$STATE,config=$ROOM/none.json"
}

no_secrets() {
	(
		GITHUB_TOKEN=very-secret-word
		export GITHUB_TOKEN
		mount_repo
	)
	box s
	run s env >"$ROOM/env"
	refuse grep very-secret "$ROOM/env"
	refuse grep -r very-secret "$LOG" "$MNT/ctl/config" "$MNT/ctl/stats" "$MNT/s/ctl/info" \
		"$MNT/s/ctl/log"
	teardown s
	unmount
}

# Each keeps some for itself as long as there are enough.
few_descriptors_many_sandboxes() {
	(
		ulimit -n 256
		mount_repo
	)
	for i in $(seq 40); do
		mkdir "$MNT/m$i"
		same $i "$(run m$i echo $i)"
	done
	for i in 40 1 20; do
		same $i "$(run m$i echo $i)"
	done
	for i in $(seq 40); do
		teardown m$i
	done
	unmount
}

# Descriptors under way between sockets are counted for the user, and root is not bound by that.
others_have_all_under_way() {
	(
		ulimit -n 512
		mount_repo
	)
	(
		ulimit -n 1024
		exec python3 -c '
import signal, socket, sys
kept = []
try:
    while True:
        kept.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        socket.send_fds(kept[-1][0], [b"x"], [0] * 250)
except OSError:
    pass
open(sys.argv[1], "w").close()
signal.pause()' "$ROOM/up"
	) &
	until [ -e "$ROOM/up" ]; do tick; done
	have=$("$TOOL" mkdir "$MNT/late")
	kill $!
	wait $! || true
	same EAGAIN "$have"
	like '*descriptors under way*' "$(cat "$MNT/ctl/error")"
	box late
	same fine "$(run late echo fine)"
	teardown late
	unmount
}

few_descriptors() {
	(
		ulimit -n 256
		mount_repo
	)
	box n
	expect 0 many "$MNT/n" 2000
	same 2000 "$(ls "$MNT/n" | grep -c many-)"
	for i in 1 2 3 4 5; do
		same $i "$(run n echo $i)"
	done
	teardown n
	unmount
}

# As root a small file system of its own; without that privilege a file size limit is no disk.
disk_full() {
	mkdir "$ROOM/small"
	mount -t tmpfs -o size=8m none "$ROOM/small"
	trap 'umount -l "$ROOM/small"' EXIT
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" "$REPO" "$MNT" -o "state_dir=$ROOM/small/state"
	box full
	expect ENOSPC\|EDQUOT fill "$MNT/full/big"
	same hello "$(cat "$MNT/full/README.md")"
	rm "$MNT/full/big"
	same fine "$(run full echo fine)"
	teardown full
	unmount
}

claim "a repository" new_repo
claim "--help and --version" help_and_version
claim "--doctor says what the machine allows" doctor
claim "an unknown key or a bad value is refused by name" bad_options
claim "options that people pass from habit hold, or are refused in words" habits
claim "mount(8) and its helper mount it with the words of fstab" from_fstab
claim "a mountpoint alone has to be empty" no_source
claim "mountpoint or source missing, a file, bare or empty repositories are refused" bad_places
claim "directories, paths and names that cannot be are refused" bad_directories
claim "logs_dir is made with its parents, and locked" logs_are_made
claim "settings from a JSON file, -o above it" configuration_file
claim "a bad configuration file is refused by key" bad_configuration
claim "secrets of the environment appear nowhere" no_secrets
claim "256 descriptors are enough for 2000 files" few_descriptors
claim "and for commands in 40 sandboxes" few_descriptors_many_sandboxes
[ "$(id -u)" = 0 ] || claim "while others have all descriptors under way a create fails in words" \
	others_have_all_under_way
if [ "$(id -u)" = 0 ]; then
	claim "a full disk is ENOSPC and loses nothing" disk_full
fi
claim "nothing is left" source_is_clean
