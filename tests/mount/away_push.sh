#!/bin/sh
. "$TESTS/lib/mount.sh"
# The push of a sandbox elsewhere to its source where that is a repository of this host, in which
# somebody works.

# pushed NAME: the outcome of a push
pushed() {
	echo >"$MNT/$1/ctl/push"
	cat "$MNT/$1/ctl/push"
}

# commits NAME TEXT
commits() {
	run "$1" sh -c "git config user.name a; git config user.email a@b
		echo $2 >work; git add work; git commit -qm $2"
}

last() {
	git -C "$REPO" log -1 --format=%s sandbox/a
}

it_pushes() {
	commits a one
	same '{"pushed":true}' "$(pushed a)"
	same one "$(last)"
	same "$(run a git rev-parse HEAD)" "$(git -C "$REPO" rev-parse sandbox/a)"
	git -C "$REPO" fsck --strict --no-progress
	same '' "$(git -C "$REPO" status --porcelain)"
	same '' "$(find "$REPO" ! -user "$(stat -c %u "$REPO")")"
}

it_pushes_on() {
	commits a two
	same '{"pushed":true}' "$(pushed a)"
	same '{"pushed":true}' "$(pushed a)"
	same two "$(last)"
}

# Its files would differ from it all at once.
not_what_is_checked_out() {
	git -C "$REPO" checkout -q sandbox/a
	commits a three
	same '{"pushed":false,"error":"git push failed: sandbox/a is checked out in the repository '\
'itself of the remote"}' "$(pushed a)"
	same two "$(last)"
}

not_over_others_commits() {
	git -C "$REPO" -c user.name=a -c user.email=a@b commit -q --allow-empty -m apart
	git -C "$REPO" checkout -q main
	like '*"pushed":false*(not a fast-forward)"}' "$(pushed a)"
	same apart "$(last)"
	git -C "$REPO" branch -q -D sandbox/a
}

# Hooks would not run.
not_past_a_hook() {
	printf '#!/bin/sh\nexit 1\n' >"$REPO/.git/hooks/update"
	chmod +x "$REPO/.git/hooks/update"
	like '*"pushed":false*update hook*' "$(pushed a)"
	rm "$REPO/.git/hooks/update"
	refuse git -C "$REPO" rev-parse -q --verify sandbox/a
}

# Of what a command has made nothing comes here that git itself would not take.
no_damaged_object() {
	run a sh -c 'blob=$(echo x | git hash-object -w --stdin)
		tree=$(printf "100644 blob $blob\t.git\n" | git mktree)
		git update-ref HEAD "$(git commit-tree -p HEAD -m bad "$tree")"'
	like '*"pushed":false*is not well-formed"}' "$(pushed a)"
	refuse git -C "$REPO" rev-parse -q --verify sandbox/a
	git -C "$REPO" fsck --strict --no-progress
}

# Machines that do not answer keep who pushes to them waiting, and nobody else.
behind_silence() {
	commits a four
	box s1 s2 s3
	until_quiet s1 s2 s3
	for name in s1 s2 s3; do
		set -- "$@" "run:push@$(basename "$(machine $name)") blackhole all"
	done
	faults "$@"
	mark
	writers=
	for name in s1 s2 s3; do
		echo >"$MNT/$name/ctl/push" &
		writers="$writers $!"
	done
	until [ "$(asked run:push | wc -l)" -ge 3 ]; do tick; done
	same '{"pushed":true}' "$(pushed a)"
	same four "$(last)"
	for writer in $writers; do grep '^State:.*[SD] ' "/proc/$writer/status"; done
	kill -9 $writers
	faults
	teardown s1 s2 s3
	git -C "$REPO" branch -q -D sandbox/a
}

claim "mounting" mount_repo
claim "a sandbox" box a
claim "its commits come to the branch of the source" it_pushes
claim "and those that follow" it_pushes_on
claim "a branch that is checked out is not moved" not_what_is_checked_out
claim "nor one that has other commits" not_over_others_commits
claim "nor where a hook would have to be asked" not_past_a_hook
claim "three machines that do not answer keep no other push waiting" behind_silence
claim "an object that is damaged does not come over" no_damaged_object
finish
