#!/bin/sh
# As root with mounts of our own, so that what is put below /opt is nobody else's.
[ "$(id -u)" != 0 ] || [ -n "${SBX_OWN_MOUNTS:-}" ] ||
	SBX_OWN_MOUNTS=1 exec unshare --mount --propagation private sh "$0"
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Servers of the host whose sockets stand below what commands may read.

SHOWN=$ROOM/shown
mkdir "$SHOWN" "$SHOWN/deep" "$ROOM/home/tools" "$ROOM/home/tools/bin"
printf '#!/bin/sh\n' >"$ROOM/home/tools/bin/a-tool"
chmod 755 "$ROOM/home/tools/bin/a-tool"
PATH=$PATH:$ROOM/home/tools/bin
[ "$(id -u)" != 0 ] || mount -t tmpfs opt /opt

# serve_at PATH: a server whom everybody may talk to.
serve_at() {
	"$ROOM/bin/attack" serve "$1" <"$ROOM/server.in" >"$ROOM/server.out" 9>&- &
	until [ -s "$ROOM/server.out" ]; do tick; done
	rm "$ROOM/server.out"
	chmod 777 "$1"
	same 0 "$("$ROOM/bin/attack" connect "$1")"
}

serve_early() {
	serve_at "$SHOWN/early"
	serve_at "$SHOWN/deep/early"
	serve_at "$ROOM/home/tools/bin/early"
	[ "$(id -u)" != 0 ] || serve_at /opt/early
}

# out_of_reach PATH: the kernel refuses it, or there is something else.
out_of_reach() {
	[ -S "$1" ] || serve_at "$1"
	answers 'EACCES|ECONNREFUSED' connect "$1"
}

# What the host serves at a place where it served before.
served_again() {
	rm -f "$SHOWN/late"
	serve_at "$SHOWN/late"
	answers 'EACCES|ECONNREFUSED' connect "$SHOWN/late"
}

own_ones_work() {
	run a sh -c 'mkfifo in out; ./attack serve path <in >out & exec 3>in; read -r port <out
		[ "$(./attack connect path)" = 0 ]'
}

what_is_read_is_read() {
	echo "to be read" >"$SHOWN/file"
	chmod 600 "$SHOWN/file"
	[ "$(id -u)" != 0 ] || chmod 644 "$SHOWN/file"
	same "to be read" "$(run a cat "$SHOWN/file")"
	run a a-tool
	run a sh -c 'echo >/dev/null </dev/zero'
}

# /tmp inside is what it was: a view is not made anew because a server came.
the_view_stays() {
	run a touch /tmp/mark
	serve_at "$SHOWN/new"
	run a test -f /tmp/mark
}

policy_says_so() {
	case $("$TOOL" json isolation.sockets <"$MNT/a/ctl/policy") in
	*closed* | *covered*) ;;
	*) fail "they are not kept from it" ;;
	esac
}

mkfifo "$ROOM/server.in"
exec 9<>"$ROOM/server.in"
claim "servers on the host" serve_early
claim "mounting" mount_victims "ro_paths=$SHOWN"
attack "sockets" "a socket below a path that is shown, served after the mount" \
	out_of_reach "$SHOWN/first"
attack "sockets" "a socket below a path that is shown, served before the mount" \
	out_of_reach "$SHOWN/early"
attack "sockets" "one further below" out_of_reach "$SHOWN/deep/early"
attack "sockets" "one in a directory of PATH" out_of_reach "$ROOM/home/tools/bin/early"
[ "$(id -u)" != 0 ] || attack "sockets" "one of the system" out_of_reach /opt/early
attack "sockets" "one served between two commands" out_of_reach "$SHOWN/late"
attack "sockets" "one served there again" served_again
holds "sockets of its own work" own_ones_work
holds "what is shown is still read" what_is_read_is_read
holds "nothing else of the view changes when a server comes" the_view_stays
holds "policy says so" policy_says_so
withstood
exec 9>&-
