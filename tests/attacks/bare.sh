#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Directories that are repositories themselves, made by commands for whoever uses git in the tree.

RAN=$ROOM/home/ran
EVIL="$ROOM/home/evil"
printf '#!/bin/sh\ntouch %s\nfalse\n' "$RAN" >"$EVIL"
chmod 755 "$EVIL"

# What names programs, of a repository whose working tree is the sandbox's.
# The command writes it to sub/config.
CONFIG="[core]
	repositoryformatversion = 0
	worktree = $MNT/a
	fsmonitor = $EVIL
	hooksPath = $MNT/a/sub/hooks
[alias]
	st = !$EVIL
[diff]
	external = $EVIL
"

# planted DIR COMMAND: a command of the shell, for whom $CONFIG is the
# config, makes a repository of DIR.
planted() {
	rm -f "$RAN"
	run a sh -c "CONFIG='$CONFIG'; $2"
	uses "$MNT/a/$1"
}

# uses DIR: nothing runs when the host uses git there.
uses() {
	[ -d "$1" ]
	(
		cd "$1" || exit
		git status
		git st
		git diff
		git branch new
		git log -p
		git stash
	) >"$ROOM/uses.log" 2>&1 || true
	[ ! -e "$RAN" ] || unsafe "git in $1 ran what a command put there"
	[ -n "${SBX_WEAK:-}" ] || grep -q 'dubious ownership' "$ROOM/uses.log" ||
		fail "git in $1 is not kept out"
}

MAKE='mkdir -p sub/objects sub/refs; echo "ref: refs/heads/main" >sub/HEAD
	printf %s "$CONFIG" >sub/config'

plainly() {
	planted sub "$MAKE"
	uses "$MNT/a/sub/objects"
}

deep_below() {
	planted d/e/f/sub "mkdir -p d/e/f; cd d/e/f; $MAKE"
}

by_renames() {
	planted moved "rm -rf sub moved; $MAKE; mkdir moved; for f in sub/*; do mv \"\$f\" moved; done"
	planted renamed "rm -rf sub renamed; $MAKE; mv sub renamed"
}

with_a_linked_head() {
	planted sub "rm -rf sub; $MAKE; mkdir -p sub/refs/heads; ln -sfn refs/heads/main sub/HEAD"
}

with_hard_links() {
	planted linked \
		"rm -rf sub linked; $MAKE; mkdir -p linked/objects linked/refs; ln sub/HEAD sub/config linked"
}

with_a_common_directory() {
	planted common \
		"rm -rf sub common; $MAKE; mkdir common; echo ../sub >common/commondir; cp sub/HEAD common"
}

in_one_of_the_base() {
	planted fixture 'printf %s "$CONFIG" >fixture/config'
	planted half 'mkdir -p half/objects half/refs; printf %s "$CONFIG" >half/config'
}

from_a_snapshot() {
	planted sub "rm -rf sub; $MAKE; touch sub/objects/kept sub/refs/kept"
	echo with >"$MNT/a/ctl/snapshot"
	id=$(cat "$MNT/a/ctl/snapshot")
	run a rm -rf sub
	echo "$id" >"$MNT/a/ctl/restore"
	rm -f "$RAN"
	uses "$MNT/a/sub"
	uses "$MNT/a/ctl/snapshots/$id/sub"
	git -C "$MNT/a" reset -q --soft "$(git -C "$REPO" rev-parse HEAD)"
}

in_a_fork() {
	planted sub "rm -rf sub; $MAKE"
	[ -d "$MNT/c" ] || echo c >"$MNT/a/ctl/fork"
	rm -f "$RAN"
	uses "$MNT/c/sub"
}

in_an_older_daemon() {
	planted sub "rm -rf sub; $MAKE"
	unmount
	remount
	uses "$MNT/a/sub"
}

renamed_by_the_host() {
	planted sub "rm -rf sub; $MAKE"
	mkdir -p "$MNT/a/mine"
	mv "$MNT/a/sub" "$MNT/a/mine/its"
	uses "$MNT/a/mine/its"
	rm -rf "$MNT/a/mine"
}

# Of such a one all can be read, copied, recorded, changed and removed.
it_is_but_a_directory() {
	run a \
		sh -c "CONFIG='$CONFIG'; rm -rf sub whole; $MAKE; mv sub whole; echo object >whole/objects/file"
	cp -r "$MNT/a/whole" "$ROOM/copy"
	same "$CONFIG" "$(cat "$ROOM/copy/config")
"
	tar -C "$MNT/a" -cf "$ROOM/copy.tar" whole
	git -C "$MNT/a" add -A
	git -C "$MNT/a" diff --cached --name-only >"$ROOM/names"
	grep -x whole/config "$ROOM/names"
	grep -x whole/objects/file "$ROOM/names"
	git -C "$MNT/a" reset -q
	echo more >>"$MNT/a/whole/config"
	touch "$MNT/a/whole/new"
	mv "$MNT/a/whole/new" "$MNT/a/whole/newer"
	rm -rf "$MNT/a/whole"
	refuse test -e "$MNT/a/whole"
}

the_host_makes_its_own() {
	run a true
	git init -q --bare "$MNT/a/own.git"
	git -C "$MNT/a/own.git" config some.key value
	same value "$(git -C "$MNT/a/own.git" config some.key)"
	git -C "$MNT/a" push -q "$MNT/a/own.git" HEAD:refs/heads/here
	git -C "$MNT/a/own.git" rev-parse -q --verify refs/heads/here
	run a true
	same value "$(git -C "$MNT/a/own.git" config some.key)"
	mv "$MNT/a/own.git" "$MNT/a/kept.git"
	unmount
	remount
	same value "$(git -C "$MNT/a/kept.git" config some.key)"
	rm -rf "$MNT/a/kept.git"
}

in_the_hosts_own() {
	rm -rf "$MNT/a/its.git" "$RAN"
	git init -q --bare "$MNT/a/its.git"
	planted its.git 'printf %s "$CONFIG" >its.git/config'
	rm -rf "$MNT/a/its.git"
	git init -q --bare "$MNT/a/its.git"
	planted its.git 'printf %s "$CONFIG" >new; mv new its.git/config'
	rm -rf "$MNT/a/its.git"
	git init -q --bare "$MNT/a/its.git"
	planted its.git "mkdir -p its.git/hooks; cp '$EVIL' its.git/hooks/reference-transaction ||
			ln -s '$EVIL' its.git/hooks/reference-transaction"
	rm -rf "$MNT/a/its.git"
	git init -q --bare "$MNT/a/its.git"
	planted its.git 'mkdir other; printf %s "$CONFIG" >other/config; mkdir other/objects other/refs
		echo ../other >its.git/commondir'
	rm -rf "$MNT/a/its.git"
}

# What is committed inside comes from git on the host when it checks that out.
checked_out() {
	rm -rf "$MNT/a/sub"
	run a sh -c "CONFIG='$CONFIG'; $MAKE; touch sub/objects/kept sub/refs/kept; git add -f sub
		git commit -qm sub"
	git -C "$MNT/a" checkout -q --detach HEAD~1
	refuse test -e "$MNT/a/sub/config"
	rm -rf "$MNT/a/sub"
	git -C "$MNT/a" checkout -q sandbox/a
	git -C "$MNT/a" reset -q --soft HEAD~1
	rm -f "$RAN"
	uses "$MNT/a/sub"
}

one_of_the_base_works() {
	run b true
	same true "$(git -C "$MNT/b/fixture" rev-parse --is-bare-repository)"
}

# Those of the host's in a .git of its own are where no command reaches.
in_repositories_of_the_host() {
	git init -q "$MNT/b/outer"
	git clone -q --bare "$REPO" "$MNT/b/outer/.git/inner"
	run b true
	same true "$(git -C "$MNT/b/outer/.git/inner" rev-parse --is-bare-repository)"
}

# Where the tree is no worktree, its root may be one.
the_root_itself() {
	mkdir -p "$ROOM/second"
	"$SANDBOXFS" none "$ROOM/second" -o "state_dir=$ROOM/second.state" 9>&-
	mkdir "$ROOM/second/n"
	"$TOOL" exec "$ROOM/second/n/ctl/exec" sh -c \
		"CONFIG='$CONFIG'; mkdir objects refs; echo 'ref: refs/heads/main' >HEAD
			printf %s \"\$CONFIG\" >config"
	rm -f "$RAN"
	uses "$ROOM/second/n"
	rmdir "$ROOM/second/n"
	fusermount3 -u "$ROOM/second"
	flock -w 60 "$ROOM/second.state/lock" true
}

git_says_how_to_allow_it() {
	run a sh -c "rm -rf sub; CONFIG=; $MAKE"
	refuse git -C "$MNT/a/sub" rev-parse --git-dir 2>"$ROOM/said"
	grep 'safe.directory' "$ROOM/said"
	git config --global --add safe.directory "$MNT/a/sub"
	git -C "$MNT/a/sub" rev-parse --git-dir
	git config --global --unset-all safe.directory
}

new_repo
git init -q --bare "$REPO/fixture"
rm -rf "$REPO/fixture/hooks"
touch "$REPO/fixture/objects/kept" "$REPO/fixture/refs/kept"
mkdir "$REPO/half"
cp "$REPO/fixture/HEAD" "$REPO/half"
git -C "$REPO" add -A
git -C "$REPO" commit -qm fixture
claim "mounting" mount_victims
attack "planted" "a directory that is a repository" plainly
attack "planted" "one far below" deep_below
attack "planted" "one put together by renames" by_renames
attack "planted" "one whose HEAD is a link" with_a_linked_head
attack "planted" "one of hard links" with_hard_links
attack "planted" "one that has its parts elsewhere" with_a_common_directory
attack "planted" "one of the base, with another config" in_one_of_the_base
attack "planted" "one in a fork" in_a_fork
attack "planted" "one from before the daemon began" in_an_older_daemon
attack "planted" "one that the host renames" renamed_by_the_host
attack "planted" "one that the host has made" in_the_hosts_own
attack "planted" "one that git checks out" checked_out
attack "planted" "one that a restore brings back" from_a_snapshot
attack -daemon "the root of a sandbox that is none" the_root_itself
holds "all of it is there for who does not take it for a repository" it_is_but_a_directory
holds "one that the host makes is its own" the_host_makes_its_own
holds "one of the base works" one_of_the_base_works
holds "those below a .git of the host's work" in_repositories_of_the_host
holds "git says how to allow one" git_says_how_to_allow_it
withstood
