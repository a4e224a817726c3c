#!/bin/sh
# vercel.sh SANDBOXFS: a mount with sandboxes at Vercel itself, for who has a token. It makes one
# sandbox of a public repository, and removes it. VERCEL_TEST_REPOSITORY names another one; the
# other variables count as they do for a mount. Prints TAP.
set -u

if [ -z "${VERCEL_TOKEN:-}${VERCEL_OIDC_TOKEN:-}" ]; then
	echo "1..0 # SKIP skipped: neither VERCEL_TOKEN nor VERCEL_OIDC_TOKEN is set, so that no real" \
		"Vercel is asked"
	exit 0
fi
sandboxfs=$1
repository=${VERCEL_TEST_REPOSITORY:-https://github.com/vercel/ms}
room=$(mktemp -d)
mnt=$room/mnt
box=$mnt/real-$$
number=0
mkdir "$mnt"

end() {
	[ ! -d "$box" ] || rmdir "$box"
	fusermount3 -u "$mnt" 2>/dev/null
	wait
	rm -rf "$room"
}
trap end EXIT

# claim TEXT COMMAND...
claim() {
	text=$1
	shift
	number=$((number + 1))
	if (set -e; "$@") >"$room/out" 2>&1 </dev/null; then
		echo "ok $number - $text"
	else
		echo "not ok $number - $text"
		sed 's/^/# /' "$room/out"
		for file in "$box/ctl/error" "$mnt/ctl/error" "$room/log"; do
			[ ! -s "$file" ] || sed 's/^/# /' "$file"
		done
	fi
}

# same WANT HAVE
same() {
	[ "$1" = "$2" ] || {
		echo "want '$1', have '$2'"
		return 1
	}
}

# exec_json JSON: runs it, and prints its output
exec_json() {
	printf '%s\n' "$1" >"$box/ctl/exec" || return 1
	cat "$box/stdout"
}

mounts() {
	"$sandboxfs" "$repository" "$mnt" -f -o "backend=vercel,state_dir=$room/state,ephemeral" \
		>"$room/log" 2>&1 &
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		! mountpoint -q "$mnt" || return 0
		sleep 1
	done
	return 1
}

makes() {
	mkdir "$box"
	ls "$box" | grep .
}

has_branch() {
	same "sandbox/real-$$" "$(exec_json '{"argv":["git","symbolic-ref","--short","HEAD"]}')"
}

runs_python() {
	same 42 "$(exec_json '{"argv":["python3","-c","print(6 * 7)"]}')"
}

has_streams_apart() {
	same out "$(exec_json '{"argv":["sh","-c","echo out; echo err >&2; exit 3"]}')"
	same err "$(cat "$box/stderr")"
	same 3 "$(cut -d " " -f 1 "$box/status")"
}

writes() {
	mkdir -p "$box/made/here"
	printf 'any\000\377bytes\n' >"$box/made/here/file"
	same '0000000 a n y \0 377 b y t e s \n' \
		"$(exec_json '{"argv":["od","-c","made/here/file"]}' | head -n 1 | tr -s ' ')"
}

reads() {
	exec_json '{"argv":["sh","-c","echo theirs >theirs"]}'
	same theirs "$(cat "$box/theirs")"
	[ ! -e "$box/missing" ]
	ls "$box" | grep -x theirs
}

has_no_network() {
	code='import socket; socket.create_connection((\"1.1.1.1\", 443), 3)'
	exec_json "{\"argv\":[\"python3\",\"-c\",\"$code\"]}"
	same 1 "$(cut -d " " -f 1 "$box/status")"
}

is_removed() {
	rmdir "$box"
	[ ! -d "$box" ]
}

claim 'it is mounted' mounts
claim 'a sandbox is made of the repository' makes
claim 'its branch is checked out' has_branch
claim 'Python code runs' runs_python
claim 'streams are apart, and there is a status' has_streams_apart
claim 'what is written here is there, whatever its bytes' writes
claim 'what is written there is here' reads
[ -n "${VERCEL_API_URL:-}" ] || claim 'its network is closed' has_no_network
claim 'it is removed' is_removed
echo "1..$number"
