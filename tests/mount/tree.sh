#!/bin/sh
. "$TESTS/lib/mount.sh"
# The tree of the interface: what is listed, what only resolves, what aliases do.

root() {
	same 'README SKILL.md a ctl' "$(ls "$MNT" | tr '\n' ' ' | sed 's/ $//')"
	lines=$(wc -l <"$MNT/README")
	[ "$lines" -ge 10 ] && [ "$lines" -le 60 ]
	grep -q exec "$MNT/README"
	"$SANDBOXFS" --skill | cmp - "$MNT/SKILL.md"
	head -n 3 "$MNT/SKILL.md" | grep -qx 'name: sandboxfs'
	for file in README SKILL.md; do
		expect EACCES\|EPERM\|EROFS write "$MNT/$file" O_WRONLY x
		same "$(wc -c <"$MNT/$file")" "$("$TOOL" stat "$MNT/$file" size)"
		cmp "$MNT/$file" "$MNT/ctl/$file"
	done
	expect EPERM\|EACCES\|EROFS open "$MNT/file" O_CREAT\|O_WRONLY
	expect EPERM\|EACCES symlink x "$MNT/link"
}

mount_controls() {
	for file in create teardown pending list list.json error events stats version config; do
		expect 0 stat "$MNT/ctl/$file"
	done
	grep -q '[0-9]' "$MNT/ctl/version"
	grep -qw a "$MNT/ctl/list"
	same a "$("$TOOL" json 0.name <"$MNT/ctl/list.json")"
	grep -q '^# TYPE\|^sandboxfs_' "$MNT/ctl/stats"
	"$TOOL" json state_dir <"$MNT/ctl/config" >/dev/null
}

sandbox_controls() {
	for file in exec spawn run stdout stderr status jobs cwd timeout_ms env limits policy \
		kill snapshot snapshots restore reset fork diff changes push sync import.tar export.tar \
		info workdir log events error; do
		expect 0 stat "$MNT/a/ctl/$file"
	done
	for file in cpu_s memory_mb procs file_mb disk_mb output_bytes jobs; do
		expect 0 stat "$MNT/a/ctl/limits/$file"
	done
	expect ENOENT stat "$MNT/a/ctl/nonsense"
	expect EPERM\|EACCES open "$MNT/a/ctl/jobs/nonsense" O_CREAT\|O_WRONLY
}

unlisted() {
	same 'Makefile README.md link src' "$(ls "$MNT/a" | tr '\n' ' ' | sed 's/ $//')"
	refuse sh -c "ls -a '$MNT/a' | grep -x 'ctl\|stdout\|stderr\|status'"
	same 0 "$(find "$MNT/a" -name ctl | wc -l)"
	expect 0 open "$MNT/a/ctl/status" O_RDONLY
	is_away || same '' "$(cd "$MNT/a" && git status --porcelain)"
	refuse grep -rq exitCode "$MNT/a"
}

true_sizes() {
	run a echo 12345
	same 6 "$("$TOOL" stat "$MNT/a/ctl/stdout" size)"
	test -s "$MNT/a/ctl/stdout"
	tar -C "$MNT/a/ctl" -cf - -h stdout 2>/dev/null | tar -xOf - stdout | grep -qx 12345
	same 1048576 "$("$TOOL" stat "$MNT/a/ctl/exec" blksize)"
}

aliases() {
	run a sh -c 'echo out; echo err >&2; exit 3' && false || true
	same out "$(cat "$MNT/a/stdout")"
	same err "$(cat "$MNT/a/stderr")"
	read -r code how rest <"$MNT/a/status"
	same "3 exited" "$code $how"
	like 'job=* wall_ms=* user_ms=* sys_ms=* max_rss_kb=*' "$rest"
}

# Whoever makes such a file: the name says how the last command ended.
aliases_stay() {
	echo mine >"$MNT/a/mine"
	for file in stdout stderr status; do
		expect EPERM unlink "$MNT/a/$file"
		error_says a "$file is of the mount itself: it cannot be removed"
		refuse mv -T "$MNT/a/mine" "$MNT/a/$file"
		error_says a "$file is of the mount itself: it cannot be replaced"
		expect EEXIST mkdir "$MNT/a/$file"
		expect EEXIST symlink x "$MNT/a/$file"
		expect EEXIST open "$MNT/a/$file" O_CREAT\|O_EXCL\|O_WRONLY
		expect EACCES open "$MNT/a/$file" O_WRONLY
	done
	rm "$MNT/a/mine"
	expect ENOENT write "$MNT/a/ctl/exec" O_WRONLY 'no-such-program\n'
	same 127 "$(cut -d' ' -f1 "$MNT/a/status")"
}

not_moved() {
	for file in stdout stderr status ctl; do
		expect EPERM rename "$MNT/a/$file" "$MNT/a/other"
		error_says a "$file is of the mount itself: it cannot be renamed"
	done
	for file in README SKILL.md ctl; do
		expect EPERM rename "$MNT/$file" "$MNT/other"
		grep -qF "$file is of the mount itself: it cannot be renamed" "$MNT/ctl/error"
	done
}

# What it takes is the user's; what is the mount's is refused, and all of it works on.
removed_all() {
	box emptied
	run emptied echo before
	rm -rf "$MNT/emptied/"*
	same '' "$(ls "$MNT/emptied")"
	same before "$(cat "$MNT/emptied/stdout")"
	same after "$(run emptied echo after)"
	rmdir "$MNT/emptied"
}

all_at_the_top() {
	refuse rm -rf "$MNT/"*
	same 'README SKILL.md ctl' "$(cd "$MNT" && echo *)"
	box a
	same hi "$(run a echo hi)"
}

# What a command makes of such a name is in the tree, and read where no alias is.
commands_files_stand_behind() {
	box behind
	run behind sh -c 'echo mine >status; mkdir stdout; echo in >stdout/in; ln status other
		echo moved >x; mv x stderr; exit 3' && false || true
	like '3 exited *' "$(cat "$MNT/behind/status")"
	same '' "$(cat "$MNT/behind/stdout")"
	same mine "$(run behind cat status)"
	same mine "$(cat "$MNT/behind/other")"
	refuse sh -c "ls -A '$MNT/behind' | grep -xE 'stdout|stderr|status'"
	same 'stdout stderr status' \
		"$(python3 -c 'import json, sys; print(*json.load(sys.stdin)["aliases_hide"])' \
			<"$MNT/behind/ctl/info")"
	grep -qx '+mine' "$MNT/behind/ctl/diff"
	grep -q 'stdout/in$' "$MNT/behind/ctl/changes"
	echo kept >"$MNT/behind/ctl/snapshot"
	same mine "$(cat "$MNT/behind/ctl/snapshots/$(git -C "$MNT/behind" rev-parse HEAD)/status")"
	same mine "$(git -C "$MNT/behind" show HEAD:status)"
	echo forked >"$MNT/behind/ctl/fork"
	run forked sh -c 'echo theirs >status'
	like '0 exited *' "$(cat "$MNT/forked/status")"
	teardown forked
	entry=$(git -C "$REPO" for-each-ref --format='%(refname:lstrip=3)' refs/sandboxfs/trash |
		grep '^forked-')
	printf '{"name":"back","from":"trash:%s"}\n' "$entry" >"$MNT/ctl/create"
	same theirs "$(run back cat status)"
	like '0 exited *' "$(cat "$MNT/back/status")"
	teardown back
	run behind rm -r status stdout stderr other
	echo 1 >"$MNT/behind/ctl/reset"
	refuse grep -q aliases_ "$MNT/behind/ctl/info"
	teardown behind
	git -C "$REPO" for-each-ref --format='delete %(refname)' 'refs/heads/sandbox/[bf]*' |
		git -C "$REPO" update-ref --stdin
}

# own NAME: how it is where the source has a file "status".
own() {
	same source "$(cat "$MNT/$1/status")"
	same '' "$(cat "$MNT/$1/stdout")"
	like '0 exited *' "$(cat "$MNT/$1/ctl/status")"
	ls "$MNT/$1" | grep -qx status
	same status "$(python3 -c 'import json, sys; print(*json.load(sys.stdin)["aliases_off"])' \
		<"$MNT/$1/ctl/info")"
}

# A file of the source's is what its name says, to the end of the
# sandbox, and in what is made of it.
sources_files_win() {
	echo source >"$REPO/status"
	git -C "$REPO" add status
	git -C "$REPO" commit -qm status
	box own
	run own true
	own own
	echo 'changed' >"$MNT/own/status"
	same changed "$(run own cat status)"
	run own git checkout -q status
	own own
	run own sh -c 'git rm -q status; git commit -qm gone'
	expect ENOENT lstat "$MNT/own/status"
	echo made >"$MNT/own/status"
	same made "$(run own cat status)"
	echo 1 >"$MNT/own/ctl/reset"
	echo other >"$MNT/own/ctl/fork"
	run other true
	own other
	run own rm status
	unmount
	remount
	expect ENOENT lstat "$MNT/own/status"
	run own git checkout -q status
	own own
	teardown own
	teardown other
	git -C "$REPO" reset -q --hard HEAD~1
	for branch in $(git -C "$REPO" for-each-ref --format='%(refname:short)' refs/heads/sandbox/own \
		refs/heads/sandbox/other); do
		git -C "$REPO" branch -qD "$branch"
	done
}

controls_stay() {
	for file in ctl/status ctl/exec ctl/jobs/1/argv ctl/jobs/last; do
		expect EPERM unlink "$MNT/a/$file"
		error_says a "${file##*/} is a control file: it cannot be removed"
		expect 0 lstat "$MNT/a/$file"
	done
	expect EPERM unlink "$MNT/ctl/create"
	expect EPERM unlink "$MNT/README"
	expect EPERM unlink "$MNT/SKILL.md"
	expect EPERM rmdir "$MNT/a/ctl/limits"
	expect EPERM rmdir "$MNT/a/ctl/jobs"
	error_says a 'cannot be removed'
	refuse rm -rf "$MNT/a/ctl"
	error_says a 'cannot be removed'
	refuse rm -rf "$MNT/a/ctl/"
	refuse find "$MNT/a/ctl/" -delete
	same still "$(run a echo still)"
	expect EPERM\|EBUSY\|EACCES\|EXDEV rename "$MNT/a/ctl/status" "$MNT/a/ctl/other"
	expect EACCES open "$MNT/a/ctl/status" O_WRONLY
	expect EACCES open "$MNT/a/ctl/kill" O_RDONLY
}

later_features() {
	for file in snapshot restore reset fork; do
		"$TOOL" write "$MNT/a/ctl/$file" O_WRONLY 'x\n' >"$ROOM/answer"
		grep -qx '0\|EOPNOTSUPP\|EINVAL\|ENOENT' "$ROOM/answer" || fail "$file: $(cat "$ROOM/answer")"
		! grep -qx EOPNOTSUPP "$ROOM/answer" || [ -s "$MNT/a/ctl/error" ]
	done
}

listed() {
	ls "$MNT/a" | grep -qx ctl
	expect 0 unlink "$MNT/a/ctl/exec"
	expect 0 rmdir "$MNT/a/ctl/limits"
	same hi "$(run a echo hi)"
}

renamed_directory() {
	expect 0 stat "$MNT/a/.sbx/exec"
	echo 'echo renamed' >"$MNT/a/.sbx/exec"
	same renamed "$(cat "$MNT/a/.sbx/stdout")"
	mkdir "$MNT/a/ctl"
	echo user >"$MNT/a/ctl/file"
	same user "$(run_renamed)"
	rm -r "$MNT/a/ctl"
}

run_renamed() {
	"$TOOL" exec "$MNT/a/.sbx/exec" cat ctl/file
}

claim "mounting" mount_repo
claim "mkdir" box a
claim "the root lists README, SKILL.md, ctl and the sandboxes, and takes no files" root
claim "MNT/ctl has every control file" mount_controls
claim "NAME/ctl has every control file" sandbox_controls
claim "ctl resolves but is not listed; git, find and grep -r see only the user's files" unlisted
claim "control files have true sizes and blocks of 1 MiB" true_sizes
claim "stdout, stderr and status are aliases" aliases
claim "an alias is neither removed nor replaced, in words" aliases_stay
# Forks, the trash and the source's own git are this host's.
claim_here "what a command makes of that name stands behind it" commands_files_stand_behind
claim "what is of the mount is not renamed, in words" not_moved
claim "rm -rf NAME/* leaves the aliases and the controls" removed_all
claim "a control cannot be removed; modes hold for root too" controls_stay
claim "a feature that is not there yet answers EOPNOTSUPP with a sentence" later_features
claim_here "a file of the source's of that name wins" sources_files_win
claim "rm -rf MNT/* takes the sandboxes and leaves a usable tree" all_at_the_top
claim "unmounting" unmount
claim "mounting with ctl=listed" remount ctl=listed
claim "ctl=listed lists it" listed
claim "unmounting" unmount
claim "mounting with ctl=.sbx" remount ctl=.sbx
claim "ctl=OTHERNAME renames it and frees the name" renamed_directory
claim "unmounting" unmount
claim "mounting as before" remount ''
finish
