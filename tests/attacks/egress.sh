#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# net=allow: the listed hosts, by the proxy, and nothing else.

serve_on_the_host() {
	mkfifo "$ROOM/web.in" "$ROOM/web.out"
	python3 "$TESTS/lib/web.py" <"$ROOM/web.in" >"$ROOM/web.out" 9>&- &
	exec 9>"$ROOM/web.in"
	read -r port <"$ROOM/web.out"
}

# fetch BOX ARGUMENT...: curl by the proxy, also for what NO_PROXY has.
fetch() {
	fetch_box=$1
	shift
	run "$fetch_box" curl -sS --max-time 60 --noproxy '' "$@"
}

# asks BOX BYTES: what the proxy answers to them (printf's escapes), the status alone.
asks() {
	run "$1" python3 -c '
import socket, sys
s = socket.create_connection(("127.0.0.1", 808))
s.sendall(sys.argv[1].encode().decode("unicode_escape").encode("latin-1"))
s.shutdown(socket.SHUT_WR)
answer = b""
while chunk := s.recv(65536):
    answer += chunk
print(answer.split(b" ")[1].decode() if answer else "nothing")' "$2"
}

# connects WANT HOST:PORT
connects() {
	same "$1" "$(asks a "CONNECT $2 HTTP/1.1\\r\\n\\r\\n")"
}

# With few descriptors, so that 300 connections are more than there are for all.
mount_allowing() {
	ulimit -n 1024
	mount_victims "net=allow:127.0.0.1:$port,localhost:$port,*.allowed.invalid,127.0.0.1:1"
}

a_listed_host() {
	same "hello from the host" "$(fetch a "http://127.0.0.1:$port/")"
}

a_tunnel() {
	same "hello from the host" "$(fetch a -p "http://127.0.0.1:$port/")"
}

the_checked_host() {
	same "127.0.0.1:$port" "$(fetch a -H 'Host: other.invalid' "http://127.0.0.1:$port/host")"
}

many_bytes() {
	run a sh -c 'head -c 20000000 /dev/urandom >up'
	sum=$(sha256sum <"$MNT/a/up" | cut -d' ' -f1)
	for how in '' -p; do
		# shellcheck disable=SC2086
		same "$sum" "$(fetch a $how -H 'Expect:' --data-binary @up "http://127.0.0.1:$port/")"
		# shellcheck disable=SC2086
		fetch a $how -o down "http://127.0.0.1:$port/bytes/20000000"
		same "$(python3 -c 'import hashlib
print(hashlib.sha256(bytes(range(251)) * (20000000 // 251 + 1)).hexdigest())')" \
			"$(sha256sum <"$MNT/a/down" | cut -d' ' -f1)"
	done
	rm "$MNT/a/up" "$MNT/a/down"
}

denied_in_words() {
	same "sandboxfs: other.invalid:80: it is not in the list of net=allow" \
		"$(fetch a http://Other.invalid/)"
	same 1 "$(grep -cF '"kind":"host","what":"other.invalid:80"' "$MNT/a/ctl/log")"
	"$TOOL" read-until "$MNT/a/ctl/events" 'host: other.invalid:80: it is not in the list'
	same 0 "$(grep -cF '"kind":"host"' "$MNT/b/ctl/log")"
}

a_name_of_the_host() {
	like '*leads to an address that is not public: a rule with /private behind the name allows that*' \
		"$(fetch a "http://localhost:$port/")"
}

others_are_served_meanwhile() {
	run a python3 -c '
import socket
held = []
for i in range(300):
    s = socket.create_connection(("127.0.0.1", 808))
    s.sendall(b"CONNECT ")
    held.append(s)
open("held", "w").close()
import time
time.sleep(600)' &
	until [ -e "$MNT/a/held" ]; do tick; done
	same "hello from the host" "$(fetch b "http://127.0.0.1:$port/")"
	echo 1 >"$MNT/a/ctl/kill"
	wait $! || true
	same "hello from the host" "$(fetch a "http://127.0.0.1:$port/")"
}

daemon_kib() {
	awk '/VmRSS/ { print $2 }' "/proc/$(daemon_pid)/status"
}

one_who_does_not_read() {
	before=$(daemon_kib)
	run a python3 -c '
import socket, sys
s = socket.create_connection(("127.0.0.1", 808))
s.sendall(b"POST http://127.0.0.1:%s/silent HTTP/1.1\r\n\r\n" % sys.argv[1].encode())
s.settimeout(2)
sent = 0
try:
    while True:
        sent += s.send(bytes(65536))
except TimeoutError:
    open("full.new", "w").write(str(sent))
    __import__("os").rename("full.new", "full")
s.settimeout(None)
while True:
    s.send(bytes(65536))' "$port" &
	# The buffers on the way are full: nothing was taken for two seconds.
	until [ -e "$MNT/a/full" ]; do tick; done
	[ "$(cat "$MNT/a/full")" -gt 1000000 ] || fail "only $(cat "$MNT/a/full") bytes are sent"
	after=$(daemon_kib)
	[ $((after - before)) -lt 4096 ] || fail "$before KiB before, $after after"
	same still "$(run b echo still)"
	echo 1 >"$MNT/a/ctl/kill"
	wait $! || true
}

nothing_around_the_proxy() {
	answers ECONNREFUSED loopback "$port"
	answers ENETUNREACH internet 80
	same ECONNREFUSED "$("$ROOM/bin/attack" loopback 808)"
}

its_port_is_taken() {
	like '*Permission denied*' "$(run a python3 -c 'import socket
try:
    socket.socket().bind(("127.0.0.2", 808))
except OSError as e:
    print(e)')"
}

after_a_rename() {
	mv "$MNT/b" "$MNT/c"
	same "hello from the host" "$(fetch c "http://127.0.0.1:$port/")"
	mv "$MNT/c" "$MNT/b"
	same "hello from the host" "$(fetch b "http://127.0.0.1:$port/")"
}

policy_says_so() {
	like "allow:127.0.0.1:$port,*" "$("$TOOL" json network <"$MNT/a/ctl/policy")"
}

a_name_with_leave() {
	tear_and_unmount
	mount_victims "net=allow:localhost:$port/private"
	same "hello from the host" "$(fetch a "http://localhost:$port/")"
	connects 403 "127.0.0.1:$port"
}

refused_at_the_mount() {
	refused_mount 'is not HOST' "$REPO" "$MNT" -o 'net=allow:*'
	refused_mount 'is not HOST' "$REPO" "$MNT" -o 'net=allow:a.org,http://b.org'
	refused_mount 'needs a network namespace' "$REPO" "$MNT" \
		-o "state_dir=$ROOM/none,net=allow:a.org,isolation=none"
}

serve_on_the_host
new_repo
claim "what is no rule, or cannot be kept, is refused at the mount" refused_at_the_mount
claim "mounting" mount_allowing
claim "a listed host answers" a_listed_host
claim "and through a tunnel" a_tunnel
claim "the server is told the host that was checked" the_checked_host
claim "20 MB each way, both ways, are exact" many_bytes
attack -daemon "a host that is not listed" denied_in_words
attack -daemon "a listed name that leads to the host's loopback" a_name_of_the_host
claim "a listed address where nobody listens" connects 502 127.0.0.1:1
claim "a name that does not exist" connects 502 a.allowed.invalid:443
for host in "127.0.0.2:$port" 127.0.0.1:22 "0.0.0.0:$port" "[::]:$port" "[::1]:$port" \
	169.254.169.254:80 \
	allowed.invalid:443 a.allowed.invalid:22 a.allowed.invalid.evil.test:443 badallowed.invalid:443 \
	"2130706433:$port" "0x7f000001:$port" "0x7f.1:$port" "127.1:$port" "0177.0.0.1:$port" \
	"127.0.0.1%00.evil.test:$port" "x@127.0.0.1:$port" "127.0.0.1:$port@evil.test:$port" "127.0.0.1" \
	":$port"; do
	claim "attack: $(echo "$host" | sed "s/$port/PORT/g")" connects 403 "$host"
done
claim "an address in its IPv6 form is the same one" connects 200 "[::ffff:127.0.0.1]:$port"
attack -daemon "two lines of a request in one" same 400 \
	"$(asks a 'GET http://127.0.0.1:1/\nX: y HTTP/1.1\r\n\r\n')"
attack -daemon "no absolute URI" same 400 "$(asks a 'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n')"
attack -daemon "a head without an end" same nothing "$(asks a 'GET http://127.0.0.1/')"
attack -daemon "a head of 20 000 bytes" same 431 \
	"$(asks a "GET http://127.0.0.1/$(printf '%20000s' | tr ' ' x)")"
attack -daemon "300 connections held open" others_are_served_meanwhile
attack -daemon "a server that never reads" one_who_does_not_read
# What keeps it inside is shown to in network.sh.
attack -daemon "around the proxy" nothing_around_the_proxy
attack -daemon "taking the proxy's port" its_port_is_taken
claim "a renamed sandbox has its way out too" after_a_rename
claim "policy names the hosts" policy_says_so
claim "/private: the name may lead to the host" a_name_with_leave
claim "the host is as it was" still_fine
finish
exec 9>&-
wait
