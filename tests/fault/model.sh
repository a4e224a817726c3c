#!/bin/sh
. "$TESTS/lib/mount.sh"
# Steps at random, the same in each run, against a model that remembers every acknowledged byte
# (model.py). SBX_MODEL_STEPS=10000 takes more of them, SBX_MODEL_SEED=N others,
# SBX_MODEL_SEED=random such as nobody has seen.

prepare() {
	new_repo
	printf '*.log\ncache/\n' >"$REPO/.gitignore"
	printf '*.txt text=auto\n' >"$REPO/.gitattributes"
	mkdir "$REPO/d1"
	for i in 1 2 3 4; do seq "$((i * 200))" >"$REPO/d1/base$i"; done
	printf 'one\ntwo\n' >"$REPO/t1.txt"
	git -C "$REPO" add .
	git -C "$REPO" commit -qm second
}

claim "a repository" prepare
claim "random steps of host, commands and controls: \
what was acknowledged is there, or where it comes back from" \
	python3 "$TESTS/fault/model.py" "$ROOM/model.summary"
[ ! -f "$ROOM/model.summary" ] || sed 's/^/# /' "$ROOM/model.summary"
[ -f "$ROOM/model.summary" ] || cat "$ROOM/claim.log" | sed 's/^/# /'
claim "the source is whole" git -C "$REPO" fsck --no-progress --no-dangling
claim "mounting" mount_repo
finish_committed
