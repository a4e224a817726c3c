#!/bin/sh
. "$TESTS/lib/mount.sh"
# Renaming, within a sandbox, with flags, and where it must be refused.

plain() {
	echo 1 >a1
	expect 0 rename a1 a2
	expect ENOENT stat a1
	same 1 "$(cat a2)"
	echo 2 >b2
	expect 0 rename b2 a2
	same 2 "$(cat a2)"
	expect ENOENT rename missing x
	expect ENOENT rename a2 missing/x
	expect 0 rename a2 a2
	same 2 "$(cat a2)"
}

directories() {
	mkdir -p d1/sub d2 d3
	echo x >d3/x
	expect 0 rename d1 d2
	expect 0 stat d2/sub
	expect ENOTEMPTY\|EEXIST rename d2 d3
	expect EINVAL rename d2 d2/sub/below
	expect ENOTDIR rename d2 README.md
	expect EISDIR rename README.md d3
	expect 0 rename d3/x d2/sub/x
	same x "$(cat d2/sub/x)"
}

keeps_children_reachable() {
	mkdir -p p/q
	echo deep >p/q/f
	(
		cd p/q
		mv ../../p ../../r
		same deep "$(cat f)"
		echo more >>f
	)
	same 'deep
more' "$(cat r/q/f)"
}

noreplace() {
	echo n1 >n1
	echo n2 >n2
	expect EEXIST rename n1 n2 NOREPLACE
	same n2 "$(cat n2)"
	expect 0 rename n1 n3 NOREPLACE
	same n1 "$(cat n3)"
}

exchange() {
	echo x1 >x1
	mkdir x2
	echo in >x2/in
	expect 0 rename x1 x2 EXCHANGE
	same x1 "$(cat x2)"
	same in "$(cat x1/in)"
	expect ENOENT rename x1 missing EXCHANGE
}

refusals() {
	expect EINVAL rename x1 x2 NOREPLACE EXCHANGE
	expect EINVAL\|EPERM\|EOPNOTSUPP rename README.md w WHITEOUT
	expect 0 stat README.md
}

across_sandboxes() {
	expect EXDEV rename README.md ../b/stolen
	expect ENOENT stat ../b/stolen
	expect 0 stat README.md
	mv README.md ../b/moved
	same hello "$(cat ../b/moved)"
	expect ENOENT stat README.md
}

to_the_root() {
	echo x >toroot
	refuse mv toroot "$MNT/toroot"
	same x "$(cat toroot)"
	expect EPERM\|EACCES\|EXDEV\|EINVAL\|EBUSY rename src "$MNT/newbox"
	expect EPERM\|EACCES\|EXDEV\|EINVAL\|EBUSY rename ../b src/b
	expect 0 stat ../b/src
}

known() {
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["files"])' ctl/info
}

# Else what nobody can reach takes the room of the copy (cache_mb) from the others.
forgets_what_was_replaced() {
	echo 0 >saved
	before=$(known)
	for i in 1 2 3 4 5; do
		echo $i >saved.new
		mv saved.new saved
	done
	same "$before" "$(known)"
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
cd "$MNT/a" || exit 1
claim "files are renamed, also over others" plain
claim "directories: ENOTEMPTY, EINVAL into itself, ENOTDIR, EISDIR" directories
claim "what is below a renamed directory stays reachable" keeps_children_reachable
claim_away "a file that another one replaced is not counted any more" forgets_what_was_replaced
claim "RENAME_NOREPLACE" noreplace
claim "RENAME_EXCHANGE, of a file and a directory" exchange
claim "other flags are refused" refusals
claim "EXDEV between sandboxes, so mv copies" across_sandboxes
claim "neither into the mount's root nor a sandbox into another" to_the_root
cd "$ROOM" || exit 1
finish
