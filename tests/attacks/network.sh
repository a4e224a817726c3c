#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Reaching anything by a socket.

serve_on_the_host() {
	mkfifo "$ROOM/server.in" "$ROOM/server.out"
	"$ROOM/bin/attack" serve <"$ROOM/server.in" >"$ROOM/server.out" 9>&- &
	exec 9>"$ROOM/server.in"
	read -r port <"$ROOM/server.out"
}

the_servers_are_there() {
	same 0 "$("$ROOM/bin/attack" loopback "$port")"
	same 0 "$("$ROOM/bin/attack" abstract "$port")"
}

own_loopback_works() {
	run a sh -c 'mkfifo in out; ./attack serve <in >out & exec 3>in; read -r port <out
		[ "$(./attack loopback "$port")" = 0 ] && [ "$(./attack abstract "$port")" = 0 ]'
}

serve_on_the_host
claim "the servers on the host are there" the_servers_are_there
claim "mounting" mount_victims
claim "attack: a server on the host's loopback" answers ECONNREFUSED loopback "$port"
claim "attack: an abstract socket of the host" answers ECONNREFUSED abstract "$port"
claim "attack: the internet" answers ENETUNREACH internet 80
for kind in packet raw raw6 vsock alg bluetooth audit; do
	claim "attack: a socket of the kind $kind" answers 'EPERM|EAFNOSUPPORT' socket $kind
done
claim "interfaces may still be listed" answers 0 socket route
claim "attack: a daemon's socket on the host: docker" answers 'ENOENT' read /var/run/docker.sock
claim "attack: a daemon's socket on the host: dbus" answers 'ENOENT' read /run/dbus/system_bus_socket
claim "loopback of its own works" own_loopback_works
claim "the host is as it was" still_fine
finish
exec 9>&-
wait
