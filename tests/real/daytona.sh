#!/bin/sh
# daytona.sh PROGRAM: the provider for Daytona against the service itself, for who has a key. It
# makes one sandbox of a public repository, and removes it. DAYTONA_TEST_REPOSITORY names another
# one; DAYTONA_API_URL, DAYTONA_TARGET and DAYTONA_SNAPSHOT count as they do for a mount.
set -eu

if [ -z "${DAYTONA_API_KEY:-}" ]; then
	echo "1..0 # SKIP skipped: DAYTONA_API_KEY is not set, so that no real Daytona is asked"
	exit 0
fi
DAYTONA_SNAPSHOT=${DAYTONA_SNAPSHOT:-daytona-small}
export DAYTONA_SNAPSHOT
exec "$1" "${DAYTONA_TEST_REPOSITORY:-https://github.com/daytonaio/sdk}"
