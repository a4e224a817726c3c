#!/bin/sh
. "$TESTS/lib/client.sh"

client() {
	"$ROOM/prepared/client" "$1"
}

begin Go true
claim "Go writes, reads, moves, removes files" client files
claim "Go writes requests, renames them onto ctl/exec, reads results" client requests
claim "Go sees refusals with their errno" client refusals
end
