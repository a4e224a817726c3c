#!/bin/sh
. "$TESTS/lib/mount.sh"
# A machine that lies about its tree (tests/lib/hostile.py). It can spoil its own sandbox, and
# nothing else: no file is made elsewhere, the daemon goes on, and the truth comes through again.

lie() {
	rm -f "$DIRS/hostile"
	cp "$TESTS/lib/hostile.py" "$DIRS/hostile.py"
	echo "exec python3 '$DIRS/hostile.py' $1" >"$DIRS/hostile"
	faults "run@$(basename "$(machine a)") hostile all hostile"
}

# Outside of the sandbox nothing has come to be, and what was there is as it was.
nothing_outside() {
	same '' "$(find "$ROOM" -path "$MNT" -prune -o -name 'evil*' -print)"
	find "$ROOM" -xdev -newer "$ROOM/before" -type f -not -path "$STATE/*" -not -path "$DIRS/*" |
		grep -v 'claim.log\|daemon\.\|/before\|/outside' >"$ROOM/outside" || true
	same '' "$(cat "$ROOM/outside")"
	[ ! -e /evil ]
	same hello "$(cat "$MNT/b/README.md")"
	same hi "$(run b echo hi)"
}

# lies MODE: the same while it lies, by whatever way somebody looks; and the truth afterwards.
lies() {
	touch "$ROOM/before"
	lie "$1"
	timeout 100 "$TOOL" write "$MNT/a/ctl/exec" O_WRONLY 'sh -c "echo x >>touched"' >/dev/null
	timeout 100 ls -lR "$MNT/a" >/dev/null 2>&1 || [ $? != 124 ]
	timeout 100 find "$MNT/a" -type f -size -1000k -exec cat {} + >/dev/null 2>&1 || [ $? != 124 ]
	nothing_outside
	faults
	teardown a
	box a
	same hello "$(cat "$MNT/a/README.md")"
	same there "$(run a echo there)"
}

# By ENOSYS the kernel would ask for no fsync any more, in no sandbox; by what is no errno at all it
# takes no answer, and who waits for it cannot even be killed.
errnos() {
	for number in 4 38 512 600 4294967334 18446744073709551615; do
		lie "$number"
		echo "$number" >"$MNT/a/told"
		same EREMOTEIO "$(fsync_errno "$MNT/a/told")"
		like '*it says*' "$(cat "$MNT/a/ctl/error")"
		expect EREMOTEIO write "$MNT/a/ctl/exec" O_WRONLY true
	done
	faults
	echo sent >"$MNT/b/told"
	same 0 "$(fsync_errno "$MNT/b/told")"
	same sent "$(cat "$(machine b)/tree/told")"
	same 0 "$(fsync_errno "$MNT/a/told")"
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
claim "names that climb" lies dots
claim "absolute names" lies absolute
claim "names behind links" lies links
claim "directories in themselves, files as directories" lies cycles
claim "sizes, times and modes that cannot be" lies sizes
claim "names that cannot be" lies names
claim "devices, and kinds that there are none of" lies devices
claim "names of controls" lies controls
claim "ten million names" lies many
claim "two GiB that were packed" lies bomb
claim "an answer that is none" lies junk
claim "errnos that would be more than one failure, or none" errnos
finish
