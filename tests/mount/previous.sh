#!/bin/sh
. "$TESTS/lib/mount.sh"
# What a reset or a restore takes away comes back, to the byte.
CTL=$MNT/a/ctl
# A look is not to write an index.
export GIT_OPTIONAL_LOCKS=0

inside() {
	run a sh -ec "$1"
}

# All that a command sees: kinds, permissions, times, links, contents.
listing() {
	inside 'find . -mindepth 1 ! -path ./.git \
			\( -type d -printf "%P d %m %T@\n" -o -printf "%P %y %m %T@ %n %l\n" \) |
			grep -v "^[^ ]*sub/.git/" | sort
		find . -type f ! -path ./.git -exec sha1sum {} + | sort -k 2'
}

# listed FILE: as it was when FILE was written, with nothing of it from a cache.
listed() {
	listing >"$ROOM/now"
	diff "$1" "$ROOM/now" || fail "it is not as it was"
}

previous() {
	echo previous >"$CTL/restore" || fail "$(cat "$CTL/error")"
}

reset() {
	echo 1 >"$CTL/reset" || fail "$(cat "$CTL/error")"
}

begin() {
	printf '* text=auto\n' >"$REPO/.gitattributes"
	printf 'node_modules\n*.o\n' >"$REPO/.gitignore"
	mkdir -p "$REPO/d"
	printf 'one\ntwo\n' >"$REPO/d/text"
	printf 'x\n' >"$REPO/d/tool"
	git -C "$REPO" add -A
	git -C "$REPO" commit -qm attributes
	box a
}

make_work() {
	inside '
		umask 022
		printf "one\r\ntwo\r\n" >d/text
		printf "new\r\n" >d/crlf
		echo secret >key; chmod 600 key
		echo tool >d/tool; chmod 750 d/tool
		echo locked >locked; chmod 444 locked; touch -d "2001-02-03 04:05:06.789" locked
		mkdir -p node_modules/p/empty node_modules/closed
		echo n >node_modules/p/n; ln node_modules/p/n node_modules/linked; ln -s p node_modules/link
		echo c >node_modules/closed/c; chmod 700 node_modules/closed; chmod 400 node_modules/closed/c
		touch -d 2005-05-05 node_modules/p
		mkdir -p odd/inner .GIT "git~1"; echo g >.GIT/config; echo t >"git~1/t"; echo o >odd/inner/.Git
		mkdir empty; mkfifo odd/pipe
		echo object >out.o
		rm Makefile; rm src/main.c; ln -s nowhere Makefile
		git init -q sub; cd sub; echo s >s; git add s; git commit -qm s; echo unsaved >>s'
	git clone -q "$REPO" "$MNT/a/vendor"
	echo edited >>"$MNT/a/vendor/README.md"
	git -C "$MNT/a/vendor" status --porcelain >"$ROOM/vendor"
	same ' M README.md' "$(cat "$ROOM/vendor")"
}

was_taken() {
	for f in key node_modules out.o .GIT 'git~1' odd empty sub vendor d/crlf; do
		refuse inside "test -e '$f'"
	done
	same '' "$(git -C "$MNT/a" status --porcelain --ignored)"
}

comes_back() {
	make_work
	drop_caches
	listing >"$ROOM/was"
	reset
	was_taken
	listing >"$ROOM/base"
	previous
	listed "$ROOM/was"
	drop_caches
	same "$(cat "$ROOM/vendor")" "$(git -C "$MNT/a/vendor" status --porcelain)"
	same "$(git -C "$REPO" rev-parse HEAD)" "$(git -C "$MNT/a/vendor" rev-parse HEAD)"
	same ' M s' "$(inside 'git --no-optional-locks -C sub status --porcelain')"
	same s "$(inside 'git -C sub log --format=%s')"
	git -C "$MNT/a/vendor" fsck
}

and_back_again() {
	previous
	was_taken
	previous
	listed "$ROOM/was"
	same "$(cat "$ROOM/vendor")" "$(git -C "$MNT/a/vendor" status --porcelain)"
}

# Files that the restore had left alone, and that were changed or removed since.
changed_since() {
	reset
	echo k2 >"$MNT/a/key"
	mkdir "$MNT/a/node_modules"
	echo other >"$MNT/a/node_modules/other"
	echo sub >"$MNT/a/sub"
	listing >"$ROOM/between"
	previous
	listed "$ROOM/was"
	previous
	listed "$ROOM/between"
	previous
}

# A restore to a snapshot leaves what is ignored; permissions are no part of a commit.
to_a_snapshot() {
	echo snap >"$CTL/snapshot"
	id=$(cat "$CTL/snapshot")
	inside 'echo more >>key; printf "1\r\n2\r\n" >d/text; chmod 640 d/text; rm d/tool'
	listing >"$ROOM/later"
	echo "$id" >"$CTL/restore"
	same 600 "$(stat -c %a "$MNT/a/key")"
	same secret "$(cat "$MNT/a/key")"
	inside 'test -e node_modules/p/n'
	previous
	listed "$ROOM/later"
	inside 'printf "same\n" >src/lines; printf "new\n" >src/new'
	echo plain >"$CTL/snapshot"
	id=$(cat "$CTL/snapshot")
	plain=$(inside 'stat -c "%a %n" README.md .gitignore src/new src/lines; sha1sum src/new src/lines')
	# What the restore did not touch, and somebody else did.
	echo "$id" >"$CTL/restore"
	inside 'chmod 644 locked; echo gone >locked; printf "new\n" >d/crlf; chmod 640 README.md
		chmod 700 .gitignore
		chmod 600 src/new; printf "more\r\n" >src/new; printf "same\r\n" >src/lines'
	previous
	same "$plain" \
		"$(inside 'stat -c "%a %n" README.md .gitignore src/new src/lines; sha1sum src/new src/lines')"
	same locked "$(cat "$MNT/a/locked")"
	same 444 "$(stat -c %a "$MNT/a/locked")"
	same 'new\r' "$(inside 'cat d/crlf | sed "s/\r/\\\\r/"')"
}

# killed ROUND: the daemon dies in the midst of it.
outlives_kills() {
	inside 'mkdir -p many/ignored; cd many
		for i in $(seq 400); do echo $i >$i; echo $i >$i.o; chmod 600 $i; done'
	listing >"$ROOM/full"
	for round in 1 2 3 4 5 6; do
		(echo 1 >"$CTL/reset") 2>/dev/null &
		writer=$!
		sleep "0.$((round * 37 % 30))"
		kill_daemon
		wait $writer || :
		remount
		# One or the other; either way the whole is there.
		if inside 'test -e many/1.o'; then
			listed "$ROOM/full"
		else
			previous
			listed "$ROOM/full"
		fi
		refuse inside 'test -e .sandboxfs-restore'
	done
}

# Lines that were acknowledged while it ran are in the tree or come back.
appending() {
	box b
	echo 'log*' >"$MNT/b/.gitignore"
	for i in $(seq 300); do echo "$i" >"$MNT/b/f$i"; done
	echo start >"$MNT/b/kept.log"
	echo start >"$MNT/b/opened.log"
	python3 - "$MNT/b" "$ROOM" <<-'END' &
		import sys, os, time
		tree, room = sys.argv[1:]
		kept = open(tree + "/kept.log", "ab", buffering=0)
		acked = [open(room + "/acked." + n, "wb", buffering=0) for n in ("kept", "opened")]
		i = 0
		while not os.path.exists(room + "/enough"):
		    line = b"line %d\n" % i
		    try:
		        kept.write(line)
		        acked[0].write(line)
		    except OSError:
		        kept = open(tree + "/kept.log", "ab", buffering=0)
		    with open(tree + "/opened.log", "ab", buffering=0) as f:
		        f.write(line)
		    acked[1].write(line)
		    i += 1
	END
	writer=$!
	until [ -s "$ROOM/acked.opened" ]; do sleep 0.05; done
	before=$(wc -l <"$ROOM/acked.opened")
	echo 1 >"$MNT/b/ctl/reset"
	same 1 "$(($(wc -l <"$ROOM/acked.opened") > before))"
	: >"$ROOM/enough"
	wait "$writer"
	cat "$MNT/b/kept.log" >"$ROOM/have.kept" 2>/dev/null || :
	cat "$MNT/b/opened.log" >"$ROOM/have.opened" 2>/dev/null || :
	echo previous >"$MNT/b/ctl/restore"
	cat "$MNT/b/kept.log" >>"$ROOM/have.kept"
	cat "$MNT/b/opened.log" >>"$ROOM/have.opened"
	for n in kept opened; do
		sort -u "$ROOM/have.$n" >"$ROOM/have"
		sort -u "$ROOM/acked.$n" | comm -13 "$ROOM/have" - >"$ROOM/lost"
		same '' "$(head -n 3 "$ROOM/lost")"
	done
	rm "$ROOM/enough"
}

# Repositories in the tree, one by a command and one by the host, go with a snapshot.
# "left" is the snapshot's and ignored "i.o" is nobody's: only "gone" of the
# three names of one file is taken away.
other_names() {
	inside 'echo same >left; echo first >gone'
	echo names >"$CTL/snapshot"
	names_id=$(cat "$CTL/snapshot")
	inside 'echo same >gone; ln -f gone left; ln gone i.o; echo two >also; ln also also2
		echo two >also2'
	echo "$names_id" >"$CTL/restore"
	same "first same same" "$(inside 'echo $(cat gone left i.o)')"
	inside 'echo later >left'
	echo more >>"$MNT/a/i.o"
	previous
	same "same same" "$(inside 'echo $(cat gone left)')"
	same "two two" "$(inside 'echo $(cat also also2)')"
	same "later more" "$(inside 'echo $(cat i.o)')"
	inside 'rm -f left gone i.o also also2'
}

with_repositories() {
	box c
	id0=$(echo empty >"$MNT/c/ctl/snapshot" && cat "$MNT/c/ctl/snapshot")
	run c sh -ec 'mkdir in; cd in; git init -q own; cd own; echo s >s; git add s; git commit -qm s
		echo t >>s; chmod 600 s'
	git clone -q "$REPO" "$MNT/c/vendor"
	echo edited >>"$MNT/c/vendor/README.md"
	same 'A	in/own/
A	vendor/' "$(LC_ALL=C sort "$MNT/c/ctl/changes")"
	echo with >"$MNT/c/ctl/snapshot"
	id=$(cat "$MNT/c/ctl/snapshot")
	same '' "$(git -C "$MNT/c" ls-tree --name-only HEAD | grep -xE 'in|vendor' || :)"
	run c sh -ec 'cd in/own; git commit -qam two; rm s; cd ..; mv own other'
	git -C "$MNT/c/vendor" commit -qam two
	rm -rf "$MNT/c/vendor/src"
	echo "$id" >"$MNT/c/ctl/restore"
	has_repositories c
	# What was changed since is in `previous`.
	echo previous >"$MNT/c/ctl/restore"
	same two "$(git -C "$MNT/c/vendor" log -1 --format=%s)"
	same two "$(run c git -C in/other log -1 --format=%s)"
	printf '{"name":"f","rev":"%s"}' "$id" >"$MNT/c/ctl/fork"
	has_repositories f
	rm -rf "$MNT/c/vendor"
	unmount
	remount
	echo "$id" >"$MNT/c/ctl/restore"
	has_repositories c
	printf '{"name":"g","rev":"%s"}' "$id0" >"$MNT/c/ctl/fork"
	refuse test -e "$MNT/g/vendor"
	teardown c f g
}

has_repositories() {
	drop_caches
	same ' M README.md' "$(git -C "$MNT/$1/vendor" status --porcelain)"
	same "$(git -C "$REPO" rev-parse HEAD)" "$(git -C "$MNT/$1/vendor" rev-parse HEAD)"
	git -C "$MNT/$1/vendor" fsck
	same ' M s' "$(run "$1" git -C in/own status --porcelain)"
	same 's 600' "$(run "$1" sh -c 'cd in/own; git log --format=%s; stat -c %a s' | xargs)"
}

# A file with CRs that its attributes take out is changed, or not, as git happens to look at it.
statuses() {
	git -C "$MNT/a" status --porcelain | grep -v 'd/crlf$'
}

# What only a mark needs, the source does not throw away.
collected() {
	echo staged >"$MNT/a/staged"
	git -C "$MNT/a" add staged
	echo c >"$MNT/a/committed"
	git -C "$MNT/a" add committed
	git -C "$MNT/a" commit -qm own
	was=$(git -C "$MNT/a" rev-parse HEAD)
	echo again >"$MNT/a/staged"
	git -C "$MNT/a" add staged
	statuses >"$ROOM/status"
	reset
	git -C "$REPO" reflog expire --expire=now --all
	git -C "$REPO" gc -q --prune=now
	git -C "$REPO" fsck --strict --no-dangling
	previous
	same "$was" "$(git -C "$MNT/a" rev-parse HEAD)"
	same again "$(cat "$MNT/a/staged")"
	same "$(cat "$ROOM/status")" "$(statuses)"
	same again "$(git -C "$MNT/a" show :staged)"
	git -C "$MNT/a" fsck --no-dangling
	teardown a b
	same '' "$(git -C "$REPO" for-each-ref refs/sandboxfs/marks)"
}

claim "mounting" mount_repo
claim "a sandbox" begin
claim "what reset takes away comes back to the byte" comes_back
claim "there and back again" and_back_again
claim "what came in its place since comes back as well" changed_since
claim "restore to a snapshot keeps permissions, and previous all" to_a_snapshot
claim "killed in the midst, all is there" outlives_kills
claim "no line of a log is lost while it runs" appending
claim "a snapshot has the repositories in the tree, its forks as well" with_repositories
claim "what has a name that stays is another file from then on" other_names
claim "git gc in the source takes nothing that previous needs" collected
teardown_all
git -C "$REPO" for-each-ref --format='%(refname:short)' refs/heads | grep '^sandbox/' |
	xargs -r git -C "$REPO" branch -qD
finish
