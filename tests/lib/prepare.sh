#!/bin/sh
# prepare.sh CLIENT DIR: what the client's case needs and cannot make itself, because an
# ordinary user in a plain environment may reach neither the compiler nor the registry. DIR
# keeps it for the next case; it is made again when its source has changed. Prints
# DIR/CLIENT/out, or nothing where there is nothing to prepare. On failure prints the reason;
# ends with 77 where the registry cannot be reached.
set -u

client=$1
here=$(cd "$(dirname "$0")/../clients" && pwd)
dir=$2/$client

npm_ci() {
	cp "$source/package.json" "$source/package-lock.json" "$dir/new/" || return 1
	(cd "$dir/new" && npm ci --ignore-scripts --no-audit --no-fund --fetch-retries=1 \
		--fetch-retry-mintimeout=1000 --fetch-timeout=30000) && return 0
	! grep -qE \
		'E(NOTFOUND|CONNREFUSED|CONNRESET|TIMEDOUT|AI_AGAIN|NETUNREACH|HOSTUNREACH)|_CERT_|SIGNATURE' \
		"$dir/log" || return 77
	return 1
}

prepare_go() {
	CGO_ENABLED=0 GO111MODULE=off GOCACHE=$dir/tmp GOPATH=$dir/tmp GOFLAGS='' \
		go build -o "$dir/new/client" "$here/go/client.go"
}

prepare_rust() {
	rustc -o "$dir/new/client" "$here/rust/client.rs"
}

# The program finds what belongs to it where it really is.
prepare_java() {
	javac -d "$dir/new" "$here/java/Client.java" &&
		ln -s "$(readlink -f "$(command -v java)")" "$dir/new/java"
}

prepare_mcp() {
	npm_ci
}

prepare_daytona() {
	npm_ci
}

prepare_vercel() {
	npm_ci
}

prepare_dagger() {
	npm_ci
}

case $client in
mcp | go | rust | java) source=$here/$client ;;
dagger | daytona | vercel) source=$here/../sdk/$client ;;
*) exit 0 ;;
esac

mkdir -p "$dir" || exit 1
exec 9>"$dir/lock"
flock 9
sum=$(cat "$source"/* | cksum)
if [ "$(cat "$dir/sum" 2>/dev/null)" != "$sum" ]; then
	rm -rf "$dir/new" "$dir/out" "$dir/tmp"
	mkdir "$dir/new" "$dir/tmp"
	TMPDIR=$dir/tmp "prepare_$client" >"$dir/log" 2>&1
	code=$?
	if [ $code != 0 ]; then
		[ $code != 77 ] || echo "the npm registry cannot be reached"
		[ $code = 77 ] || grep -vi '^npm warn' "$dir/log" | head -n 12
		exit $code
	fi
	mv "$dir/new" "$dir/out"
	rm -rf "$dir/tmp"
	echo "$sum" >"$dir/sum"
fi
echo "$dir/out"
