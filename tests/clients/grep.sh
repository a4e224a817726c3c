#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	echo 'needle in a file' >src/hay
	same src/hay "$(grep -rl needle . | sed 's|^\./||')"
	echo 'sh -c "echo needle >inside"' >ctl/exec
	same 2 "$(grep -r needle . | wc -l)"
	grep -c . ctl/status
	same needle "$(grep -o needle inside)"
	echo 'grep -c needle inside' >ctl/exec
	ran 1
}

reports() {
	refuse grep needle missing
	echo 'grep nothing-like-it inside' >ctl/exec
	same 1 "$(cut -d' ' -f1 ctl/status)"
}

begin grep
claim "grep -r finds what both sides wrote, and no control file" works
claim "grep reports what failed" reports
end
