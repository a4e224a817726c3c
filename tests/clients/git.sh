#!/bin/sh
. "$TESTS/lib/client.sh"

through_the_mount() {
	same '' "$(git status --porcelain)"
	echo new >new
	echo more >>README.md
	same ' M README.md
?? new' "$(git status --porcelain)"
	git add new
	git commit -qm 'by the host'
	git stash -q
	same hello "$(cat README.md)"
	git stash pop -q
	same more "$(tail -n 1 README.md)"
	git checkout -q -- README.md
	same hello "$(cat README.md)"
	git checkout -qb topic
	git checkout -q sandbox/a
	git log --oneline | grep -q 'by the host'
	git -C "$REPO" log --oneline sandbox/a | grep -q 'by the host'
	git branch -D topic
}

inside() {
	same '' "$(run a git status --porcelain)"
	echo inside >inside
	run a git add inside
	run a git commit -qm 'by a command'
	same '' "$(git status --porcelain)"
	git log -1 --format=%s | grep -qx 'by a command'
	git -C "$REPO" log -1 --format=%s sandbox/a | grep -qx 'by a command'
	echo change >>inside
	run a git stash -q
	same inside "$(cat inside)"
	run a git stash pop -q
	same change "$(tail -n 1 inside)"
	run a git checkout -q -- inside
	same inside "$(cat inside)"
	run a git log --oneline | grep -q 'by the host'
}

reports() {
	refuse run a git checkout no-such-branch
	refuse git checkout no-such-branch
	refuse git commit -m nothing
}

out_of_reach() {
	(cd "$REPO/.git" && cat config && git for-each-ref && ls hooks) >"$ROOM/before"
	run a git config core.fsmonitor "touch $ROOM/canary"
	run a git update-ref refs/heads/main HEAD
	run a git branch -f sandbox/b HEAD
	refuse run a cat "$REPO/.git/config"
	git status >/dev/null
	(cd "$REPO/.git" && cat config && git for-each-ref refs/heads refs/tags && ls hooks) >"$ROOM/after"
	(cd "$REPO/.git" && grep -v refs/sandboxfs "$ROOM/before") | cmp - "$ROOM/after"
	refuse test -e "$ROOM/canary"
	run a git config --unset core.fsmonitor
}

begin git
claim "git status, add, commit, stash, checkout through the mount" through_the_mount
claim "git inside by exec; both sides and the source agree" inside
claim "the source's refs and configuration cannot be changed from inside" out_of_reach
claim "git reports what failed" reports
cd "$ROOM" || exit 1
claim "the branch with commits is kept at teardown" teardown a
claim "and is removed by its owner" git -C "$REPO" branch -D sandbox/a
end
