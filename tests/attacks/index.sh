#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# What a command writes into its index, so that whoever looks at its files from outside sees
# others than those that are there.

on_host() {
	git -C "$MNT/t" "$@"
}

# inside SCRIPT: by a command, with the program that forges indexes.
inside() {
	run t sh -ec "$1" >"$ROOM/said" 2>&1 || fail "inside: $(cat "$ROOM/said")"
}

# Files as they should be.
safe_files() {
	mkdir -p "$REPO/lib"
	cp "$TESTS/attacks/forge_index.py" "$REPO/forge"
	chmod +x "$REPO/forge"
	echo 'echo safe' >"$REPO/tool"
	echo 'echo safe' >"$REPO/lib/tool"
	git -C "$REPO" add forge tool lib
	git -C "$REPO" commit -qm safe
}

# A sandbox of these, which the host's git knows.
fresh() {
	[ ! -d "$MNT/t" ] || teardown t
	box t
	touch -d 2020-01-01 "$MNT/t/tool"
	same '' "$(on_host status --porcelain)"
	grep -c . "$MNT/t/ctl/diff" || true
}

# shown PATH: as host git and we have it, that file has 'echo EVIL'.
shown() {
	on_host diff -- "$1" | grep -qx '+echo EVIL' || unsafe "git diff does not show it"
	on_host diff HEAD -- "$1" | grep -qx '+echo EVIL' || unsafe "git diff HEAD does not show it"
	recorded "$1"
}

recorded() {
	grep -qx '+echo EVIL' "$MNT/t/ctl/diff" || unsafe "ctl/diff does not show it"
	grep -q "$1\$" "$MNT/t/ctl/changes" || unsafe "changes does not name it"
	echo evil >"$MNT/t/ctl/snapshot"
	[ "$(on_host show "HEAD:$1")" = 'echo EVIL' ] || unsafe "the snapshot does not have it"
	teardown t
}

# EVIL is as long and as old as what was there.
evil='echo "echo EVIL" >tool; touch -d 2020-01-01 tool'

assumed() {
	inside "$evil; git update-index --assume-unchanged tool"
	shown tool
}

skipped() {
	inside "$evil; git update-index --skip-worktree tool"
	shown tool
}

# What was staged is another file, which is not there any more.
staged() {
	inside "echo 'echo good' >tool; git add tool; $evil; ./forge forge $(id -u) $(id -g) tool"
	same 'echo good' "$(on_host show :tool)"
	shown tool
}

staged_new() {
	inside "echo 'echo good' >fresh; git add fresh; echo 'echo EVIL' >fresh; touch -d 2020-01-01 fresh
		./forge forge $(id -u) $(id -g) fresh"
	same 'echo good' "$(on_host show :fresh)"
	shown fresh
}

announced() {
	inside "$evil; git rm -q --cached tool; git add -N tool; ./forge forge $(id -u) $(id -g) tool"
	same 'D  tool
?? tool' "$(on_host status --porcelain -- tool)"
	recorded tool
}

stages() {
	inside "$evil; c=\$(git rev-parse HEAD:tool); git rm -q --cached tool
		printf '100644 %s 1\ttool\n100644 %s 2\ttool\n100644 %s 3\ttool\n' \$c \$c \$c |
			git update-index --index-info"
	same 'UU tool' "$(on_host status --porcelain -- tool)"
	recorded tool
}

extensions() {
	inside "echo 'echo good' >tool; git add tool; $evil; ./forge extensions tool"
	refuse grep -qE 'FSMN|UNTR|EOIE|IEOT' "$(on_host rev-parse --git-path index)"
	on_host -c core.fsmonitor=true -c core.untrackedCache=true diff -- tool | grep -qx '+echo EVIL'
	shown tool
}

split() {
	inside "$evil; git update-index --split-index; git update-index --assume-unchanged tool"
	shown tool
}

# Directories of a sparse index are trees, of which the files are not named.
sparse() {
	inside "echo 'echo EVIL' >lib/tool; git sparse-checkout init --cone --sparse-index
		git sparse-checkout set other
		mkdir -p lib; echo 'echo EVIL' >lib/tool"
	shown lib/tool
}

# A directory that is called a submodule, as nobody looks into one that is not checked out.
submodule() {
	inside "echo 'echo EVIL' >lib/tool; git rm -rq --cached lib
		git update-index --add --cacheinfo 160000,\$(git rev-parse HEAD),lib"
	recorded lib/tool
}

# What is mapped is changed without a change of any time, after it was recorded. In
# memory nothing is ever written back. A line on its standard input has the program go on.
mapped() {
	teardown t
	unmount
	mount_repo disk_mb=64
	fresh
	cat >"$MNT/t/map" <<'END'
import mmap, os, sys
with open("tool", "r+b") as f:
	m = mmap.mmap(f.fileno(), 0)
	m[:] = b"echo good\n"
	os.utime("tool", (10**9, 10**9))
	open("mapped", "w").close()
	sys.stdin.readline()
	m[:] = b"echo EVIL\n"
END
	mkdir "$MNT/t/ctl/jobs/map"
	exec 5>"$MNT/t/ctl/jobs/map/stdin"
	echo '["python3", "map"]' 5>&- >"$MNT/t/ctl/jobs/map/exec" &
	until [ -e "$MNT/t/mapped" ]; do tick; done
	echo good >"$MNT/t/ctl/snapshot"
	[ "$(on_host show HEAD:tool)" = 'echo good' ]
	echo go >&5
	exec 5>&-
	wait $!
	recorded tool
	unmount
	mount_repo
}

# The index of the host's git has its time by the host, since git believes
# one of no time more than another.
aged() {
	inside './forge age; echo other >other; git add other; ./forge age'
	[ "$(stat -c %Y "$(on_host rev-parse --git-path index)")" -gt 1000000000 ] ||
		unsafe "the host's index is as old as commands say"
	same 'A  other' "$(on_host status --porcelain --untracked-files=no)"
}

# high_water: of the daemon's memory, in KiB.
high_water() {
	for pid in $(daemon_pid); do
		awk '/^VmHWM/ { print $2 }' "/proc/$pid/status"
	done | sort -n | tail -n 1
}

# Version 4 leaves out what a name shares with the one before it: a few MB are gigabytes of names.
long_names() {
	run a true
	before=$(high_water)
	inside './forge long 16000000; ./forge long 80000000'
	run a true
	inside './forge long 5000000'
	run a true
	have=$(($(high_water) - before))
	is_sanitized || [ $have -lt 65536 ] || unsafe "an index takes $have KiB"
}

# As large as the host's times four, by steps that each are no larger than that.
stage_many() {
	inside "awk 'BEGIN { for (i = 0; i < 60000; i++)
			printf \"100644 e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\\t$1/%d\\n\", i }' |
		git update-index --index-info"
}

growing() {
	fresh
	inside 'git hash-object -w --stdin </dev/null'
	before=$(high_water)
	stage_many one
	[ "$(on_host ls-files one | wc -l)" = 60000 ] || fail "$(cat "$MNT/a/ctl/error")"
	stage_many two
	same 0 "$(on_host ls-files two | wc -l)" || unsafe "what came before makes room for more"
	error_says t "too large"
	have=$(($(high_water) - before))
	is_sanitized || [ $have -lt 65536 ] || unsafe "an index takes $have KiB"
	same 60000 "$(run t sh -c "git ls-files two | wc -l")"
	inside 'git reset -q'
}

# What a command stages is staged outside, with nothing else; what it did not
# touch the host's git need not read.
carried() {
	fresh
	inside 'echo staged >staged; git add staged; git update-index --chmod=+x README.md; echo n >n
		git add -N n
		git update-index --assume-unchanged Makefile; git update-index --skip-worktree src/main.c'
	# Of these git looks at the content; the others are known.
	same 'README.md
staged' "$(on_host ls-files --debug |
	awk '/^[^ ]/ { name = $0 } /size: 0/ && name != "tool" { print name }')"
	same 'M  README.md
A  staged
?? n' "$(on_host -c core.fileMode=false status --porcelain)"
	same '' "$(on_host ls-files -v | grep -v '^H')"
	on_host rm -q --cached staged
	same 'h Makefile
S src/main.c' "$(run t git ls-files -v | grep -v '^H')"
	run t git status --porcelain | grep -qx ' A n'
}

# What the host's git was told of files stays, whatever a command stages, and goes inside.
flags_of_the_host() {
	fresh
	on_host update-index --assume-unchanged Makefile
	on_host update-index --skip-worktree src/main.c
	inside 'echo staged >staged; git add staged; echo 1 >>tool; git add tool'
	same 'h Makefile
S src/main.c' "$(on_host ls-files -v | grep -v '^H')"
	same 'h Makefile
S src/main.c' "$(run t git ls-files -v | grep -v '^H')"
	teardown t
}

end_branches() {
	[ ! -d "$MNT/t" ] || teardown t
	for branch in $(git -C "$REPO" for-each-ref --format='%(refname:short)' \
		'refs/heads/sandbox/t*'); do
		git -C "$REPO" branch -qD "$branch"
	done
}

# tried WALLS TEXT FUNCTION: in a sandbox of its own
tried() {
	attack "$1" "hide a change by $2" try "$3"
}

try() {
	fresh
	"$1"
}

claim "mounting" mount_victims
claim "safe files" safe_files
tried "bare_index" "assume-unchanged" assumed
tried "bare_index" "skip-worktree" skipped
tried "bare_index" "stat data of another file" staged
tried "bare_index" "the same of a file that is new" staged_new
tried -daemon "intent-to-add" announced
tried -daemon "the stages of a conflict" stages
tried -daemon "extensions that say what need not be looked at" extensions
tried -daemon "an index in two parts" split
tried -daemon "directories of a sparse index" sparse
tried -daemon "a directory that is called a submodule" submodule
tried -daemon "a file that is mapped" mapped
attack "bare_index" "an index that is older than all time" try aged
attack -daemon "an index whose names take gigabytes" try long_names
attack -daemon "an index that grows step by step" try growing
holds "what commands stage is staged, and nothing else is believed" carried
holds "what the host told its git of files stays" flags_of_the_host
claim "branches with commits are removed" end_branches
withstood
