#!/bin/sh
# dagger.sh PROGRAM: the provider for Dagger against an engine, in the session that the environment
# names: `dagger run tests/run.sh --suite real`. It makes a machine of a repository that is made
# here, and forgets it. DAGGER_IMAGE counts as it does for a mount; it has a shell, base64 and od.
set -eu

if [ -z "${DAGGER_SESSION_PORT:-}" ]; then
	echo "1..0 # SKIP skipped: DAGGER_SESSION_PORT is not set, so that no real engine is asked"
	exit 0
fi
room=$(mktemp -d "${TMPDIR:-/tmp}/sandboxfs-test.XXXXXX")
trap 'rm -rf "$room"' EXIT
trap 'exit 1' HUP INT TERM
git init -q -b trunk "$room/repository"
echo hello >"$room/repository/README.md"
git -C "$room/repository" add README.md
git -C "$room/repository" -c user.name=a -c user.email=a@example.org commit -q -m one
"$1" "$room/repository" "$room"
