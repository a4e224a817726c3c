#!/bin/sh
# dagger.sh PREPARED PROGRAM: the loopback session of Dagger, which the other tests believe, is held
# against Dagger's own SDK (dagger/scenario.mjs), and what is asked of a real engine against it: in
# both eras, with the SDK of each. Skips, in words, where node or the npm registry is not to be had.
set -u

here=$(cd "$(dirname "$0")" && pwd)
lib=$here/../lib
token=8b0f62d1-averysecrettoken

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}

command -v node >/dev/null || skip "node is not installed"
command -v npm >/dev/null || skip "npm is not installed"
prepared=$("$lib/prepare.sh" dagger "$1")
case $? in
0) ;;
77) skip "$prepared" ;;
*)
	printf '%s\n' "$prepared" | sed 's/^/# /'
	printf 'not ok 1 - the SDK is installed\n1..1\n'
	exit 1
	;;
esac

room=$(mktemp -d "${TMPDIR:-/tmp}/sandboxfs-test.XXXXXX") || exit 99

clean() {
	exec 8>&-
	wait
	rm -rf "$room"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

git init -q -b trunk "$room/repository"
echo hello >"$room/repository/README.md"
git -C "$room/repository" add README.md
git -C "$room/repository" -c user.name=a -c user.email=a@example.org commit -q -m one

# control METHOD PATH BODY
control() {
	python3 -c 'import sys, urllib.request
request = urllib.request.Request(sys.argv[2], sys.argv[3].encode() or None, method=sys.argv[1])
sys.stdout.write(urllib.request.urlopen(request).read().decode())' \
		"$1" "http://127.0.0.1:$port/control/$2" "${3-}"
}

# all ERA PACKAGE PROGRAM
all() {
	mkdir "$room/$1" "$room/$1/room"
	mkfifo "$room/$1/in"
	python3 "$lib/dagger_server.py" "$room/$1/engine" "$token" "$1" \
		<"$room/$1/in" >"$room/$1/port" 8>&- &
	exec 8>"$room/$1/in"
	until [ -s "$room/$1/port" ]; do
		sleep 0.1
	done
	port=$(cat "$room/$1/port")
	control POST switch "{\"git\":{\"https://example.org/repository\":\"$room/repository\"}}"
	DAGGER_SESSION_PORT=$port DAGGER_SESSION_TOKEN=$token DO_NOT_TRACK=1 node \
		"$here/dagger/scenario.mjs" "$prepared/node_modules/$2" "$room/$1/room" \
		https://example.org/repository 2>"$room/$1/log" || {
		sed 's/^/# /' "$room/$1/log"
		echo "not ok - the SDK's scenario ends"
	}
	DAGGER_SESSION_PORT=$port DAGGER_SESSION_TOKEN=$token DAGGER_IMAGE=busybox \
		"$here/../real/dagger.sh" "$3" || echo "not ok - the provider's scenario ends"
	found=$(control GET violations)
	[ -z "$found" ] || printf '%s\n' "$found" | sed 's/^/# /'
	[ -z "$found" ] || printf 'not '
	echo "ok - nothing that was asked was wrong"
	exec 8>&-
	wait
}

# Numbers and the plan are given here, for all of them.
{
	all 0.20 dagger-0.20 "$2"
	all 0.21 @dagger.io/dagger "$2"
} | awk -v n=0 '
/^1\.\./ { next }
/^(not )?ok / { sub(/ok [0-9]* ?- /, "ok " ++n " - ") }
{ print }
END { print "1.." n }'
