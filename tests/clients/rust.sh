#!/bin/sh
. "$TESTS/lib/client.sh"

client() {
	"$ROOM/prepared/client" "$1"
}

begin Rust true
claim "Rust writes, reads, moves, removes files" client files
claim "Rust writes requests, renames them onto ctl/exec, reads results" client requests
claim "Rust sees refusals with their errno" client refusals
end
