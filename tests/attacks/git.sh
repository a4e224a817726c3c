#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# The source's repository, and what a command leaves for the git of whoever looks at its work.

# On the host, so that nothing inside can make it.
CANARY=$ROOM/tmp/canary

# But for what is a's to move: its branch, its own below refs/sandboxfs/ and objects that are
# new. Those there were, fsck knows.
git_dir_is_as_it_was() {
	(cd "$REPO/.git" && find . -type f ! -path './refs/sandboxfs/*' ! -path './refs/heads/sandbox/*' \
		! -path './worktrees/*' \
		! -path './objects/*' ! -path './sandboxfs/*' ! -path './logs/*' ! -name index \
		-exec sha256sum {} + | sort -k 2) >"$ROOM/git.$1"
}

# untouched COMMAND...: by a command of the sandbox's
untouched() {
	git_dir_is_as_it_was before
	run a "$@" >"$ROOM/said" 2>&1 || true
	git_dir_is_as_it_was after
	diff "$ROOM/git.before" "$ROOM/git.after" >&2 || unsafe "the source's repository was changed"
}

write_to_the_source() {
	untouched sh -c "for file in config HEAD packed-refs description info/exclude; do
			echo x >>'$REPO/.git/'\$file; done
		for file in hooks/pre-commit hooks/post-checkout refs/heads/stolen objects/aa/stolen \
			info/attributes; do
			mkdir -p '$REPO/.git/'\${file%/*}; echo x >'$REPO/.git/'\$file; done
		rm -rf '$REPO/.git/objects' '$REPO/.git/refs'; mv '$REPO/.git' '$REPO/.got'"
	git -C "$REPO" fsck --no-progress >/dev/null 2>&1 || unsafe "the source's repository is broken"
}

# By way of git itself, which knows where things are.
write_by_git() {
	untouched sh -c 'common=$(git rev-parse --git-common-dir); dir=$(git rev-parse --git-dir)
		for at in "$common" "$dir"; do
			echo x >>"$at/config"; mkdir -p "$at/hooks"; echo x >"$at/hooks/pre-commit"; done
		git config --local user.name thief; git config --worktree user.name thief
		git update-ref refs/heads/main HEAD~0 --no-deref; git branch -f main; git tag stolen
		git branch stolen
		git symbolic-ref HEAD refs/heads/main; git gc --prune=now; git remote add x /nowhere
		git worktree prune --expire now'
	same "$(git -C "$REPO" rev-parse main)" "$(cat "$ROOM/main.was")"
}

remember_main() {
	git -C "$REPO" rev-parse main >"$ROOM/main.was"
}

# host_git ARGUMENT...: as whoever looks at the work; nothing of it may run.
host_git() {
	timeout 60 git -C "$MNT/a" "$@" >"$ROOM/said" 2>&1 </dev/null || true
}

no_canary() {
	[ ! -e "$CANARY" ] || {
		rm -f "$CANARY"
		unsafe "git ran what a command planted"
	}
}

look_at_it() {
	host_git status
	host_git diff
	host_git log -p -1 --stat
	host_git add -A
	host_git stash list
	host_git branch -a
	host_git submodule status
	host_git -c user.name=x -c user.email=x@y commit -qm "from the host" --allow-empty
	host_git st
	no_canary
}

# In every place that a command can find.
plant_config() {
	run a sh -c "common=\$(git rev-parse --git-common-dir); dir=\$(git rev-parse --git-dir)
		for file in \"\$common/config\" \"\$dir/config\" \"\$dir/config.worktree\" \
			\"\$common/config.worktree\"; do
			git config --file \"\$file\" $1 '$2'
			git config --file \"\$file\" extensions.worktreeConfig true; done; true" >"$ROOM/said" 2>&1
}

fsmonitor() {
	plant_config core.fsmonitor "touch $CANARY"
	look_at_it
}

hooks_path() {
	run a sh -c "mkdir -p planted
		for hook in pre-commit post-index-change post-checkout commit-msg prepare-commit-msg \
			reference-transaction; do
			printf '#!/bin/sh\ntouch $CANARY\n' >planted/\$hook; chmod +x planted/\$hook; done"
	plant_config core.hooksPath "$MNT/a/planted"
	look_at_it
}

hooks() {
	run a sh -c \
		"for at in \$(git rev-parse --git-common-dir) \$(git rev-parse --git-dir); do mkdir -p \$at/hooks
		for hook in pre-commit post-index-change commit-msg reference-transaction; do
			printf '#!/bin/sh\ntouch $CANARY\n' >\$at/hooks/\$hook; chmod +x \$at/hooks/\$hook; done; done
			true" >"$ROOM/said" 2>&1
	look_at_it
}

alias_command() {
	plant_config alias.st "!touch $CANARY"
	plant_config core.pager "touch $CANARY"
	look_at_it
}

filter_driver() {
	plant_config filter.planted.clean "touch $CANARY; cat"
	plant_config filter.planted.smudge "touch $CANARY; cat"
	plant_config diff.planted.textconv "touch $CANARY; cat"
	plant_config diff.planted.command "touch $CANARY"
	run a sh -c 'echo "* filter=planted diff=planted" >.gitattributes; echo changed >>README.md'
	look_at_it
	run a rm -f .gitattributes
}

include_of_a_file() {
	run a sh -c "git config --file planted.config core.fsmonitor 'touch $CANARY'"
	plant_config include.path "$MNT/a/planted.config"
	look_at_it
}

# A repository of its own in place of the one it was given.
other_repository() {
	run a sh -c "mv .git .was; git init -q .; git config core.fsmonitor 'touch $CANARY'; git add -A" \
		>"$ROOM/said" 2>&1 || true
	look_at_it
	run a sh -c 'rm -rf .git; mv .was .git' >"$ROOM/said" 2>&1 || true
}

other_link_to_a_repository() {
	run a sh -c "git init -q elsewhere; git -C elsewhere config core.fsmonitor 'touch $CANARY'
		cp .git .was; echo 'gitdir: elsewhere/.git' >.git" >"$ROOM/said" 2>&1 || true
	look_at_it
	run a sh -c 'rm -rf .git; mv .was .git; rm -rf elsewhere' >"$ROOM/said" 2>&1 || true
}

# git status goes into submodules, with their own configuration.
nested_repository() {
	run a \
		sh -c "git init -q sub; cd sub; git -c user.name=x -c user.email=x@y commit -q --allow-empty -m x
		git config core.fsmonitor 'touch $CANARY'; cd ..; git add sub
		printf '[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n' >.gitmodules; git add .gitmodules
		git -c user.name=x -c user.email=x@y commit -qm sub" >"$ROOM/said" 2>&1 || true
	look_at_it
	run a rm -rf sub .gitmodules
}

commits_arrive() {
	run b sh -c 'echo new >new; git add -A && git -c user.name=x -c user.email=x@y commit -qm inside'
	same inside "$(git -C "$REPO" log -1 --format=%s sandbox/b)"
	same '' "$(git -C "$MNT/b" status --short)"
	git -C "$REPO" fsck --no-progress --no-dangling
}

other_branches_stay() {
	git -C "$REPO" for-each-ref | grep -v "refs/sandboxfs/heads/b-" >"$ROOM/refs.was"
	run b sh -c 'git update-ref refs/heads/main HEAD; git update-ref refs/heads/sandbox/a HEAD
		git update-ref refs/heads/../../config HEAD
		git update-ref refs/remotes/origin/main HEAD; git tag planted' >"$ROOM/said" 2>&1 || true
	git -C "$REPO" for-each-ref | grep -v "refs/sandboxfs/heads/b-" >"$ROOM/refs.are"
	diff "$ROOM/refs.was" "$ROOM/refs.are" >&2 || unsafe "other refs were moved"
}

# Sandboxes that are called as the kinds of refs are, and branches inside
# that are entries but for the place.
reserved_names() {
	kinds="trash snapshots heads stash detached diverged"
	box v
	echo unsaved >"$MNT/v/unsaved"
	teardown v
	entry=$(git -C "$REPO" for-each-ref --format='%(refname)' 'refs/sandboxfs/trash' | grep /v-)
	git -C "$REPO" cat-file commit "$entry" | sed 's/^Time-Ms: .*/Time-Ms: 1000/' >"$ROOM/entry"
	cp "$MNT/ctl/trash" "$ROOM/trash.was"
	git -C "$REPO" for-each-ref refs/sandboxfs/trash refs/sandboxfs/snapshots >"$ROOM/refs.was"
	for name in $kinds; do
		box "$name"
		sed "s/^tree .*/tree $(git -C "$REPO" rev-parse 'HEAD^{tree}')/; /^parent /d" \
			"$ROOM/entry" >"$MNT/$name/entry"
		run "$name" sh -c 'c=$(git hash-object -t commit -w entry); rm entry
			for ref in forged trash/forged ../trash/forged snapshots/forged; do
				git update-ref "refs/heads/$ref" "$c"; git update-ref "refs/sandboxfs/$ref" "$c"
				git update-ref "refs/sandboxfs/trash/$ref" "$c"; done
			git stash store -m forged "$c"; git checkout -q "$c"; git checkout -q -' >"$ROOM/said" 2>&1 ||
				true
		run "$name" true
	done
	git -C "$REPO" for-each-ref refs/sandboxfs/trash refs/sandboxfs/snapshots >"$ROOM/refs.are"
	diff "$ROOM/refs.was" "$ROOM/refs.are" >&2 || unsafe "refs of the daemon's were made"
	diff "$ROOM/trash.was" "$MNT/ctl/trash" >&2 || unsafe "entries of the trash were forged"
	[ -n "$(git -C "$REPO" for-each-ref --count=1 "refs/sandboxfs/heads/trash-*/**")" ] ||
		fail "nothing was brought over"
	for name in $kinds; do
		teardown "$name"
	done
	refuse grep -q forged "$MNT/ctl/trash"
	drop_refs refs/sandboxfs
}

# Names that no git makes, in files that it reads, and two of which one is in the way of the other.
odd_names_of_refs() {
	git -C "$REPO" for-each-ref | grep -v "refs/sandboxfs/heads/b-" >"$ROOM/refs.was"
	run b sh -c 'd=$(git rev-parse --git-dir); cp "$d/packed-refs" "$d/packed.was" 2>/dev/null ||
			: >"$d/packed.was"
		c=$(git commit-tree -m forged HEAD^{tree})
		for ref in heads/../../trash/forged heads/../sandboxfs/trash/forged sandboxfs/trash/forged \
			sandboxfs/snapshots/forged/x heads/./forged heads//forged heads/forged.lock \
			"heads/for ged" heads/forged/ heads/@{forged heads/a/../../../forged \
			heads/df heads/df/forged; do printf "%s refs/%s\n" "$c" "$ref" >>"$d/packed-refs"; done
		mkdir -p "$d/refs/sandboxfs/trash" "$d/refs/heads/forged.."
		for ref in sandboxfs/trash/forged heads/forged../forged "heads/fo:rged"; do
			echo "$c" >"$d/refs/$ref"; done
		printf "ref: refs/heads/../sandboxfs/trash/forged\n" >"$d/refs/heads/forged-link"' \
			>"$ROOM/said" 2>&1
	run b true
	git -C "$REPO" for-each-ref | grep -v "refs/sandboxfs/heads/b-" >"$ROOM/refs.are"
	diff "$ROOM/refs.was" "$ROOM/refs.are" >&2 || unsafe "refs beside its own were made"
	same '' "$(find "$REPO/.git" -name '*forged*' ! -path '*/refs/sandboxfs/heads/b-*' \
		! -path '*/logs/refs/sandboxfs/heads/b-*')"
	git -C "$REPO" for-each-ref --format='%(refname:lstrip=4)' 'refs/sandboxfs/heads/b-*/**' |
		grep -q '^df' || fail "nothing was brought over"
	run b sh -c 'd=$(git rev-parse --git-dir); mv "$d/packed.was" "$d/packed-refs"
		rm -rf "$d/refs/sandboxfs" "$d"/refs/heads/fo*' >"$ROOM/said" 2>&1
	run b true
	same '' "$(git -C "$REPO" for-each-ref --format='%(refname:lstrip=4)' \
		'refs/sandboxfs/heads/b-*/**' | grep '^df')"
}

end_branches() {
	unmount
	git -C "$REPO" worktree prune
	mount_repo
	teardown a b
	for branch in $(git -C "$REPO" for-each-ref --format='%(refname:short)' refs/heads/sandbox); do
		git -C "$REPO" branch -qD "$branch"
	done
}

claim "mounting" mount_victims
claim "where main is" remember_main
attack -daemon "plant core.fsmonitor" fsmonitor
attack -daemon "plant core.hooksPath" hooks_path
attack -daemon "plant hooks" hooks
attack -daemon "plant an alias and a pager" alias_command
attack -daemon "plant filters and drivers of diff" filter_driver
attack -daemon "plant an include" include_of_a_file
attack -daemon "plant a repository in place of its own" other_repository
attack -daemon "plant a link to another repository" other_link_to_a_repository
attack -daemon "plant a submodule" nested_repository
holds "commits arrive in the source" commits_arrive
attack -daemon "move other branches" other_branches_stay
attack -daemon "names of refs that lead elsewhere" odd_names_of_refs
attack -daemon "write to the source's repository by git" write_by_git
attack -daemon "write to the source's repository" write_to_the_source
attack -daemon "forge entries of the trash and snapshots from sandboxes of such names" \
	reserved_names
holds "the host is as it was" still_fine
claim "branches with commits are removed" end_branches
finish
