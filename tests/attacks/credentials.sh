#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Secrets in the configuration of a repository that the host has made below the root of a sandbox.

SECRET=hunter2hunter2

clone() {
	[ -d "$MNT/a/clone" ] || git clone -q "$REPO" "$MNT/a/clone"
	git -C "$MNT/a/clone" remote set-url origin "https://user:$SECRET@example.org/x.git"
	git -C "$MNT/a/clone" config http.https://example.org/.extraHeader "Authorization: Bearer $SECRET"
	git -C "$MNT/a/clone" config credential.helper "!f() { echo password=$SECRET; }; f"
	git -C "$MNT/a/clone" config "url.https://$SECRET@example.org/.insteadOf" example:
	mkdir -p "$MNT/a/clone/.git/modules/by/name"
	cp "$MNT/a/clone/.git/config" "$MNT/a/clone/.git/HEAD" "$MNT/a/clone/.git/modules/by/name/"
	cp "$MNT/a/clone/.git/config" "$MNT/a/clone/.git/config.worktree"
}

not_told() {
	! grep -q "$SECRET" "$ROOM/said" || unsafe "secrets of the host's can be read"
}

by_the_file() {
	clone
	run a cat clone/.git/config >"$ROOM/said" 2>&1
	not_told
	run a sh -c 'git -C clone config --list; git -C clone remote -v' >"$ROOM/said" 2>&1
	not_told
}

by_its_neighbours() {
	clone
	run a grep -r "$SECRET" clone >"$ROOM/said" 2>&1 || true
	not_told
}

# The host goes on: the next command finds what there is then.
after_a_change() {
	clone
	run a true
	git -C "$MNT/a/clone" remote set-url origin "https://$SECRET@example.org/y.git"
	run a cat clone/.git/config >"$ROOM/said" 2>&1
	not_told
	like "*example.org/y.git*" "$(cat "$ROOM/said")"
}

# Another command moves it away while views are made, for which each repository more is a reason.
while_it_is_moved() {
	clone
	run a sh -c 'while [ ! -e stop ]; do
		mv clone away; mkdir -p clone/.git; echo x >clone/.git/config; rm -r clone; mv away clone; done' &
	mover=$!
	for i in 1 2 3 4 5 6 7 8; do
		git init -q "$MNT/a/n$i"
		run a grep -rs "$SECRET" . >"$ROOM/said" 2>&1 || true
		not_told
	done
	touch "$MNT/a/stop"
	wait "$mover"
	rm -rf "$MNT/a/stop" "$MNT"/a/n[1-8]
}

# Repositories that came with a plain source are copies.
of_a_plain_source() {
	clone
	if [ ! -d "$ROOM/plain" ]; then
		mkdir "$ROOM/plain"
		cp -r "$MNT/a/clone" "$ROOM/plain/clone"
		git init -q --bare "$ROOM/plain/bare.git"
		cp "$ROOM/plain/clone/.git/config" "$ROOM/plain/bare.git/"
	fi
	mkdir -p "$ROOM/mnt2"
	"$TOOL" mount "$ROOM/log2" "$ROOM/record2" "$SANDBOXFS" "$ROOM/plain" "$ROOM/mnt2" \
		-o "state_dir=$ROOM/state2${SBX_WEAK:+,cow=off}"
	mkdir "$ROOM/mnt2/p"
	"$TOOL" exec "$ROOM/mnt2/p/ctl/exec" grep -r "$SECRET" . >"$ROOM/said" 2>&1 || true
	"$TOOL" exec "$ROOM/mnt2/p/ctl/exec" \
		sh -c 'git -C clone remote get-url origin; git -C clone status --porcelain
			git -C bare.git config --get remote.origin.url' >"$ROOM/used" 2>&1 || true
	rmdir "$ROOM/mnt2/p"
	umount "$ROOM/mnt2" 2>/dev/null || fusermount3 -u "$ROOM/mnt2"
	flock -w 60 "$ROOM/record2" true
	not_told
}

copies_are_used() {
	of_a_plain_source
	same "https://example.org/x.git
https://example.org/x.git" "$(cat "$ROOM/used")"
	grep -q "$SECRET" "$ROOM/plain/clone/.git/config"
}

it_is_used() {
	clone
	same main "$(run a git -C clone branch --show-current)"
	same "https://example.org/x.git" "$(run a git -C clone remote get-url origin)"
	same '' "$(run a git -C clone status --porcelain)"
	same "https://user:$SECRET@example.org/x.git" "$(git -C "$MNT/a/clone" remote get-url origin)"
	same "Authorization: Bearer $SECRET" \
		"$(git -C "$MNT/a/clone" config http.https://example.org/.extraHeader)"
}

# A repository of a command's own is its own.
their_own() {
	run a sh -c 'git init -q own && git -C own config http.extraHeader mine &&
			git -C own config --get http.extraHeader' >"$ROOM/said"
	same mine "$(cat "$ROOM/said")"
}

claim "mounting" mount_victims
claim "a clone by the host" clone
attack bare_config "read the configuration of a clone" by_the_file
attack bare_config "search a clone for secrets" by_its_neighbours
attack bare_config "read what the host has changed since" after_a_change
attack bare_config "search repositories of a plain source for secrets" of_a_plain_source
holds "they can be used" copies_are_used
attack -daemon "read it while another command moves it" while_it_is_moved
holds "a clone can be used" it_is_used
holds "a command's own can be as well" their_own
withstood
