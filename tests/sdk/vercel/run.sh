#!/bin/sh
# The official @vercel/sandbox, at the version of package-lock.json, against the loopback server of
# the tests: run.sh DIR, into which the package is installed. Prints TAP.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
lib=$here/../../lib
room=$(mktemp -d)
mkdir -p "$1" "$room/git" "$room/boxes"
dir=$(cd "$1" && pwd)
export GIT_CONFIG_NOSYSTEM=1 HOME="$room"

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}

end() {
	exec 7>&- 8>&-
	wait
	rm -rf "$room"
}
trap end EXIT

command -v node >/dev/null && command -v npm >/dev/null ||
	skip "node and npm are not installed"
cp "$here/package.json" "$here/package-lock.json" "$dir"
if ! cmp -s "$dir/package-lock.json" "$dir/installed"; then
	npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund >"$room/npm" 2>&1 </dev/null ||
		skip "npm cannot install @vercel/sandbox: $(tail -n 1 "$room/npm")"
	cp "$dir/package-lock.json" "$dir/installed"
fi

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
	unset GIT_CONFIG_NOSYSTEM VERCEL_OIDC_TOKEN
	cd "$dir"
	node "$here/scenario.mjs" "$dir/node_modules/@vercel/sandbox" "http://127.0.0.1:$api_port/api" \
		sdk-token team_test prj_test "http://127.0.0.1:$git_port/org/repo.git" git-token
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
