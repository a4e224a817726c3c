#!/bin/sh
# daytona.sh PREPARED PROGRAM: the loopback Daytona, which the other tests believe, is held against
# Daytona's own SDK (daytona/scenario.mjs), and the provider against what is left of that: in both
# eras of the service. Skips, in words, where node or the npm registry is not to be had.
set -u

here=$(cd "$(dirname "$0")" && pwd)
lib=$here/../lib
key=dtn_averysecretkey token=ghp_verysecrettoken

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}

command -v node >/dev/null || skip "node is not installed"
command -v npm >/dev/null || skip "npm is not installed"
prepared=$("$lib/prepare.sh" daytona "$1")
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
servers=

clean() {
	exec 7>&- 8>&-
	[ -z "$servers" ] || wait
	rm -rf "$room"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

repository() {
	mkdir -p "$room/$1/git/acme" "$room/$1/boxes"
	git init -q -b trunk "$room/$1/work"
	echo hello >"$room/$1/work/README.md"
	git -C "$room/$1/work" add README.md
	git -C "$room/$1/work" -c user.name=a -c user.email=a@example.org commit -q -m one
	git clone -q --bare "$room/$1/work" "$room/$1/git/acme/widgets.git"
	git -C "$room/$1/git/acme/widgets.git" config http.receivepack true
}

# serve NAME PROGRAM...: serves until descriptor 7 or 8 is closed; its port is in $room/NAME.
serve() {
	served=$1
	shift
	python3 "$@" <"$room/in" >"$room/$served.new" 7>&- 8>&- &
	servers=yes
}

port() {
	until [ -s "$room/$1.new" ]; do
		sleep 0.1
	done
	cat "$room/$1.new"
}

start() {
	repository "$1"
	mkfifo "$room/in"
	serve git "$lib/git_http.py" "$room/$1" "$token"
	exec 7>"$room/in"
	rm "$room/in"
	mkfifo "$room/in"
	serve daytona "$lib/daytona_server.py" "$room/$1/boxes" "$key" "$1"
	exec 8>"$room/in"
	rm "$room/in"
	git_url=http://127.0.0.1:$(port git)
	daytona_url=http://127.0.0.1:$(port daytona)
}

stop() {
	exec 7>&- 8>&-
	wait
	rm "$room"/*.new
}

control() {
	python3 -c 'import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())' "$daytona_url/control/$1"
}

# said TEXT WORD: claims that the server has nothing to say about WORD.
said() {
	found=$(control "$2")
	[ -z "$found" ] || printf '%s\n' "$found" | sed 's/^/# /'
	[ -z "$found" ] || printf 'not '
	echo "ok - $1"
}

all() {
	start "$1"
	node "$here/daytona/scenario.mjs" "$prepared/node_modules/@daytona/sdk" "$daytona_url/api" \
		"$key" "$git_url/acme/widgets" "$token" || echo "not ok - the SDK's scenario ends"
	DAYTONA_API_URL=$daytona_url/api DAYTONA_API_KEY=$key GITHUB_TOKEN=$token \
		GITHUB_API_URL=$git_url "$2" "$git_url/acme/widgets" ||
		echo "not ok - the provider's scenario ends"
	said "nothing that was asked, and no answer, was wrong" violations
	said "no sandbox is left" living
	stop
}

# Numbers and the plan are given here, for all of them.
{
	all v0.190 "$2"
	all new "$2"
} | awk -v n=0 '
/^1\.\./ { next }
/^(not )?ok / { sub(/ok [0-9]* ?- /, "ok " ++n " - ") }
{ print }
END { print "1.." n }'
