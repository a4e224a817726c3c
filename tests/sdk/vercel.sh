#!/bin/sh
# vercel.sh PREPARED: the loopback Vercel, which the other tests believe, is held against Vercel's
# own SDK (vercel/scenario.mjs). Skips, in words, where node or the npm registry is not to be had.
set -u

here=$(cd "$(dirname "$0")" && pwd)
lib=$here/../lib
export GIT_CONFIG_NOSYSTEM=1

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}

command -v node >/dev/null || skip "node is not installed"
command -v npm >/dev/null || skip "npm is not installed"
prepared=$("$lib/prepare.sh" vercel "$1")
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
mkdir "$room/git" "$room/boxes"

clean() {
	exec 7>&- 8>&-
	wait
	rm -rf "$room"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

git init -q --bare -b main "$room/git/org/repo.git"
git clone -q "$room/git/org/repo.git" "$room/work" 2>/dev/null
git -C "$room/work" -c user.name=t -c user.email=t@t commit -q --allow-empty -m first
git -C "$room/work" push -q origin HEAD:main

mkfifo "$room/in.git" "$room/in.api" "$room/out"
# The descriptors 7 and 8 keep the servers running.
python3 "$lib/git_http.py" "$room" git-token <"$room/in.git" >"$room/out" 7>&- 8>&- &
exec 7>"$room/in.git"
read -r git_port <"$room/out"
python3 "$lib/vercel_server.py" "$room/boxes" sdk-token <"$room/in.api" >"$room/out" 7>&- 8>&- &
exec 8>"$room/in.api"
read -r api_port <"$room/out"

(
	unset VERCEL_OIDC_TOKEN
	node "$here/vercel/scenario.mjs" "$prepared/node_modules/@vercel/sandbox" \
		"http://127.0.0.1:$api_port/api" sdk-token team_test prj_test \
		"http://127.0.0.1:$git_port/org/repo.git" git-token
) | sed '/^1\.\.[0-9]*$/d' >"$room/tap"
cat "$room/tap"
n=$(($(grep -c '^\(not \)\?ok ' "$room/tap") + 1))
# What the SDK sends is what the server's table has; so are the server's answers.
violations=$(python3 -c 'import sys, urllib.request as u
print(u.urlopen(sys.argv[1]).read().decode(), end="")' \
	"http://127.0.0.1:$api_port/control/violations")
if [ -z "$violations" ]; then
	echo "ok $n - every request and every answer is as the table has it"
else
	echo "not ok $n - every request and every answer is as the table has it"
	echo "$violations" | sed 's/^/# /'
fi
echo "1..$n"
