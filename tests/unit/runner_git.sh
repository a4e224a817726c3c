#!/bin/sh
# The runner's git functions, each under the shells that machines have.
#
#   runner_git.sh SOURCE
set -u

source=$1
room=$(mktemp -d "${TMPDIR:-/tmp}/sandboxfs-git.XXXXXX") || exit 99
trap 'rm -rf "$room"' EXIT
n=0
HOME=$room/home
GIT_CONFIG_NOSYSTEM=1
export HOME GIT_CONFIG_NOSYSTEM
mkdir "$HOME"

# call LINE...: has the runner do them; its answer is in $room/answer
call() {
	{
		printf 'R_ROOM=%s R_TREE=%s\n' "$room/there" "$room/tree"
		cat "$source/backends/remote/frames.sh" "$source/backends/remote/git.sh"
		printf '%s\n' "$@" r_end
	} >"$room/script"
	$shell -c "$(cat "$room/script")" >"$room/answer"
	[ "$(tail -n 1 "$room/answer")" = . ]
}

# value KIND WORD: the text of that frame
value() {
	while read -r kind word _ _ _ bytes; do
		[ "$word" = "$2" ] || continue
		case $kind in
		"${1}t") printf %s "$bytes" ;;
		"${1}z") printf %s "$bytes" | base64 -d | gzip -d ;;
		"$1") printf %s "$bytes" | base64 -d ;;
		esac
	done <"$room/answer"
}

# failed ERRNO: the last call has failed by that
failed() {
	grep -q "^Ft* - $1 " "$room/answer"
}

# claim TEXT COMMAND...
claim() {
	text=$1
	shift
	n=$((n + 1))
	# Not as a condition, because set -e would count for nothing in it.
	("$@") >"$room/log" 2>&1
	code=$?
	if [ $code = 0 ]; then
		echo "ok $n - $shell: $text"
	else
		sed 's/^/# /' "$room/log"
		echo "not ok $n - $shell: $text"
	fi
}

new_tree() {
	rm -rf "$room/tree" "$room/there"
	git init -q -b main "$room/tree"
	git -C "$room/tree" config user.name T
	git -C "$room/tree" config user.email t@example.org
	printf 'one\n' >"$room/tree/file"
	echo ignored >"$room/tree/.gitignore"
	git -C "$room/tree" add .
	git -C "$room/tree" commit -qm first
	git -C "$room/tree" checkout -qb work
}

snapshots() {
	set -e
	new_tree
	call r_base
	[ "$(value I base)" = "$(git -C "$room/tree" rev-parse main)" ]
	printf 'two\n' >"$room/tree/file"
	echo new >"$room/tree/it's new"
	echo x >"$room/tree/ignored"
	call "r_snapshot '' 'it'\\''s a \"test\"' 'A B' a@b.c ''"
	id=$(value I id)
	[ "$id" = "$(git -C "$room/tree" rev-parse work)" ]
	[ "$(git -C "$room/tree" log -1 --format='%an <%ae> %s')" = "A B <a@b.c> it's a \"test\"" ]
	[ -z "$(git -C "$room/tree" status --porcelain)" ]
	git -C "$room/tree" show "$id:it's new" | grep -qx new
	[ -z "$(git -C "$room/tree" ls-tree "$id" ignored)" ]
	call "r_snapshot '' '' 'A B' a@b.c ''"
	value I message | grep -qE '^snapshot-[0-9a-f]{12}$'
	[ "$(value I id)" != "$id" ]
}

# Of the size and the time that the index has, which is as old itself.
same_times() {
	set -e
	new_tree
	git -C "$room/tree" config core.trustctime false
	touch -d '2020-01-01 00:00:00' "$room/tree/file"
	git -C "$room/tree" add file
	printf 'two\n' >"$room/tree/file"
	touch -d '2020-01-01 00:00:00' "$room/tree/file" "$room/tree/.git/index"
	call "r_snapshot '' two n n@n ''"
	[ "$(git -C "$room/tree" show "$(value I id):file")" = two ]
}

marks() {
	set -e
	new_tree
	printf 'two\n' >"$room/tree/file"
	call "r_snapshot job-1 m n n@n ''"
	[ "$(git -C "$room/tree" rev-parse HEAD)" = "$(git -C "$room/tree" rev-parse main)" ]
	[ "$(git -C "$room/tree" status --porcelain)" = " M file" ]
	printf 'three\n' >"$room/tree/file"
	echo more >"$room/tree/more"
	call "r_restore mark:job-1 work"
	[ "$(cat "$room/tree/file")" = two ]
	[ ! -e "$room/tree/more" ]
	call "r_restore mark:restore work"
	[ "$(cat "$room/tree/file" "$room/tree/more")" = "three
more" ]
	call "r_forget job-1"
	call "r_restore mark:job-1 work"
	failed 2
}

restores() {
	set -e
	new_tree
	call r_base
	printf 'two\n' >"$room/tree/file"
	call "r_snapshot '' two n n@n ''"
	id=$(value I id)
	printf 'three\n' >"$room/tree/file"
	git -C "$room/tree" checkout -qb aside
	touch "$room/tree/more" "$room/tree/ignored"
	call "r_restore $id work"
	[ "$(cat "$room/tree/file")" = two ]
	[ "$(git -C "$room/tree" symbolic-ref HEAD)" = refs/heads/work ]
	[ -z "$(git -C "$room/tree" status --porcelain)" ]
	[ -e "$room/tree/ignored" ]
	call "r_restore base work"
	[ "$(cat "$room/tree/file")" = one ]
	[ ! -e "$room/tree/ignored" ]
}

diffs() {
	set -e
	new_tree
	call r_base
	printf 'two\n' >"$room/tree/file"
	printf 'a\0b' >"$room/tree/binary"
	call "r_diff base '' names"
	[ "$(value D diff)" = "A	binary
M	file" ]
	call "r_diff base '' patch"
	value D diff >"$room/patch"
	git clone -q "$room/tree" "$room/clone"
	git -C "$room/clone" apply "$room/patch"
	cmp "$room/clone/binary" "$room/tree/binary"
	rm -rf "$room/clone"
	call "r_diff 1234567 '' patch"
	failed 2
}

# A diff is looked at as often as somebody likes, and who ends it may end it anywhere.
diffs_leave_nothing() {
	set -e
	new_tree
	call r_base
	mkdir -p "$room/there"
	sleep 0 &
	gone=$!
	wait $gone
	mkdir "$room/there/objects.$gone"
	find "$room/tree/.git" -type f | sort >"$room/before"
	for i in 1 2 3; do
		echo "$i" >"$room/tree/file"
		mkdir -p "$room/tree/dir"
		echo "$i" >"$room/tree/dir/new"
		call "r_diff base '' patch"
		value D diff | grep -qx "+$i"
	done
	find "$room/tree/.git" -type f | sort | diff "$room/before" -
	# But the note of batches, which each request sees to.
	[ "$(ls "$room/there")" = progress ]
	call 'r_tree_now() { touch "$GIT_OBJECT_DIRECTORY/begun" && kill $$; }' \
		"r_diff base '' patch" && exit 1
	[ "$(ls "$room/there")" = progress ]
}

refusals() {
	set -e
	rm -rf "$room/tree" "$room/there"
	mkdir "$room/tree"
	call "r_snapshot '' '' n n@n ''"
	failed 95
	new_tree
	touch "$room/tree/.git/MERGE_HEAD"
	call "r_snapshot '' '' n n@n ''"
	failed 16
}

# The machine's git goes by a configuration that a command may have written.
no_hook_runs() {
	set -e
	new_tree
	mkdir -p "$room/tree/.git/hooks"
	for hook in pre-commit post-commit post-checkout reference-transaction; do
		printf '#!/bin/sh\ntouch %s/hook\n' "$room" >"$room/tree/.git/hooks/$hook"
		chmod 755 "$room/tree/.git/hooks/$hook"
	done
	printf 'two\n' >"$room/tree/file"
	call "r_snapshot '' two n n@n ''"
	[ -n "$(value I id)" ]
	[ ! -e "$room/hook" ]
}

packs() {
	set -e
	new_tree
	mkdir -p "$room/there"
	touch "$room/there/push.old"
	call "r_objects work 1a"
	[ ! -e "$room/there/push.old" ]
	commit=$(value I commit) size=$(value I size)
	[ "$size" -gt 100 ] && [ "$size" -lt 1000 ]
	for i in 0 1 2 3 4 5 6 7 8 9; do
		call "r_objects_piece 1a 100 $i"
		value D piece
	done >"$room/pack"
	[ "$(wc -c <"$room/pack")" -eq "$size" ]
	git init -q --bare "$room/bare"
	git -C "$room/bare" index-pack --stdin <"$room/pack"
	git -C "$room/bare" update-ref refs/heads/work "$commit"
	git -C "$room/bare" fsck --strict
	rm -rf "$room/bare"
	call "r_objects_drop 1a"
	[ -z "$(ls "$room/there" | grep push)" ]
	call "r_objects_piece 1a 100 0"
	failed 2
	call "r_objects none 1b"
	failed 2
}

for shell in dash 'bash --posix' 'busybox sh'; do
	claim "a snapshot is a commit on the branch, without what is ignored" snapshots
	claim "what was written in the moment of the last look is in it" same_times
	claim "a mark moves nothing, and is gone back to" marks
	claim "a restore goes back to a snapshot or to the base" restores
	claim "a diff is what git apply takes" diffs
	claim "a diff leaves nothing in the repository or in the room" diffs_leave_nothing
	claim "what cannot be recorded is refused by name" refusals
	claim "no hook runs" no_hook_runs
	claim "a branch comes as a pack" packs
done
echo "1..$n"
