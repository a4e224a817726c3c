#!/bin/sh
. "$TESTS/lib/mount.sh"
# A sandbox's own git: commands work with it as anywhere, the source is out of their reach, nothing
# they leave there runs on the host, and both sides see what the other did.
CANARY=$ROOM/canary

inside() {
	run a sh -ec "$1"
}

on_host() {
	git -C "$MNT/a" "$@"
}

# Where commands have their repository: the same path inside.
own_git() {
	echo "$STATE"/git/a-*/repo
}

tip() {
	git -C "$1" rev-parse "${2:-HEAD}"
}

# --- working inside ----------------------------------------------------------------------

commits() {
	inside 'echo 1 >one; git add one; git commit -qm one; git log --oneline | grep -q one'
	same '' "$(inside 'git status --porcelain')"
	inside 'echo 2 >>one; git diff | grep -qx +2; git commit -qam two'
	same two "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
}

branches_and_merges() {
	inside 'git checkout -qb side; echo s >s; git add s; git commit -qm side
		git checkout -q sandbox/a; echo m >m; git add m; git commit -qm main
		git merge -q -m merged side; git branch -d side'
	same 2 "$(git -C "$REPO" log -1 --format=%P sandbox/a | wc -w)"
}

rebases() {
	inside 'git checkout -qb topic HEAD~1; echo t >t; git add t; git commit -qm topic
		git rebase -q sandbox/a; git checkout -q sandbox/a; git merge -q --ff-only topic
		git branch -d topic'
	same topic "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
}

stashes() {
	inside 'echo changed >one; git stash -q; grep -qx 1 one'
	same changed "$(git -C "$REPO" show "$(ref_of a stash/0):one")"
	inside 'git stash pop -q; grep -qx changed one; git checkout -q one'
	refuse git -C "$REPO" rev-parse -q --verify "$(ref_of a stash/0)"
}

# Entries below the top, too.
stash_list() {
	inside 'echo s1 >one; git stash -q; echo s2 >one; git stash -q; echo s3 >one; git stash -q'
	for n in 0 1 2; do
		same "s$((3 - n))" "$(git -C "$REPO" show "$(ref_of a stash/$n):one")"
	done
	inside 'git stash drop -q; git stash pop -q; git checkout -q one'
	same s1 "$(git -C "$REPO" show "$(ref_of a stash/0):one")"
	refuse git -C "$REPO" rev-parse -q --verify "$(ref_of a stash/1)"
	inside 'git stash drop -q'
	refuse git -C "$REPO" rev-parse -q --verify "$(ref_of a stash/0)"
}

# Commits that no branch names, also those of a HEAD that has gone on.
detached() {
	inside 'git checkout -q --detach; git commit -q --allow-empty -m d1
		git commit -q --allow-empty -m d2; git checkout -q sandbox/a
		git checkout -q --detach; git commit -q --allow-empty -m d3'
	same 'd2
d3' "$(git -C "$REPO" for-each-ref --format='%(subject)' "$(ref_of a detached)" | sort)"
	inside 'git commit -q --allow-empty -m d4; git checkout -q sandbox/a'
	same 'd2
d4' "$(git -C "$REPO" for-each-ref --format='%(subject)' "$(ref_of a detached)" | sort)"
	d2=$(git -C "$REPO" for-each-ref --format='%(objectname) %(subject)' "$(ref_of a detached)" |
		sed -n 's/ d2$//p')
	inside "git branch kept $d2"
	same d4 "$(git -C "$REPO" for-each-ref --format='%(subject)' "$(ref_of a detached)")"
	inside 'git branch -qD kept'
}

# Those that are in the source stay there, however many there are.
many_branches() {
	inside 'git branch zz; c=$(git commit-tree -m many HEAD^{tree}); git update-ref refs/heads/zz $c'
	git -C "$REPO" rev-parse -q --verify "$(ref_of a heads/zz)"
	inside 'c=$(git rev-parse zz); for i in $(seq 1100); do echo "create refs/heads/aa$i $c"; done |
			git update-ref --stdin'
	git -C "$REPO" rev-parse -q --verify "$(ref_of a heads/zz)"
	error_says a 'are not in the source'
	grep -q '"git".*are not in the source' "$MNT/a/ctl/events"
	inside 'for i in $(seq 1100); do echo "delete refs/heads/aa$i"; done | git update-ref --stdin
		git branch -qD zz'
	same '' "$(git -C "$REPO" for-each-ref "$(ref_of a heads)")"
}

# Another sandbox of the same name, also one whose name is what ours are kept under.
same_name() {
	for name in again trash; do
		box $name
		run $name sh -c 'git checkout -qb mine; git commit -q --allow-empty -m first'
		ref=$(ref_of $name heads/mine)
		rmdir "$MNT/$name"
		box $name
		run $name sh -c 'git checkout -qb mine; git commit -q --allow-empty -m second'
		same first "$(git -C "$REPO" log -1 --format=%s "$ref")"
		same second "$(git -C "$REPO" log -1 --format=%s "$(ref_of $name heads/mine)")"
		teardown $name
	done
	run a git branch trash
	same '' "$(git -C "$REPO" for-each-ref refs/sandboxfs/trash)"
	run a git branch -D trash
}

# Of the time before they were kept by id.
former_refs() {
	kept=$(own_git)/../kept
	inside 'git checkout -qb old; git commit -q --allow-empty -m old; git checkout -q -'
	new=$(ref_of a heads/old)
	oid=$(git -C "$REPO" rev-parse "$new")
	git -C "$REPO" update-ref refs/sandboxfs/a/heads/old "$oid"
	git -C "$REPO" update-ref -d "$new"
	echo "$oid refs/sandboxfs/a/heads/old" >"$kept"
	inside 'git commit -q --allow-empty -m more'
	same "$oid" "$(git -C "$REPO" rev-parse "$new")"
	refuse git -C "$REPO" rev-parse -q --verify refs/sandboxfs/a/heads/old
	inside 'git branch -qD old'
}

# Its name is what refs ended in before they were kept by kind first.
called_diverged() {
	inside 'git checkout -qb diverged; git commit -q --allow-empty -m d; git branch -q x/diverged
		git checkout -q -'
	for ref in heads/diverged heads/x/diverged; do
		git -C "$REPO" rev-parse -q --verify "$(ref_of a $ref)"
	done
	inside 'git branch -qD diverged x/diverged'
	for ref in heads/diverged heads/x/diverged; do
		refuse git -C "$REPO" rev-parse -q --verify "$(ref_of a $ref)"
	done
}

borrows() {
	same "$(git -C "$REPO" rev-parse main)" "$(inside 'git rev-parse main')"
	same 0 "$(inside 'find $(git rev-parse --git-dir)/objects/pack -type f | wc -l')"
	git -C "$REPO" tag late
	same "$(git -C "$REPO" rev-parse late)" "$(inside 'git rev-parse late')"
}

# --- out of reach ------------------------------------------------------------------------

source_state() {
	(cd "$REPO/.git" && find . -path ./objects -prune -o -type f -print0 | sort -z | xargs -0 sha1sum)
}

unreachable() {
	source_state >"$ROOM/before"
	# Below /tmp there may be directories on the way to what is shown, on the sandbox's own /tmp.
	for path in config hooks/pre-commit refs/heads/main packed-refs HEAD worktrees/x \
		info/attributes; do
		refuse inside "cat '$REPO/.git/$path'"
		inside "mkdir -p '$(dirname "$REPO/.git/$path")'; echo x >'$REPO/.git/$path'" || true
	done
	refuse inside "echo x >'$REPO/.git/objects/x'"
	refuse inside "mkdir '$REPO/.git/objects/zz'"
	refuse inside "rm -rf '$REPO/.git/objects'"
	refuse inside "ls '$STATE/git' | grep -v ^a-"
	source_state >"$ROOM/after"
	cmp "$ROOM/before" "$ROOM/after"
	git -C "$REPO" fsck --no-progress --no-dangling
}

policy() {
	like '*repository of its own*' "$("$TOOL" json git <"$MNT/a/ctl/policy")"
	same private "$("$TOOL" json nested_git <"$MNT/a/ctl/policy")"
}

other_branches() {
	main=$(tip "$REPO" main)
	inside 'git checkout -q main; echo x >x; git add x; git commit -qm "on main"'
	same "$main" "$(tip "$REPO" main)"
	same 'on main' "$(git -C "$REPO" log -1 --format=%s "$(ref_of a heads/main)")"
	same 'on main' "$(on_host log -1 --format=%s)"
	same '' "$(on_host status --porcelain)"
	inside "git update-ref refs/heads/sandbox/b HEAD; git tag stolen; git checkout -q sandbox/a"
	same "$main" "$(tip "$REPO" sandbox/b)"
	refuse git -C "$REPO" rev-parse -q --verify stolen
	same sandbox/a "$(on_host branch --show-current)"
}

# --- nothing runs on the host ------------------------------------------------------------

use_git_on_host() {
	echo "$1" >"$MNT/a/by-host"
	for words in status diff 'log -1 -p' 'add by-host' 'commit -qm by-host' 'stash list' \
		'checkout -q HEAD' 'submodule status' st; do
		# shellcheck disable=SC2086
		on_host $words </dev/null >/dev/null || echo "git $words: $?"
	done
	git -C "$REPO" status >/dev/null
	[ ! -e "$CANARY" ] || fail "what a command planted ran on the host"
}

# planted NAME SCRIPT: SCRIPT plants inside, $G is the git directory, $RUN a
# program that would leave the canary.
planted() {
	inside "G=\$(git rev-parse --git-dir); RUN='touch $CANARY'; $2"
	use_git_on_host "$1"
}

hooks() {
	planted hooks 'mkdir -p $G/hooks
		for h in pre-commit post-checkout post-index-change reference-transaction post-commit; do
			printf "#!/bin/sh\n$RUN\n" >$G/hooks/$h; chmod 755 $G/hooks/$h; done'
	inside 'rm -r $(git rev-parse --git-dir)/hooks'
}

settings() {
	planted settings 'for k in core.fsmonitor core.pager core.editor core.sshCommand diff.external \
			gpg.program alias.st; do
			git config $k "$RUN"; done
		git config core.hooksPath $PWD/hooks; git config commit.gpgSign true
		mkdir -p hooks; printf "#!/bin/sh\n$RUN\n" >hooks/pre-commit; chmod 755 hooks/pre-commit'
	inside 'rm -r hooks; cd $(git rev-parse --git-dir)
		sed -i "/fsmonitor\|pager\|editor\|ssh\|external\|program\|alias\|st = /d
			/hooks\|gpg\|[Ss]ign\|diff/d" config'
}

attributes() {
	planted attributes 'echo "* filter=evil diff=evil merge=evil" >.gitattributes
		git config filter.evil.clean "$RUN; cat"; git config filter.evil.smudge "$RUN; cat"
		git config diff.evil.textconv "$RUN; cat"; rm -f .gitattributes.x'
	inside 'rm .gitattributes; git config --remove-section filter.evil
		git config --remove-section diff.evil'
}

own_dotgit() {
	planted dotgit 'rm .git; git init -q; git config core.fsmonitor "$RUN"; mkdir -p .git/hooks
		printf "#!/bin/sh\n$RUN\n" >.git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit'
	like "gitdir: $REPO/.git/worktrees/a-*" "$(cat "$MNT/a/.git")"
	inside "rm -r .git; echo 'gitdir: $(own_git)' >.git; git status"
}

nested_dotgit() {
	planted nested 'mkdir sub; cd sub; git init -q; echo x >x; git add x; git commit -qm x
		git config core.fsmonitor "$RUN"
		cd ..; git add sub 2>/dev/null; git commit -qm "a gitlink"'
	refuse test -e "$MNT/a/sub/.git"
	same x "$(ls -A "$MNT/a/sub")"
	planted submodule \
		'printf "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n\tupdate = !%s\n" "$RUN" >.gitmodules'
	inside 'rm -rf sub .gitmodules; git rm -q --cached sub; git commit -qm gone'
}

borrowed_elsewhere() {
	mkdir "$ROOM/elsewhere"
	planted borrowed \
		"echo $ROOM/elsewhere >>\$G/objects/info/alternates; echo ../../../x >\$G/commondir"
	inside "cd $(own_git); rm commondir; sed -i '\$d' objects/info/alternates"
	same '' "$(on_host status --porcelain)"
	same '' "$(inside 'git status --porcelain')"
}

# The test above would notice: what commands make is shown, and runs.
shown_when_shared() {
	unmount
	mount_repo nested_git=shared
	inside "mkdir own; cd own; git init -q; echo x >x; git add x
		git config core.fsmonitor 'touch $CANARY'"
	git -C "$MNT/a/own" status >/dev/null
	[ -e "$CANARY" ]
	rm -r "$CANARY" "$MNT/a/own"
	unmount
	mount_repo
}

# --- both ways ---------------------------------------------------------------------------

from_the_host() {
	echo h >"$MNT/a/h"
	on_host add h
	same 'A  h' "$(inside 'git status --porcelain')"
	on_host commit -qm 'host commit'
	same 'host commit' "$(inside 'git log -1 --format=%s')"
	same '' "$(inside 'git status --porcelain')"
	on_host checkout -qb hosts
	same hosts "$(inside 'git branch --show-current')"
	inside 'echo i >i; git add i; git commit -qm "on the new branch"'
	same 'on the new branch' "$(git -C "$REPO" log -1 --format=%s hosts)"
	on_host checkout -q sandbox/a
	same sandbox/a "$(inside 'git branch --show-current')"
	git -C "$REPO" branch -qD hosts
	inside '! git rev-parse -q --verify hosts'
}

to_the_host() {
	inside 'echo staged >staged; git add staged'
	same 'A  staged' "$(on_host status --porcelain)"
	same +staged "$(on_host diff --cached | tail -n 1)"
	inside 'git reset -q; rm staged'
	same '' "$(on_host status --porcelain)"
	inside 'git checkout -q --detach HEAD~1'
	same "$(inside 'git rev-parse HEAD')" "$(tip "$MNT/a")"
	same '' "$(on_host branch --show-current)"
	inside 'git checkout -q sandbox/a'
}

own_branches() {
	inside 'git checkout -qb mine; echo mine >m-file; git add m-file; git commit -qm mine'
	same '' "$(on_host status --porcelain)"
	same mine "$(on_host log -1 --format=%s)"
	echo more >>"$MNT/a/m-file"
	on_host commit -qam 'more of mine'
	same mine "$(inside 'git branch --show-current')"
	same 'more of mine' "$(inside 'git log -1 --format=%s mine')"
	same '' "$(inside 'git status --porcelain')"
	same 'more of mine' "$(git -C "$REPO" log -1 --format=%s "$(ref_of a heads/mine)")"
	inside 'git checkout -q sandbox/a; git branch -qD mine'
	refuse git -C "$REPO" rev-parse -q --verify "$(ref_of a heads/mine)"
}

both_staged() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c 'echo i >by-i; until [ -e go ]; do :; done; git add by-i')
	echo h >"$MNT/a/by-h"
	on_host add by-h
	: >"$MNT/a/go"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	rm "$MNT/a/go"
	same 'A  by-h
A  by-i' "$(on_host status --porcelain)"
	same 'A  by-h
A  by-i' "$(inside 'git status --porcelain')"
	on_host commit -qm 'both staged'
}

# What the host stages while what a command has staged is brought over, which takes a moment.
staged_meanwhile() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sh -c 'until [ -e go ]; do :; done
		for i in 1 2 3 4 5 6 7 8; do head -c 4000000 /dev/urandom >big-$i; done; git add big-*')
	rm -f "$ROOM/stop"
	trap ': >"$ROOM/stop"' EXIT
	(
		n=0
		while [ ! -e "$ROOM/stop" ]; do
			n=$((n + 1))
			echo $n >"$MNT/a/n-$n"
			until on_host add "n-$n" 2>/dev/null; do tick; done
		done
	) &
	: >"$MNT/a/go"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	inside true
	: >"$ROOM/stop"
	wait
	rm "$MNT/a/go"
	inside true
	same '' "$(on_host status --porcelain | grep -v '^A ')"
	same '' "$(inside 'git status --porcelain | grep -v "^A " || true')"
	on_host rm -qf --cached 'big-*' 'n-*'
	rm "$MNT"/a/big-* "$MNT"/a/n-*
	inside true
}

host_is_busy() {
	entry=$(echo "$REPO"/.git/worktrees/a-*)
	: >"$entry/index.lock"
	inside 'echo b >busy; git add busy'
	error_says a 'git is at work'
	same '?? busy' "$(git --no-optional-locks -C "$MNT/a" status --porcelain)"
	# By the last of them nothing has moved for long.
	for n in 1 2 3 4 5 6; do
		inside true
	done
	rm "$entry/index.lock"
	inside true
	same 'A  busy' "$(on_host status --porcelain)"
	inside 'git rm -qf busy'
	same '' "$(on_host status --porcelain)"
}

# lock_inside FILE [SCRIPT]: a command has FILE of its repository locked,
# until let_go; then it runs SCRIPT.
lock_inside() {
	rm -f "$MNT/a/locked" "$MNT/a/go"
	job=$("$TOOL" result "$MNT/a/ctl/spawn" sh -ec "cd $(own_git); : >$1.lock; cd -; : >locked
		until [ -e go ]; do sleep 0.02; done; rm go locked $(own_git)/$1.lock; ${2:-}")
	until [ -e "$MNT/a/locked" ]; do tick; done
}

let_go() {
	: >"$MNT/a/go"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$job/wait")"
}

# A git that was killed leaves them.
left_locked() {
	inside 'cd "$(git rev-parse --git-dir)"
		for f in index HEAD config packed-refs shallow refs/heads/sandbox/a refs/heads/new; do
			: >$f.lock; done'
	inside 'echo l >left; git add left; git commit -qm "after one that was killed"; git config x.y z
		git branch new
		git pack-refs --all; git checkout -qb other; git checkout -q sandbox/a; git branch -qD other new'
	same '' "$(on_host status --porcelain)"
	same 'after one that was killed' "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
}

# The command after it begins within a tick of the clock of file times.
just_left_locked() {
	python3 - "$MNT/a/ctl/exec" "$(own_git)/index.lock" <<'END'
import json, sys

def run(script):
    with open(sys.argv[1], "r+b", buffering=0) as f:
        f.write(json.dumps(["sh", "-c", script]).encode())
        return json.loads(f.read())["exitCode"]

print(sum(run(": >" + sys.argv[2]) + run("[ ! -e " + sys.argv[2] + " ]") for _ in range(50)),
      "were left")
END
}

no_lock_is_left() {
	same '0 were left' "$(just_left_locked)"
}

# While its command runs it may be somebody's.
held_locked() {
	lock_inside index
	inside true
	inside "[ -e $(own_git)/index.lock ]"
	refuse sh -c "echo m >'$MNT/a/ctl/snapshot'"
	error_says a 'git is at work'
	let_go
	echo 'after it' >"$MNT/a/ctl/snapshot"
	same '' "$(inside 'git status --porcelain')"
}

# What the host committed meanwhile comes with its index or not at all: the
# next commit inside would delete it.
index_comes_along() {
	before=$(inside 'git log -1 --format=%s')
	lock_inside index 'echo i >by-command; git add by-command; git commit -qm "by the command"'
	echo h >"$MNT/a/of-host"
	on_host add of-host
	on_host commit -qm 'of the host'
	same "$before" "$(inside 'git log -1 --format=%s')"
	error_says a 'git is at work'
	grep -q '"git".*git is at work' "$MNT/a/ctl/events"
	let_go
	same 'of the host' "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	same 'by the command' "$(git -C "$REPO" log -1 --format=%s "$(ref_of a diverged)")"
	for tip in sandbox/a "$(ref_of a diverged)"; do
		same '' "$(git -C "$REPO" diff-tree -r --diff-filter=D --name-only "$tip^" "$tip")"
	done
	on_host add -A
	on_host commit -qm 'what is there'
	on_host merge -q -m together "$(ref_of a diverged)"
	same together "$(inside 'git log -1 --format=%s')"
	same '' "$(inside 'git status --porcelain')"
}

# The refs inside cannot be set while a command there has its lock: what the host
# has is not taken for undone by it.
command_is_busy() {
	lock_inside packed-refs
	on_host commit -q --allow-empty -m 'while it was busy'
	git -C "$REPO" branch fresh
	refuse inside 'git rev-parse -q --verify fresh'
	same 'while it was busy' "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	let_go
	same 'while it was busy' "$(inside 'git log -1 --format=%s')"
	inside 'git rev-parse -q --verify fresh'
	same 'while it was busy' "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	git -C "$REPO" branch -qd fresh
	refuse inside 'git rev-parse -q --verify fresh'
}

# Nor HEAD, from either side.
heads_are_busy() {
	lock_inside HEAD
	on_host checkout -q -b elsewhere
	inside true
	let_go
	same elsewhere "$(on_host symbolic-ref --short HEAD)"
	same elsewhere "$(inside 'git symbolic-ref --short HEAD')"
	entry=$(echo "$REPO"/.git/worktrees/a-*)
	: >"$entry/HEAD.lock"
	inside 'git checkout -q sandbox/a'
	error_says a 'git is at work'
	inside true
	rm "$entry/HEAD.lock"
	same sandbox/a "$(inside 'git symbolic-ref --short HEAD')"
	same sandbox/a "$(on_host symbolic-ref --short HEAD)"
	git -C "$REPO" branch -qD elsewhere
	inside 'git branch -qD elsewhere 2>/dev/null || true'
}

# Killed between the two writes: the refs are inside, and what was agreed on says nothing of them.
half_brought() {
	kept=$(own_git)/../refs
	run a true
	cp "$kept" "$ROOM/agreed"
	git -C "$REPO" branch passing
	git -C "$REPO" branch staying
	run a true
	cp "$kept" "$kept.next"
	cp "$ROOM/agreed" "$kept"
	kill_daemon
	git -C "$REPO" branch -qD passing
	remount
	refuse inside 'git rev-parse -q --verify passing'
	inside 'git rev-parse -q --verify staying'
	same '' "$(git -C "$REPO" for-each-ref "$(ref_of a heads/passing)" "$(ref_of a heads/staying)")"
	[ ! -e "$kept.next" ]
	git -C "$REPO" branch -qD staying
}

# What could not be brought over before the daemon ended in order is still
# looked for when the sandbox goes.
late_commit() {
	box l
	on=$REPO/.git/refs/heads/sandbox/l.lock
	: >"$on"
	run l sh -ec 'echo late >late; git add late; git commit -qm late'
	error_says l 'cannot move'
	unmount
	rm "$on"
	remount
	teardown l
	same late "$(git -C "$REPO" log -1 --format=%s sandbox/l)"
	git -C "$REPO" branch -qD sandbox/l
}

# Killed while it had the locks inside.
half_locked() {
	kill_daemon
	for name in HEAD index packed-refs; do
		: >"$(own_git)/$name.sandboxfs"
		ln "$(own_git)/$name.sandboxfs" "$(own_git)/$name.lock"
	done
	remount
	inside 'echo locked >locked; git add locked; git commit -qm locked; git checkout -q -b other
		git checkout -q -; git branch -D other'
	same locked "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
}

both_committed() {
	id=$("$TOOL" result "$MNT/a/ctl/spawn" sh -c \
		'echo i >c-i; until [ -e go ]; do :; done; rm go; git add c-i; git commit -qm "from inside"')
	echo h >"$MNT/a/c-h"
	on_host add c-h
	on_host commit -qm 'from the host'
	: >"$MNT/a/go"
	like '0 exited*' "$(cat "$MNT/a/ctl/jobs/$id/wait")"
	error_says a 'moved on both sides'
	grep -q '"git".*moved on both sides' "$MNT/a/ctl/events"
	same 'from the host' "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	same 'from inside' "$(git -C "$REPO" log -1 --format=%s "$(ref_of a diverged)")"
	same 'from inside' "$(inside 'git log -1 --format=%s')"
	same 'from the host' "$(inside 'git log -1 --format=%s host/sandbox/a')"
	on_host add -A
	on_host commit -qm 'what is there'
	on_host merge -q -m together "$(ref_of a diverged)"
	same together "$(inside 'git log -1 --format=%s')"
	same '' "$(inside 'git status --porcelain')"
	refuse inside 'git rev-parse -q --verify host/sandbox/a'
	refuse git -C "$REPO" rev-parse -q --verify "$(ref_of a diverged)"
}

at_once() {
	before=$(git -C "$REPO" rev-list --count sandbox/a)
	for i in 1 2 3 4; do
		timeout 60 "$TOOL" exec "$MNT/a/ctl/exec" sh -c "until echo $i >p-$i && git add p-$i &&
				git commit -q --allow-empty -m p-$i; do :; done" 2>/dev/null &
	done
	wait
	inside true
	same $((before + 4)) "$(git -C "$REPO" rev-list --count sandbox/a)"
	# A commit of git's may drop what another has added meanwhile: it reads
	# the index before it has the lock.
	same '' "$(on_host status --porcelain | grep -v '^?? p-[1-4]$')"
	on_host clean -qf
}

killed() {
	"$TOOL" result "$MNT/a/ctl/spawn" \
		sh -c "echo k >k; git add k; git commit -qm killed; touch done; exec sleep $LONG"
	until [ -e "$MNT/a/done" ]; do tick; done
	kill_daemon
	same '' "$(git -C "$REPO" log --format=%s --grep '^killed$' sandbox/a)"
	fusermount3 -u "$MNT" 2>/dev/null || true
	remount
	same killed "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	same '?? done' "$(on_host status --porcelain)"
	same killed "$(inside 'git log -1 --format=%s')"
	inside 'rm done'
}

# --- hostile repositories ----------------------------------------------------------------

# not_taken WORDS SCRIPT: what SCRIPT leaves is refused with WORDS, and the branch stays.
not_taken() {
	before=$(tip "$REPO" sandbox/a)
	inside "git rev-parse HEAD >/tmp/x; $2"
	error_says a "$1"
	same "$before" "$(tip "$REPO" sandbox/a)"
	timeout 60 git -C "$MNT/a" status >/dev/null
	inside "git update-ref --no-deref refs/heads/sandbox/a $before; git reset -q"
	same "$before" "$(tip "$REPO" sandbox/a)"
	git -C "$REPO" fsck --no-progress --no-dangling
}

bad_tree() {
	not_taken 'not well-formed' 'b=$(echo x | git hash-object -w --stdin)
		t=$(printf "100755 blob %s\t.git\n" $b | git mktree)
		git update-ref refs/heads/sandbox/a $(git commit-tree -p HEAD -m bad $t)'
}

missing_object() {
	not_taken 'missing' \
		't=$(printf "100644 blob %s\tx\n" 1234567812345678123456781234567812345678 | git mktree --missing)
		git update-ref refs/heads/sandbox/a $(git commit-tree -p HEAD -m bad $t)'
}

damaged_object() {
	not_taken 'damaged' \
		'c=$(git commit-tree -p HEAD -m bad HEAD^{tree}); git update-ref refs/heads/sandbox/a $c
		f=$(git rev-parse --git-dir)/objects/$(echo $c | cut -c1-2)/$(echo $c | cut -c3-); chmod 644 $f
		echo junk >$f'
}

something_else() {
	not_taken 'not well-formed' 'b=$(git ls-tree -r HEAD | sed -n "1s/.* blob \([0-9a-f]*\).*/\1/p")
		c=$(git cat-file commit HEAD | sed "s/^tree .*/tree $b/" |
			git hash-object -t commit -w --stdin --literally)
		git update-ref refs/heads/sandbox/a $c'
	not_taken 'not well-formed' 'b=$(git ls-tree -r HEAD | sed -n "1s/.* blob \([0-9a-f]*\).*/\1/p")
		cd $(git rev-parse --git-dir)/refs/heads; mkdir -p sandbox; echo $b >sandbox/a'
}

links_and_fifos() {
	tip=$(tip "$REPO" sandbox/a)
	before=$(cat "$REPO/.git/worktrees/a-"*/HEAD)
	inside 'cd $(git rev-parse --git-dir); mv HEAD H; mkfifo HEAD; mv index I; ln -s /etc/passwd index'
	timeout 60 git -C "$MNT/a" status >/dev/null
	same "$before" "$(cat "$REPO/.git/worktrees/a-"*/HEAD)"
	run a sh -c "cd $(own_git); rm HEAD index; mv H HEAD; mv I index; mv refs R; ln -s $MNT/b refs"
	timeout 60 git -C "$MNT/a" status >/dev/null
	run a sh -c "cd $(own_git); rm refs; mv R refs"
	same "$tip" "$(inside 'git rev-parse HEAD')"
}

gc_of_the_source() {
	inside 'echo g >g; git add g; git commit -qm gc; echo staged >>g; git add g'
	git -C "$REPO" gc -q --prune=now
	git -C "$REPO" fsck --no-progress --no-dangling
	inside 'git -c core.commitGraph=false fsck --no-progress --no-dangling
		git diff --cached | grep -q staged; git commit -qm after'
	git -C "$REPO" worktree list | grep "a-.*locked"
}

packed_inside() {
	inside 'for i in 1 2 3 4 5; do seq 1 $((i * 500)) >big; git add big; git commit -qm "big $i"; done
		git gc -q; git repack -qadf'
	same 'big 5' "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	inside 'b=$(seq 1 4000 | git hash-object -w --stdin)
		t=$(printf "100644 blob %s\tp\n" $b | git mktree)
		c=$(git commit-tree -p HEAD -m packed $t); git update-ref refs/heads/packed $c; git repack -qadf
		git prune-packed
		git update-ref refs/heads/sandbox/a $c; git branch -D packed; git reset -q --hard'
	same packed "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	git -C "$REPO" fsck --no-progress --no-dangling
}

last_words() {
	"$TOOL" result "$MNT/b/ctl/spawn" \
		sh -c "echo l >l; git add l; git commit -qm 'last words'; touch done; exec sleep $LONG"
	until [ -e "$MNT/b/done" ]; do tick; done
	teardown b
	same 'last words' "$(git -C "$REPO" log -1 --format=%s sandbox/b)"
	git -C "$REPO" branch -qD sandbox/b
}

# The source cannot take the commits: the teardown is refused once, with
# all as it was, and then it is not.
cannot_be_taken() {
	box c d
	: >"$REPO/.git/refs/heads/sandbox/c.lock"
	: >"$REPO/.git/refs/heads/sandbox/d.lock"
	for name in c d; do
		run $name sh -ec 'echo 1 >f; git add f; git commit -qm behind'
		expect EBUSY rmdir "$MNT/$name"
		like '*committed inside*lock*' "$(cat "$MNT/ctl/error")"
		same 1 "$(run $name cat f)"
	done
	rm "$REPO/.git/refs/heads/sandbox/c.lock"
	expect 0 rmdir "$MNT/c"
	expect 0 rmdir "$MNT/d"
	rm "$REPO/.git/refs/heads/sandbox/d.lock"
	teardown d
	same behind "$(git -C "$REPO" log -1 --format=%s sandbox/c)"
	git -C "$REPO" branch -qD sandbox/c
	git -C "$REPO" branch -qD sandbox/d 2>/dev/null || true
}

# A name that is none of a ref, and a repository that is not root's.
odd_name() {
	echo '{"name":"a..b.lock","branch":"odd"}' >"$MNT/ctl/create"
	run a..b.lock sh -c 'git checkout -qb mine; echo x >x; git add x; git commit -qm odd'
	same odd "$(git -C "$REPO" for-each-ref --format='%(subject)' refs/sandboxfs | grep odd)"
	same '' "$(cat "$MNT/a..b.lock/ctl/error")"
	teardown a..b.lock
	git -C "$REPO" branch -qD odd 2>/dev/null || true
}

without_walls() {
	unmount
	mount_repo isolation=none
	box c
	run c sh -c 'echo c >c; git add c; git commit -qm "without walls"'
	same 'without walls' "$(git -C "$REPO" log -1 --format=%s sandbox/c)"
	git -C "$MNT/c" commit -q --allow-empty -m 'by the host'
	same 'by the host' "$(run c git log -1 --format=%s)"
	teardown c
	git -C "$REPO" branch -qD sandbox/c
	unmount
	mount_repo
}

owned() {
	unmount
	new_repo "$ROOM/other"
	chown -R games "$ROOM/other"
	for path in "$ROOM/other" "$ROOM/other/.git" "$ROOM/other/.git/"; do
		git config --global --add safe.directory "$path"
	done
	mount_fs "$ROOM/other"
	box a
	inside 'echo x >x; git add x; git commit -qm x; git checkout -qb side
		git commit -q --allow-empty -m y'
	same x "$(git -C "$ROOM/other" log -1 --format=%s sandbox/a)"
	git init -q --bare "$ROOM/bare.git"
	git -C "$ROOM/other" config remote.origin.url "$ROOM/bare.git"
	git -C "$ROOM/other" config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*'
	chown games "$ROOM/other/.git/config"
	echo >"$MNT/a/ctl/push"
	same x "$(git -C "$ROOM/other" log -1 --format=%s origin/sandbox/a)"
	same '' "$(find "$ROOM/other/.git" ! -user games ! -path '*/worktrees/*/index')"
	teardown a
	unmount
	mount_repo
}

claim "mounting" mount_repo
claim "mkdir" box a b
claim "add, commit, log, status, diff" commits
claim "branch, checkout, merge" branches_and_merges
claim "rebase" rebases
claim "stash" stashes
claim "stash: each entry" stash_list
claim "commits on a detached HEAD" detached
claim "more branches than the source takes: those that are there stay, and it is told" many_branches
claim "a name that is used again leaves what it led to before" same_name
claim "what was kept by name comes to be kept by id" former_refs
claim "branches that are called diverged go when they are removed" called_diverged
claim "the source's objects are borrowed, its refs are seen" borrows
claim "the source's config, hooks, refs and objects cannot be written, nor read but for objects" \
	unreachable
claim "policy says so" policy
claim "other branches of the source stay where they are" other_branches
claim "planted: hooks" hooks
claim "planted: settings that name programs" settings
claim "planted: attributes with filters" attributes
claim "planted: another .git in the root" own_dotgit
claim "planted: a .git below the root, a gitlink, a submodule" nested_dotgit
claim "planted: alternates and commondir" borrowed_elsewhere
claim "planted: with nested_git=shared it would have run" shown_when_shared
claim "add, commit and checkout by the host are what the next command sees" from_the_host
claim "add, reset and checkout inside are what the host sees" to_the_host
claim "a branch of the sandbox's own: the host stands on its commit, and may go on from there" \
	own_branches
claim "files staged on both sides are staged on both" both_staged
claim "what the host stages meanwhile stays staged" staged_meanwhile
claim "what a lock of host git keeps out comes with the next command" host_is_busy
claim "locks of a git that was killed inside are gone" left_locked
claim "so are those that it has left just before the next command" no_lock_is_left
claim "a lock of a command that runs stays, and a snapshot does not pass by it" held_locked
claim "a commit of the host comes inside with its index, or not yet" index_comes_along
claim "what a lock of a command keeps out is not taken back outside, and comes with the next" \
	command_is_busy
claim "what a lock of HEAD keeps out is not taken back either, from either side" heads_are_busy
claim "a daemon killed while it set refs inside: none is taken for a command's own" half_brought
claim "what a lock kept out until the daemon ended is on the branch when the sandbox goes" \
	late_commit
claim "a daemon killed while it had the locks inside" half_locked
claim "the branch moved on both sides: neither is lost, it is told, and a merge ends it" \
	both_committed
claim "commands that commit at once" at_once
claim "a daemon killed before it brought a commit over" killed
claim "objects in packs come over" packed_inside
claim "git gc and fsck in the source lose nothing" gc_of_the_source
claim "refused: a tree with .git in it" bad_tree
claim "refused: a commit whose objects are missing" missing_object
claim "refused: a damaged object" damaged_object
claim "refused: a commit whose tree is a file, a branch that is one" something_else
claim "links and FIFOs in place of git's files hold nobody up" links_and_fifos
claim "what a command that is killed by the teardown had committed is on the branch" last_words
claim "a teardown that would lose commits is refused once" cannot_be_taken
teardown a
claim "a name that git would not have" odd_name
claim "both ways without isolation" without_walls
[ "$(id -u)" != 0 ] || claim "what root brings over belongs to the repository's owner" owned
git -C "$REPO" branch -qD sandbox/a
git -C "$REPO" for-each-ref --format='%(refname)' refs/sandboxfs |
	while read -r ref; do git -C "$REPO" update-ref -d "$ref"; done
git -C "$REPO" tag -d late >/dev/null
finish
