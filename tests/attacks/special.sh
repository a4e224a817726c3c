#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# FIFOs, sockets, devices and bits that a command leaves for whoever reads its files on the host.

limit=60
[ -z "${SBX_WEAK:-}" ] || limit=3

plant() {
	rm -rf "$MNT/a/tree"
	run a sh -c 'mkdir tree; cd tree; mkfifo pipe; ../attack bind sock; echo data >plain'
}

# at_once ARGUMENT...: ends, whatever it says.
at_once() {
	at_once_code=0
	timeout $limit "$@" >"$ROOM/said" 2>&1 </dev/null || at_once_code=$?
	[ $at_once_code != 124 ] || unsafe "$* hangs"
}

opening() {
	plant
	for flags in O_RDONLY O_WRONLY O_RDWR O_WRONLY\|O_APPEND O_WRONLY\|O_CREAT\|O_TRUNC \
		O_RDONLY\|O_NONBLOCK; do
		for file in pipe sock; do
			at_once "$TOOL" open "$MNT/a/tree/$file" "$flags"
			same ENXIO "$(cat "$ROOM/said")"
		done
	done
}

cat_of_all() {
	plant
	at_once sh -c "cat '$MNT/a/tree'/*"
	grep -q data "$ROOM/said"
	grep -q 'pipe: No such device or address' "$ROOM/said"
}

grep_of_all() {
	plant
	at_once grep -r data "$MNT/a/tree"
	same "$MNT/a/tree/plain:data" "$(cat "$ROOM/said")"
	at_once sh -c "grep data '$MNT/a/tree'/*"
	grep -q plain:data "$ROOM/said"
}

copies() {
	plant
	at_once cp -r --copy-contents "$MNT/a/tree" "$ROOM/contents"
	for copier in 'cp -r' 'cp -a' 'rsync -a'; do
		at_once $copier "$MNT/a/tree" "$ROOM/copy"
		same data "$(cat "$ROOM/copy/plain" "$ROOM/copy/tree/plain" 2>/dev/null)"
		rm -rf "$ROOM/copy" "$ROOM/contents"
	done
	at_once tar cf "$ROOM/copy.tar" -C "$MNT/a" tree
	same 'tree/ tree/plain' "$(tar tf "$ROOM/copy.tar" | sort | tr '\n' ' ' | sed 's/ $//')"
}

others() {
	plant
	for reader in 'wc -c' 'head -n 1' md5sum 'truncate -s 0' 'touch -c' 'chmod 644' 'ls -l' python3; do
		at_once $reader "$MNT/a/tree/pipe"
	done
	at_once git -C "$MNT/a" status --short
	grep -q 'tree/' "$ROOM/said"
	at_once git -C "$MNT/a" add -A
}

shows_as_a_socket() {
	plant
	same "socket socket" \
		"$("$TOOL" lstat "$MNT/a/tree/pipe" type) $("$TOOL" lstat "$MNT/a/tree/sock" type)"
	same '' "$(find "$MNT/a/tree" -type p)"
	same fifo "$(run a stat -c %F tree/pipe)"
}

# A FIFO is put where the client has just seen a file.
a_fifo_behind_the_cache() {
	run a sh -c 'rm -f f; echo data >f'
	same data "$(cat "$MNT/a/f")"
	run a sh -c 'rm f; mkfifo f'
	at_once cat "$MNT/a/f"
	at_once sh -c "echo x >'$MNT/a/f'"
	run a rm f
}

made_through_the_mount() {
	mkfifo "$MNT/a/mine"
	same fifo "$("$TOOL" lstat "$MNT/a/mine" type)"
	cat "$MNT/a/mine" >"$ROOM/got" &
	echo through >"$MNT/a/mine"
	wait $!
	same through "$(cat "$ROOM/got")"
	rm "$MNT/a/mine"
}

a_client_of_its_socket() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c 'rm -f in out path; mkfifo in; exec 3<>in; ./attack serve path <in >out')
	until [ -s "$MNT/a/out" ]; do tick; done
	have=$("$ROOM/bin/attack" connect "$MNT/a/path")
	echo "$id" >"$MNT/a/ctl/kill"
	cat "$MNT/a/ctl/jobs/$id/wait" >/dev/null
	same ECONNREFUSED "$have"
}

no_devices() {
	rm -f "$MNT/a/dev"
	for type in c b; do
		expect EPERM mknod "$MNT/a/dev" $type
	done
}

no_setuid() {
	chmod 755 "$MNT/a/attack"
	for mode in 4755 2755 6755; do
		expect EPERM chmod "$MNT/a/attack" $mode
	done
	rm -f "$MNT/a/set"
	expect 0 open "$MNT/a/set" O_CREAT\|O_WRONLY 4755
	same 0755 "$("$TOOL" stat "$MNT/a/set" mode)"
}

no_security_attributes() {
	for name in security.attack trusted.attack; do
		expect EPERM setxattr "$MNT/a/attack" $name x
	done
}

owned_by_one() {
	own=$("$TOOL" stat "$MNT/a/README.md" uid)
	rm -rf "$MNT/a/new" "$MNT/a/new.d" "$MNT/a/inner"
	: >"$MNT/a/new"
	mkdir "$MNT/a/new.d"
	ln -s new "$MNT/a/new.d/link"
	mkfifo "$MNT/a/new.d/pipe"
	run a sh -c ': >inner'
	for file in new new.d new.d/link new.d/pipe inner; do
		same "$own" "$("$TOOL" lstat "$MNT/a/$file" uid)"
		same "$(run a id -u)" "$(run a stat -c %u $file)"
	done
}

claim "mounting" mount_victims user_xattr
attack "fifos" "opening a FIFO waits" opening
attack "fifos" "cat of all files waits" cat_of_all
attack "fifos" "grep of all files waits" grep_of_all
attack "fifos" "cp, rsync or tar wait" copies
attack "fifos" "other programs wait" others
attack "fifos" "a FIFO in place of a file just seen" a_fifo_behind_the_cache
attack -kernel "a client of the host is served by its socket" a_client_of_its_socket
attack "root:special" "devices through the mount" no_devices
attack "special" "setuid through the mount" no_setuid
attack "root:special" "security attributes through the mount" no_security_attributes
holds "a FIFO shows as a socket on the host, and as itself inside" shows_as_a_socket
holds "a FIFO made through the mount is one" made_through_the_mount
holds "what is made, on either side, belongs to one owner" owned_by_one
withstood
