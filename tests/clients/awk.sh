#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	awk 'BEGIN { for (i = 0; i < 1000; i++) print i > "f"; close("f") }'
	same 499500 "$(awk '{ s += $1 } END { print s }' f)"
	awk 'BEGIN { print "echo run by awk" > "ctl/exec"; close("ctl/exec")
		getline line < "ctl/stdout"; print line }' |
		grep -qx 'run by awk'
	awk 'BEGIN { print "[\"sh\",\"-c\",\"exit 9\"]" > "ctl/exec"; close("ctl/exec")
		getline < "ctl/status"; exit $1 != 9 }'
}

reports() {
	refuse awk 'BEGIN { print "no-such-program" > "ctl/exec"; if (close("ctl/exec")) exit 1; exit 0 }'
}

begin awk
claim "awk writes, reads, runs commands" works
claim "awk reports what failed" reports
end
