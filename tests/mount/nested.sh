#!/bin/sh
. "$TESTS/lib/mount.sh"
# Repositories below the root of a sandbox: what commands make is not shown, what the host makes
# works and is out of the commands' reach.

inside() {
	run a sh -ec "$1"
}

pinned() {
	like "gitdir: $REPO/.git/worktrees/a-*" "$(cat "$MNT/a/.git")"
	same '0444 regular' "$("$TOOL" stat "$MNT/a/.git" mode) $("$TOOL" stat "$MNT/a/.git" type)"
	expect EPERM unlink "$MNT/a/.git"
	expect EPERM rename "$MNT/a/.git" "$MNT/a/x"
	expect EPERM rename "$MNT/a/README.md" "$MNT/a/.git"
	expect EEXIST mkdir "$MNT/a/.git"
	refuse sh -c "echo x >'$MNT/a/.git'"
	error_says a 'cannot be changed'
	inside 'echo "gitdir: /elsewhere" >.git; rm .git; ln -s /etc .git'
	like "gitdir: $REPO/.git/worktrees/a-*" "$(cat "$MNT/a/.git")"
	inside "rm .git; echo 'gitdir: $(echo "$STATE"/git/a-*/repo)' >.git"
	refuse grep -q '^\.git$' <<-END
		$(ls -A "$MNT/a")
	END
	same '' "$(git -C "$MNT/a" status --porcelain)"
}

hidden() {
	inside 'mkdir made; cd made; git init -q; echo x >x; git add x; git commit -qm x'
	same x "$(ls -A "$MNT/a/made")"
	expect ENOENT stat "$MNT/a/made/.git"
	expect ENOENT stat "$MNT/a/made/.git/config"
	expect ENOENT unlink "$MNT/a/made/.git"
	expect EPERM mkdir "$MNT/a/made/.git"
	error_says a 'a command has made'
	same '?? made/' "$(git -C "$MNT/a" status --porcelain)"
	inside 'mkdir f l; echo "gitdir: /x" >f/.git; ln -s ../made/.git l/.git'
	same '' "$(ls -A "$MNT/a/f")"
	same '' "$(ls -A "$MNT/a/l")"
	expect ENOENT stat "$MNT/a/l/.git"
	expect ENOENT open "$MNT/a/f/.git" O_RDONLY
	same x "$(inside 'cd made; git log --format=%s')"
}

removed() {
	mkdir "$MNT/a/dir"
	mv "$MNT/a/made" "$MNT/a/dir/moved"
	same x "$(inside 'cd dir/moved; git log --format=%s')"
	rm "$MNT/a/dir/moved/x"
	rmdir "$MNT/a/dir/moved"
	refuse inside 'test -e dir/moved'
	rm -r "$MNT/a/dir" "$MNT/a/f" "$MNT/a/l"
	same '' "$(git -C "$MNT/a" status --porcelain)"
}

host_clone() {
	git clone -q "$REPO" "$MNT/a/x/clone"
	same main "$(git -C "$MNT/a/x/clone" branch --show-current)"
	ls -A "$MNT/a/x/clone" | grep -qx .git
	git -C "$MNT/a/x/clone" checkout -qb work
	echo w >"$MNT/a/x/clone/w"
	git -C "$MNT/a/x/clone" add w
	git -C "$MNT/a/x/clone" commit -qm w
	git -C "$MNT/a/x/clone" gc -q
	git -C "$MNT/a/x/clone" fsck --no-progress
	same '?? x/' "$(git -C "$MNT/a" status --porcelain)"
	same w "$(inside 'cd x/clone; git log -1 --format=%s')"
}

host_moves() {
	mv "$MNT/a/x" "$MNT/a/y"
	same w "$(git -C "$MNT/a/y/clone" log -1 --format=%s)"
	mv "$MNT/a/y/clone/.git" "$MNT/a/y/clone/dot"
	test -f "$MNT/a/y/clone/dot/config"
	mv "$MNT/a/y/clone/dot" "$MNT/a/y/clone/.git"
	same w "$(git -C "$MNT/a/y/clone" log -1 --format=%s)"
	mkdir "$MNT/a/y/other"
	mv "$MNT/a/y/clone/.git" "$MNT/a/y/other/.git"
	same w "$(git -C "$MNT/a/y/other" log -1 --format=%s)"
	mv "$MNT/a/y/other/.git" "$MNT/a/y/clone/.git"
	cp -r "$MNT/a/y/clone" "$MNT/a/y/copy"
	same w "$(git -C "$MNT/a/y/copy" log -1 --format=%s)"
	tar -C "$MNT/a/y" -cf "$ROOM/y.tar" copy
	rm -rf "$MNT/a/y/copy"
	tar -C "$MNT/a/y" -xf "$ROOM/y.tar"
	same '' "$(git -C "$MNT/a/y/copy" status --porcelain)"
}

# Without what the kernel has kept: names of another mount of the same
# state, and for root of this one.
forget_names() {
	unmount
	remount
	drop_caches
}

w_is_in() {
	forget_names
	same w "$(git --git-dir="$1" log -1 --format=%s)"
	git --git-dir="$1" fsck --no-progress
}

host_renames() {
	cd "$ROOM"
	d=$MNT/a/y/clone
	mkdir -p "$MNT/a/y/other"
	expect 0 rename "$d/.git" "$d/saved"
	expect ENOENT lstat "$d/.git"
	w_is_in "$d/saved"
	expect 0 rename "$d/saved" "$d/.git"
	expect ENOENT lstat "$d/saved"
	w_is_in "$d/.git"
	expect 0 rename "$d/.git" "$MNT/a/y/other/.git"
	w_is_in "$MNT/a/y/other/.git"
	expect EEXIST\|ENOTEMPTY rename "$d" "$MNT/a/y/other"
	expect 0 rename "$MNT/a/y/other/.git" "$d/.git"
	w_is_in "$d/.git"
	echo "gitdir: ../clone/.git" >"$MNT/a/y/other/f"
	expect 0 rename "$MNT/a/y/other/f" "$MNT/a/y/other/.git"
	echo "gitdir: ../clone/./.git" >"$MNT/a/y/other/f"
	expect EEXIST rename "$MNT/a/y/other/f" "$MNT/a/y/other/.git" NOREPLACE
	expect 0 rename "$MNT/a/y/other/f" "$MNT/a/y/other/.git"
	forget_names
	same "gitdir: ../clone/./.git" "$(cat "$MNT/a/y/other/.git")"
	same w "$(git -C "$MNT/a/y/other" log -1 --format=%s)"
}

host_exchanges() {
	cd "$ROOM"
	d=$MNT/a/y/clone
	mkdir "$d/plain"
	echo p >"$d/plain/p"
	expect 0 rename "$d/.git" "$d/plain" EXCHANGE
	w_is_in "$d/plain"
	same p "$(cat "$d/.git/p")"
	expect 0 rename "$d/plain" "$d/.git" EXCHANGE
	w_is_in "$d/.git"
	same p "$(cat "$d/plain/p")"
	expect 0 rename "$d/.git" "$MNT/a/y/other/.git" EXCHANGE
	forget_names
	same "gitdir: ../clone/./.git" "$(cat "$d/.git")"
	w_is_in "$MNT/a/y/other/.git"
	expect 0 rename "$d/.git" "$MNT/a/y/other/.git" EXCHANGE
	w_is_in "$d/.git"
	expect ENOENT rename "$d/.git" "$d/missing" EXCHANGE
	w_is_in "$d/.git"
	same '' "$(find "$MNT/a" -name '.sandboxfs-*')"
	# The directories around two of them: commands still read both, and write neither.
	git init -q "$MNT/a/y/second"
	expect 0 rename "$d" "$MNT/a/y/second" EXCHANGE
	same w "$(inside 'cd y/second; git log -1 --format=%s')"
	refuse inside 'rm y/second/.git/HEAD'
	refuse inside 'rm y/clone/.git/HEAD'
	expect 0 rename "$MNT/a/y/second" "$d" EXCHANGE
	rm -r "$MNT/a/y/second"
	rm -r "$d/plain" "$MNT/a/y/other"
}

# Who has a directory or a file of it open stays where he is.
host_stays() {
	(
		cd "$MNT/a/y/clone/.git/refs" || exit 1
		exec 3<../HEAD
		mv "$MNT/a/y/clone/.git" "$MNT/a/y/clone/saved"
		like 'ref: *' "$(cat <&3)"
		ls heads >/dev/null
		like 'ref: *' "$(cat ../HEAD)"
		mv "$MNT/a/y/clone/saved" "$MNT/a/y/clone/.git"
		ls heads >/dev/null
	)
	w_is_in "$MNT/a/y/clone/.git"
}

separate_git_dirs() {
	cd "$ROOM"
	git init -q --separate-git-dir "$MNT/a/y/apart" "$MNT/a/y/clone"
	forget_names
	same w "$(git -C "$MNT/a/y/clone" log -1 --format=%s)"
	test -f "$MNT/a/y/apart/HEAD"
	git init -q "$MNT/a/y/outer"
	git init -q "$MNT/a/y/outer/inner"
	git -C "$MNT/a/y/outer/inner" commit -q --allow-empty -m inner
	git -C "$MNT/a/y/outer" -c protocol.file.allow=always submodule --quiet add ./inner inner
	git -C "$MNT/a/y/outer" submodule absorbgitdirs
	forget_names
	same inner "$(git -C "$MNT/a/y/outer/inner" log -1 --format=%s)"
	test -f "$MNT/a/y/outer/.git/modules/inner/HEAD"
	rm -rf "$MNT/a/y/outer"
	rm "$MNT/a/y/clone/.git"
	mv "$MNT/a/y/apart" "$MNT/a/y/clone/.git"
	git -C "$MNT/a/y/clone" config --unset core.worktree || true
	w_is_in "$MNT/a/y/clone/.git"
}

host_files() {
	git -C "$MNT/a/y/clone" worktree add -q "$MNT/a/y/tree" main
	test -f "$MNT/a/y/tree/.git"
	same main "$(git -C "$MNT/a/y/tree" branch --show-current)"
	git -C "$MNT/a/y/clone" worktree remove "$MNT/a/y/tree"
	refuse test -e "$MNT/a/y/tree"
	git init -q "$MNT/a/y/super"
	git -C "$MNT/a/y/super" -c protocol.file.allow=always submodule add -q "$REPO" sub
	git -C "$MNT/a/y/super" commit -qm sub
	same '' "$(git -C "$MNT/a/y/super" status --porcelain)"
	like ' * sub (*' "$(git -C "$MNT/a/y/super" submodule status)"
}

out_of_reach() {
	same w "$(inside 'cd y/clone; git log -1 --format=%s')"
	same '' "$(inside 'cd y/clone; git status --porcelain')"
	same main "$(inside 'cd y/super/sub; git branch --show-current')" || true
	for script in 'echo x >>config' 'rm config' 'mkdir hooks/x' 'git config core.fsmonitor x' \
		'chmod 777 .' 'mv HEAD H'; do
		refuse inside "cd y/clone/.git; $script"
	done
	refuse inside 'mv y/clone/.git y/clone/away'
	refuse inside 'rm -rf y/clone/.git'
	inside 'echo x >y/clone/new'
	same '?? new' "$(git -C "$MNT/a/y/clone" status --porcelain)"
	rm "$MNT/a/y/clone/new"
	refuse inside "ls '$STATE/nested'"
}

# Where the parent went away under a command's hands the placeholder is all that it has.
taken_away() {
	inside 'mkdir z; mv y/clone z/clone; ln -s ../z/clone y/clone'
	same w "$(git -C "$MNT/a/z/clone" log -1 --format=%s)"
	inside 'ls z/clone/.git | wc -l; rm y/clone; mv z/clone y/clone; rmdir z'
	same w "$(git -C "$MNT/a/y/clone" log -1 --format=%s)"
	same w "$(inside 'cd y/clone; git log -1 --format=%s')"
}

kept() {
	unmount
	remount
	same w "$(git -C "$MNT/a/y/clone" log -1 --format=%s)"
	kill_daemon
	fusermount3 -u "$MNT" 2>/dev/null || true
	remount
	same w "$(git -C "$MNT/a/y/clone" log -1 --format=%s)"
	mv "$MNT/a" "$MNT/renamed"
	same w "$(git -C "$MNT/renamed/y/clone" log -1 --format=%s)"
	mv "$MNT/renamed" "$MNT/a"
}

host_removes() {
	rm -rf "$MNT/a/y/super"
	refuse test -e "$MNT/a/y/super"
	rm -rf "$MNT/a/y/clone/.git"
	refuse inside 'test -e y/clone/.git'
	git init -q "$MNT/a/y/clone"
	test -f "$MNT/a/y/clone/.git/HEAD"
	rm -rf "$MNT/a"
	refuse test -e "$MNT/a"
	teardown a
	same '' "$(ls -A "$STATE/nested")"
	same '' "$(ls -A "$STATE/git")"
	box a
}

shared() {
	unmount
	mount_repo nested_git=shared
	inside 'mkdir made; cd made; git init -q'
	test -f "$MNT/a/made/.git/config"
	rm -rf "$MNT/a/made"
	like "gitdir: $REPO/.git/worktrees/a-*" "$(cat "$MNT/a/.git")"
	unmount
}

directories() {
	mount_none
	box n
	run n sh -c 'git init -q; echo x >x'
	same x "$(ls -A "$MNT/n")"
	expect ENOENT stat "$MNT/n/.git"
	git init -q "$MNT/n/sub"
	git -C "$MNT/n/sub" status >/dev/null
	teardown n
	unmount
}

claim "mounting" mount_repo
claim "mkdir" box a
claim "NAME/.git says where the branch is, whatever commands do to it" pinned
claim "a .git that a command makes is not shown" hidden
claim "what holds one can be moved and removed" removed
claim "git clone by the host" host_clone
claim "moving, copying, tar" host_moves
claim "rename(2) out of its name, into it and between two" host_renames
claim "and of two for each other" host_exchanges
claim "who stands in one stays there" host_stays
claim "git init --separate-git-dir, git submodule absorbgitdirs" separate_git_dirs
claim "git worktree and submodules by the host" host_files
claim "what the host made commands can read and not write" out_of_reach
claim "a command that moves what is around it" taken_away
claim "it outlives unmounting, a killed daemon and a new name" kept
claim "the host removes it" host_removes
claim "nested_git=shared shows all" shared
claim "an empty sandbox: .git of a command in the root" directories
claim "mounting again" mount_repo
finish
