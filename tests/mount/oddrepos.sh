#!/bin/sh
. "$TESTS/lib/mount.sh"
# Repositories as they are found in the wild: sandboxes of each work, or are refused
# with a sentence that says what to do.

# Nothing is to be told on either side.
clean() {
	same '' "$(git -C "$MNT/$1" status --porcelain)"
	same '' "$(run "$1" git status --porcelain)"
	same '' "$(git -C "$MNT/$1" diff HEAD)"
}

# A commit on either side is on the branch, and the next side sees it.
both_sides() {
	echo host >"$MNT/$1/by-host"
	git -C "$MNT/$1" add by-host
	git -C "$MNT/$1" commit -qm 'by host'
	run "$1" sh -ec 'git log -1 --format=%s | grep -qx "by host"; echo c >by-command
		git add by-command; git commit -qm "by command"'
	same 'by command' "$(git -C "$MNT/$1" log -1 --format=%s)"
	clean "$1"
}

# works DIR [CHECK...]: a sandbox of DIR does, with layers and without.
works() {
	works_dir=$1
	shift
	git -C "$works_dir" status --porcelain >"$ROOM/status"
	for works_cow in auto off; do
		mount_fs "$works_dir" "cow=$works_cow"
		box o
		clean o
		[ $# = 0 ] || "$@"
		both_sides o
		teardown o
		git -C "$works_dir" branch -q -D sandbox/o
		unmount
	done
	git -C "$works_dir" fsck --no-progress --no-dangling
	refuse test -d "$(git -C "$works_dir" rev-parse --git-common-dir)/worktrees/o"
	git -C "$works_dir" status --porcelain | cmp "$ROOM/status" -
}

is_empty() {
	same '' "$(ls "$1")"
}

# counts N: of the commits, on both sides.
counts() {
	same "$1" "$(git -C "$MNT/o" rev-list --count HEAD)"
	same "$1" "$(run o git rev-list --count HEAD)"
}

# refused PATTERN DIR: at the mount.
refused() {
	refused_mount "$1" "$2" "$MNT" -o "state_dir=$STATE"
}

# --- contents ------------------------------------------------------------------------------

submodule() {
	new_repo "$ROOM/inner"
	new_repo "$ROOM/outer"
	git -C "$ROOM/outer" -c protocol.file.allow=always submodule --quiet add "$ROOM/inner" sub
	git -C "$ROOM/outer" commit -qm sub
	works "$ROOM/outer" is_empty "$MNT/o/sub"
}

within_a_submodule() {
	works "$ROOM/outer/sub"
	git -C "$ROOM/outer" status --porcelain
	same '' "$(git -C "$ROOM/outer" status --porcelain)"
}

lfs() {
	new_repo "$ROOM/lfs"
	echo '*.bin filter=lfs diff=lfs merge=lfs -text' >"$ROOM/lfs/.gitattributes"
	printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 12345\n' \
		0 >"$ROOM/lfs/a.bin"
	git -C "$ROOM/lfs" add .
	git -C "$ROOM/lfs" commit -qm lfs
	git -C "$ROOM/lfs" config filter.lfs.clean "cat; touch $ROOM/filtered"
	git -C "$ROOM/lfs" config filter.lfs.smudge "echo smudged; touch $ROOM/filtered"
	git -C "$ROOM/lfs" config filter.lfs.required true
	works "$ROOM/lfs" lfs_check
}

# No program was run to make it.
lfs_check() {
	same version "$(cut -d ' ' -f 1 <"$MNT/o/a.bin" | head -n 1)"
	rm -f "$ROOM/filtered"
	box p
	refuse test -e "$ROOM/filtered"
	teardown p
}

line_ends() {
	new_repo "$ROOM/eol"
	printf '%s\n' '* text=auto' '*.bat eol=crlf' '*.id ident' '*.sh eol=lf' \
		'*.u16 working-tree-encoding=UTF-16LE-BOM' '*.u16x text working-tree-encoding=UTF-16' \
		'*.l1 working-tree-encoding=ISO-8859-1' >"$ROOM/eol/.gitattributes"
	printf 'a\nb\n' >"$ROOM/eol/x.bat"
	printf 'a\nb\n' >"$ROOM/eol/x.sh"
	# shellcheck disable=SC2016
	printf '$Id$\n' >"$ROOM/eol/x.id"
	printf 'a\nb\n' >"$ROOM/eol/plain"
	printf '\377\376\344\000\n\000' >"$ROOM/eol/x.u16"
	printf '\377\376a\000\n\000' >"$ROOM/eol/x.u16x"
	printf '\344\n' >"$ROOM/eol/x.l1"
	git -C "$ROOM/eol" add .
	git -C "$ROOM/eol" commit -qm eol
	git -C "$ROOM/eol" config core.autocrlf true
	rm "$ROOM/eol"/x.* "$ROOM/eol/plain"
	git -C "$ROOM/eol" checkout -q .
	works "$ROOM/eol" line_ends_check
}

line_ends_check() {
	for file in x.bat x.sh x.id x.u16 x.u16x x.l1 plain; do
		cmp "$ROOM/eol/$file" "$MNT/o/$file"
		# git has to look into it.
		touch "$MNT/o/$file"
	done
	clean o
}

names() {
	new_repo "$ROOM/names"
	(
		cd "$ROOM/names"
		echo 1 >"new
line"
		echo 2 >"-dash"
		echo 3 >"$(printf 'latin\351')"
		echo 4 >'quote"s\back'
		echo 5 >"ünïcödé ☃"
		echo 6 >' space '
		mkdir "dir
line"
		echo 7 >"dir
line/tab	"
		# Two of a kind, but for case.
		echo upper >Case
		echo lower >case
		mkdir Dir dir
		echo a >Dir/a
		echo b >dir/a
		git add .
		git commit -qm names
	)
	works "$ROOM/names" names_check
}

names_check() {
	(cd "$ROOM/names" && git ls-files -z) >"$ROOM/listed"
	(cd "$MNT/o" && git ls-files -z) | cmp "$ROOM/listed" -
	diff -r -x .git "$ROOM/names" "$MNT/o"
	run o sh -c 'cat Case case Dir/a dir/a' >"$ROOM/have"
	printf 'upper\nlower\na\nb\n' | cmp "$ROOM/have" -
}

# As deep as git itself can have it.
deep() {
	new_repo "$ROOM/deep"
	(
		cd "$ROOM/deep"
		name=$(printf '%0200d' 0)
		for i in $(seq 17); do
			mkdir "$name"
			cd "$name"
		done
		echo deep >file
		cd "$ROOM/deep"
		git add .
		git commit -qm deep
	)
	works "$ROOM/deep" deep_check
}

deep_check() {
	same deep "$(run o sh -c 'for i in $(seq 17); do cd 0*; done; cat file')"
	same deep "$(cd "$MNT/o" && for i in $(seq 17); do cd 0*; done && cat file)"
}

# --- what the source has of itself ---------------------------------------------------------

sparse() {
	new_repo "$ROOM/sparse"
	mkdir "$ROOM/sparse/other"
	echo o >"$ROOM/sparse/other/o"
	git -C "$ROOM/sparse" add .
	git -C "$ROOM/sparse" commit -qm other
	git -C "$ROOM/sparse" sparse-checkout set "$@" src
	expect ENOENT stat "$ROOM/sparse/other/o"
	works "$ROOM/sparse" test -f "$MNT/o/other/o"
	same H "$(git -C "$ROOM/sparse" ls-files -t src/main.c | cut -c 1)"
	rm -rf "$ROOM/sparse"
}

worktree_config() {
	new_repo "$ROOM/wtconfig"
	git -C "$ROOM/wtconfig" config extensions.worktreeConfig true
	git -C "$ROOM/wtconfig" config --worktree core.autocrlf false
	works "$ROOM/wtconfig"
}

linked_worktree() {
	new_repo "$ROOM/main"
	git -C "$ROOM/main" worktree add -q -b other "$ROOM/linked"
	echo linked >"$ROOM/linked/linked"
	git -C "$ROOM/linked" add .
	git -C "$ROOM/linked" commit -qm linked
	works "$ROOM/linked" test -f "$MNT/o/linked"
	git -C "$ROOM/main" worktree remove "$ROOM/linked"
	git -C "$ROOM/main" fsck --no-progress --no-dangling
}

separate_git_dir() {
	git init -q --separate-git-dir "$ROOM/apart.git" "$ROOM/apart"
	new_repo "$ROOM/apart"
	works "$ROOM/apart"
}

detached() {
	new_repo "$ROOM/detached"
	echo 2 >"$ROOM/detached/two"
	git -C "$ROOM/detached" add .
	git -C "$ROOM/detached" commit -qm two
	git -C "$ROOM/detached" checkout -q --detach HEAD~1
	works "$ROOM/detached" expect ENOENT stat "$MNT/o/two"
}

paths() {
	for path in 'with space' 'with:colon,and=comma' 'ünïcödé' 'back\slash"quote' '#hash' '-dash'; do
		new_repo "$ROOM/p/$path"
		works "$ROOM/p/$path"
	done
}

newline_in_path() {
	new_repo "$ROOM/p/with
newline"
	refused 'line break' "$ROOM/p/with
newline"
}

# --- where objects are -----------------------------------------------------------------------

shallow() {
	new_repo "$ROOM/full"
	echo 2 >"$ROOM/full/two"
	git -C "$ROOM/full" add .
	git -C "$ROOM/full" commit -qm two
	git clone -q --depth 1 "file://$ROOM/full" "$ROOM/shallow"
	works "$ROOM/shallow" counts 1
}

alternates() {
	git clone -q --shared "$ROOM/full" "$ROOM/shared"
	git clone -q --shared "$ROOM/shared" "$ROOM/twice"
	works "$ROOM/twice" counts 2
	# A path from the directory that it is in.
	echo ../../../full/.git/objects >"$ROOM/shared/.git/objects/info/alternates"
	works "$ROOM/shared" borrowed_check
}

borrowed_check() {
	counts 2
	refuse run o sh -c "echo x >'$ROOM/full/.git/objects/x'"
}

partial() {
	git -C "$ROOM/full" config uploadpack.allowFilter true
	date +%N >"$ROOM/full/two"
	git -C "$ROOM/full" commit -qam 'in the past'
	echo changed >"$ROOM/full/two"
	git -C "$ROOM/full" commit -qam changed
	git clone -q --filter=blob:none "file://$ROOM/full" "$ROOM/partial"
	works "$ROOM/partial"
	# What an older commit has was never fetched.
	for cow in auto off; do
		mount_fs "$ROOM/partial" "cow=$cow"
		refuse sh -c "printf '%s' '{\"name\":\"old\",\"base\":\"HEAD~1\"}' >'$MNT/ctl/create'"
		like '*partial clone*git checkout*' "$(cat "$MNT/ctl/error")"
		expect ENOENT stat "$MNT/old"
		unmount
	done
	# What it says to do helps.
	git -C "$ROOM/partial" checkout -q HEAD~1
	works "$ROOM/partial" counts 3
}

many_refs() {
	new_repo "$ROOM/refs"
	head=$(git -C "$ROOM/refs" rev-parse HEAD)
	git -C "$ROOM/refs" pack-refs --all
	seq -f "$head refs/tags/t%.0f" "$SBX_REFS" | LC_ALL=C sort -k 2 >>"$ROOM/refs/.git/packed-refs"
	same "$SBX_REFS" "$(git -C "$ROOM/refs" tag | wc -l)"
	works "$ROOM/refs" counts 1
}

# --- refused -----------------------------------------------------------------------------------

sha256() {
	git init -q --object-format=sha256 "$ROOM/sha256"
	new_repo "$ROOM/sha256"
	refused 'SHA-256' "$ROOM/sha256"
}

reftable() {
	new_repo "$ROOM/reftable"
	git -C "$ROOM/reftable" config core.repositoryformatversion 1
	git -C "$ROOM/reftable" config extensions.refStorage reftable
	refused 'git refs migrate --ref-format=files' "$ROOM/reftable"
}

unknown_extension() {
	new_repo "$ROOM/future"
	git -C "$ROOM/future" config core.repositoryformatversion 1
	git -C "$ROOM/future" config extensions.fromTheFuture true
	refused 'fromthefuture' "$ROOM/future"
}

bare() {
	git clone -q --bare "$ROOM/full" "$ROOM/bare.git"
	refused 'bare repository' "$ROOM/bare.git"
}

unborn() {
	git init -q "$ROOM/unborn"
	refused 'make a first commit' "$ROOM/unborn"
	new_repo
	git -C "$REPO" checkout -q --orphan nothing
	refused 'make a first commit' "$REPO"
	mount_fs "$REPO" base=main
	box n
	clean n
	teardown n
	unmount
	git -C "$REPO" checkout -q -f main
}

# object DIR PATH: the file of the loose object that is at PATH in the last commit.
object() {
	git -C "$1" rev-parse "HEAD:$2" | sed "s|..|$1/.git/objects/&/|"
}

# A file, a link or a directory that cannot be read: mkdir says which
# object, and it is not the disk's fault.
damaged() {
	for path in README.md link src; do
		for how in missing damaged empty; do
			rm -rf "$ROOM/d" "$STATE" "$ROOM/cache"
			new_repo "$ROOM/d"
			file=$(object "$ROOM/d" "$path")
			chmod 600 "$file"
			case $how in
			missing) rm "$file" ;;
			damaged) echo rubbish >"$file" ;;
			empty) : >"$file" ;;
			esac
			mount_fs "$ROOM/d"
			"$TOOL" mkdir "$MNT/o" >"$ROOM/answer"
			echo "$path $how: $(cat "$ROOM/answer")" >>"$ROOM/answers"
			grep -qx 'ENOENT\|EBADMSG\|EINVAL' "$ROOM/answer"
			grep -q "^$(cat "$ROOM/answer"): ." "$MNT/ctl/error"
			expect ENOENT stat "$MNT/o"
			unmount
		done
	done
}

# odd TEXT COMMAND...: as claim, and what a failed one has mounted is in nobody's way.
odd() {
	claim "$@"
	if is_mounted; then
		claim "unmounting after: $1" tear_and_unmount
	fi
}

odd "submodules: their directories are empty" submodule
odd "a submodule as the source" within_a_submodule
odd "files of LFS are the pointers, and no filter is run" lfs
odd "line ends, identifiers, encodings" line_ends
odd "odd names, and names that differ in case only" names
odd "a deep tree" deep
odd "a sparse checkout: sandboxes are whole" sparse --no-cone
odd "a sparse checkout by directories" sparse --cone
odd "a sparse checkout with a sparse index" sparse --cone --sparse-index
odd "settings of a worktree's own" worktree_config
odd "a linked worktree as the source" linked_worktree
odd "the git directory elsewhere" separate_git_dir
odd "a detached HEAD" detached
odd "odd characters in the path of the source" paths
odd "a line break in it is refused" newline_in_path
odd "a shallow clone" shallow
odd "objects borrowed from elsewhere" alternates
odd "a partial clone: works as far as it has the objects" partial
odd "a damaged repository: a sandbox is refused in words, never with EIO" damaged
odd "$SBX_REFS refs" many_refs
odd "SHA-256 is refused" sha256
odd "reftable is refused" reftable
odd "what nobody knows yet is refused" unknown_extension
odd "a bare repository is refused" bare
odd "a repository without a commit is refused, unless a base is given" unborn
