#!/bin/sh
. "$TESTS/lib/client.sh"

client() {
	"$ROOM/prepared/java" -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$ROOM/prepared" Client "$1"
}

begin Java true
claim "Java writes, reads, moves, removes files" client files
claim "Java writes requests, renames them onto ctl/exec, reads results" client requests
claim "Java sees refusals with their errno" client refusals
end
