#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	mkdir -p t/u
	echo 'touch t/inside t/u/inside' >ctl/exec
	same 2 "$(find . -name inside | wc -l)"
	same 't/inside
t/u/inside' "$(find t -type f | sort)"
	same ./link "$(find . -type l)"
	find t -name inside -exec sh -c 'echo x >"$1"' _ {} \;
	same x "$(cat t/u/inside)"
	find t -delete
	[ ! -e t ]
	same 0 "$(find "$MNT" -maxdepth 3 -path '*/a/ctl' | wc -l)"
}

reports() {
	refuse find missing
}

begin find
claim "find by name and type, -exec, -delete; controls are not in the way" works
claim "find reports what failed" reports
end
