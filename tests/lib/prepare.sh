#!/bin/sh
# prepare.sh CLIENT DIR: what the client's case needs and cannot make itself, because an ordinary user in a plain
# environment may reach neither the compiler nor the registry. DIR keeps it for the next case; it is made again
# when its source has changed. Prints DIR/CLIENT/out, or nothing where there is nothing to prepare. On failure prints
# the reason; ends with 77 where the registry cannot be reached.
set -u

client=$1
here=$(cd "$(dirname "$0")/../clients" && pwd)
dir=$2/$client

mcp() {
	cp "$here/mcp/package.json" "$here/mcp/package-lock.json" "$dir/new/" || return 1
	(cd "$dir/new" && npm ci --ignore-scripts --no-audit --no-fund) && return 0
	! grep -qE 'E(NOTFOUND|CONNREFUSED|CONNRESET|TIMEDOUT|AI_AGAIN|NETUNREACH|HOSTUNREACH)|_CERT_|SIGNATURE' \
		"$dir/log" || return 77
	return 1
}

case $client in
mcp) source=$here/mcp ;;
*) exit 0 ;;
esac

mkdir -p "$dir" || exit 1
exec 9>"$dir/lock"
flock 9
sum=$(cat "$source"/* | cksum)
if [ "$(cat "$dir/sum" 2>/dev/null)" != "$sum" ]; then
	rm -rf "$dir/new" "$dir/out" "$dir/tmp"
	mkdir "$dir/new" "$dir/tmp"
	TMPDIR=$dir/tmp "$client" >"$dir/log" 2>&1
	code=$?
	if [ $code != 0 ]; then
		grep -v '^npm warn' "$dir/log" | head -n 12
		exit $code
	fi
	mv "$dir/new" "$dir/out"
	echo "$sum" >"$dir/sum"
fi
echo "$dir/out"
