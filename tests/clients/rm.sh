#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	mkdir -p t/u/v
	seq 500 | (cd t/u && xargs touch)
	echo 'touch t/u/v/inside' >ctl/exec
	rm -r t
	[ ! -e t ]
	echo x >f
	rm f
	refuse run a test -e f
	rm -rf "$MNT/a/"* || true
	same '' "$(ls)"
	echo 'echo still a sandbox' >ctl/exec
	ran 'still a sandbox'
}

reports() {
	refuse rm missing
	mkdir d
	refuse rm d
	rmdir d
}

begin rm
claim "rm -r removes trees; an emptied sandbox still works" works
claim "rm reports what failed" reports
end
