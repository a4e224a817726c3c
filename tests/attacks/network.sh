#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Reaching anything by a socket, or by what needs none.

serve_on_the_host() {
	mkfifo "$ROOM/server.in" "$ROOM/server.out"
	"$ROOM/bin/attack" serve "$ROOM/home/agent" <"$ROOM/server.in" >"$ROOM/server.out" 9>&- &
	exec 9>"$ROOM/server.in"
	read -r port <"$ROOM/server.out"
}

the_servers_are_there() {
	same 0 "$("$ROOM/bin/attack" loopback "$port")"
	same 0 "$("$ROOM/bin/attack" abstract "$port")"
	same 0 "$("$ROOM/bin/attack" connect "$ROOM/home/agent")"
	same 0 "$("$ROOM/bin/attack" shm "$port")"
}

own_loopback_works() {
	run a sh -c 'mkfifo in out; ./attack serve path <in >out & exec 3>in; read -r port <out
		[ "$(./attack loopback "$port")" = 0 ] && [ "$(./attack abstract "$port")" = 0 ] &&
		[ "$(./attack connect path)" = 0 ] && [ "$(./attack shm "$port")" = 0 ]'
}

# Two sandboxes' servers have ports of their own, by which a finds what b has.
the_other_sandboxes_servers() {
	cp "$ROOM/bin/attack" "$MNT/b/attack"
	rm -f "$MNT/b/in" "$MNT/b/out" "$MNT/b/path"
	id=$("$TOOL" result "$MNT/b/ctl/spawn" sh -c 'mkfifo in; exec 3<>in; ./attack serve path <in >out')
	until [ -s "$MNT/b/out" ]; do tick; done
	other=$(cat "$MNT/b/out")
	for way in loopback abstract shm; do
		echo "$(run a ./attack $way "$other") $way"
	done >"$ROOM/ways"
	echo "$id" >"$MNT/b/ctl/kill"
	cat "$MNT/b/ctl/jobs/$id/wait" >/dev/null
	same "ECONNREFUSED loopback
ECONNREFUSED abstract
ENOENT shm" "$(cat "$ROOM/ways")"
}

serve_on_the_host
claim "the servers on the host are there" the_servers_are_there
claim "mounting" mount_victims
attack "net seccomp" "a server on the host's loopback" answers ECONNREFUSED loopback "$port"
attack "net landlock" "an abstract socket of the host" answers ECONNREFUSED abstract "$port"
attack "view landlock" "a socket in the user's home, as an agent's" answers ENOENT connect \
	"$ROOM/home/agent"
attack "ipc_ns" "memory that a process of the host shares" answers ENOENT shm "$port"
attack "net seccomp landlock ipc_ns" "servers and memory of another sandbox" \
	the_other_sandboxes_servers
# Where the tests run there may be no network to reach.
attack -kernel "the internet" answers ENETUNREACH internet 80
for kind in vsock audit; do
	attack "seccomp" "a socket of the kind $kind" answers EPERM socket $kind
done
for kind in packet raw raw6; do
	attack "root:seccomp run_as capabilities user_ns" "a socket of the kind $kind" \
		answers EPERM socket $kind
done
for kind in alg bluetooth; do
	attack -kernel "a socket of the kind $kind" answers 'EPERM|EAFNOSUPPORT' socket $kind
done
holds "interfaces may still be listed" answers 0 socket route
attack -kernel "a daemon's socket on the host: docker" answers 'ENOENT' read /var/run/docker.sock
attack -kernel "a daemon's socket on the host: dbus" \
	answers 'ENOENT' read /run/dbus/system_bus_socket
holds "loopback, sockets and memory of its own work" own_loopback_works
withstood
exec 9>&-
wait
