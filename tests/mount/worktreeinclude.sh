#!/bin/sh
. "$TESTS/lib/mount.sh"
# .worktreeinclude: ignored but needed files of the source are in a new sandbox, and nothing else.
SRC=$REPO

make_source() {
	new_repo
	printf '%s\n' '*.o' '/.env' 'node_modules/' '/cache/' 'secret*' 'big/' '.venv/' >"$SRC/.gitignore"
	printf 'forced\n' >"$SRC/kept.o"
	git -C "$SRC" add .gitignore
	git -C "$SRC" add -f kept.o
	git -C "$SRC" commit -qm ignore
	printf 'KEY=1\n' >"$SRC/.env"
	chmod 600 "$SRC/.env"
	touch -d @1000000 "$SRC/.env"
	mkdir -p "$SRC/node_modules/p/bin" "$SRC/cache" "$SRC/src/node_modules"
	printf '#!/bin/sh\necho ran\n' >"$SRC/node_modules/p/bin/run"
	chmod 755 "$SRC/node_modules/p/bin/run"
	ln -s p/bin/run "$SRC/node_modules/run"
	ln -s ../src/main.c "$SRC/node_modules/within"
	ln -s ../../outside "$SRC/node_modules/out"
	ln -s /etc/passwd "$SRC/node_modules/absolute"
	ln "$SRC/node_modules/p/bin/run" "$SRC/node_modules/again"
	chmod 555 "$SRC/node_modules/p/bin"
	touch -d @2000000 "$SRC/node_modules/p"
	mkfifo "$SRC/node_modules/pipe"
	echo x >"$SRC/src/node_modules/odd
name"
	echo x >"$SRC/cache/x.o"
	echo untracked >"$SRC/untracked"
	echo s >"$SRC/secret"
}

patterns() {
	printf '%s\n' "$@" >"$SRC/.worktreeinclude"
	# It is not in the commit: a file of the user's own is enough.
	grep -q worktreeinclude "$SRC/.git/info/exclude" ||
		echo .worktreeinclude >>"$SRC/.git/info/exclude"
}

clean() {
	same '' "$(git -C "$MNT/$1" status --porcelain)"
	same '' "$(run "$1" git status --porcelain)"
}

info() {
	"$TOOL" json "$2" <"$MNT/$1/ctl/info"
}

nothing_without() {
	box none
	expect ENOENT stat "$MNT/none/.env"
	refuse info none included
	clean none
	teardown none
}

brings() {
	patterns .env node_modules '*.o' untracked README.md
	box a
	clean a
	same KEY=1 "$(cat "$MNT/a/.env")"
	same 600 "$(stat -c %a "$MNT/a/.env")"
	same 1000000.000000000 "$("$TOOL" stat "$MNT/a/.env" mtime)"
	same 2000000.000000000 "$("$TOOL" stat "$MNT/a/node_modules/p" mtime)"
	same 555 "$(stat -c %a "$MNT/a/node_modules/p/bin")"
	same ran "$(run a node_modules/run)"
	same x "$(run a cat 'src/node_modules/odd
name')"
	same x "$(cat "$MNT/a/cache/x.o")"
	same "$(stat -c %i "$MNT/a/node_modules/again")" "$(stat -c %i "$MNT/a/node_modules/p/bin/run")"
	same "../src/main.c" "$(readlink "$MNT/a/node_modules/within")"
	same 7 "$(info a included)"
	same 3 "$(info a skipped)"
}

leaves() {
	for path in secret untracked node_modules/out node_modules/absolute node_modules/pipe \
		.worktreeinclude; do
		expect ENOENT lstat "$MNT/a/$path"
	done
	same "$(git -C "$SRC" show HEAD:README.md)" "$(cat "$MNT/a/README.md")"
}

apart() {
	echo changed >"$MNT/a/.env"
	run a sh -c 'echo changed >>node_modules/run'
	same KEY=1 "$(cat "$SRC/.env")"
	same 2 "$(wc -l <"$SRC/node_modules/p/bin/run")"
	clean a
	chmod -R u+w "$MNT/a/node_modules"
	teardown a
}

# What git says of the source is what is brought.
as_git_says() {
	mkdir -p "$SRC/d/e/cache" "$SRC/d/logs" "$SRC/.venv/lib"
	for f in d/e/a.o d/e/cache/y d/logs/1.log d/logs/2.log d/secret.txt d/e/secretx d/plain \
		.venv/lib/m.py big.o; do
		echo "$f" >"$SRC/$f"
	done
	printf '*.log\n!2.log\nplain\n' >"$SRC/d/.gitignore"
	printf '*\n' >"$SRC/.venv/.gitignore"
	git -C "$SRC" add d/.gitignore
	git -C "$SRC" commit -qm more
	i=0
	for set in '*' '*.o' '/d/' 'd/**/a.o' '*.log secret* !secretx' '.venv cache' '/d/e/* !/d/e/a.o' \
		'[a-d]* !d'; do
		i=$((i + 1))
		# shellcheck disable=SC2086
		(set -f && patterns $set)
		(cd "$SRC" && git ls-files -oi --exclude-standard | sort >"$ROOM/ignored" &&
			git ls-files -oi --exclude-from=.worktreeinclude | sort >"$ROOM/named")
		comm -12 "$ROOM/ignored" "$ROOM/named" | grep -v -e /out$ -e /absolute$ -e pipe$ >"$ROOM/want"
		box "s$i"
		(cd "$MNT/s$i" && git ls-files -o | sort >"$ROOM/have")
		diff "$ROOM/want" "$ROOM/have"
		clean "s$i"
		teardown "s$i"
	done
	git -C "$SRC" reset -q --hard HEAD~1
	rm -rf "$SRC/d" "$SRC/.venv" "$SRC/big.o"
}

# The commit decides what is ignored in the sandbox, the user's own settings count on both sides.
other_rules() {
	patterns new secret global
	echo new >>"$SRC/.gitignore"
	echo n >"$SRC/new"
	echo g >"$SRC/global"
	mkdir -p "$ROOM/home/.config/git"
	echo global >"$ROOM/home/.config/git/ignore"
	box r
	expect ENOENT stat "$MNT/r/new"
	same s "$(cat "$MNT/r/secret")"
	same g "$(cat "$MNT/r/global")"
	clean r
	teardown r
	git -C "$SRC" checkout -q .gitignore
	rm "$SRC/new" "$SRC/global" "$ROOM/home/.config/git/ignore"
}

# Neither the commit's files nor those that the source has begun to track are replaced or brought.
never_tracked() {
	patterns '*.o' secret kept.o
	echo local >"$SRC/kept.o"
	git -C "$SRC" add -f secret
	box t
	same forced "$(cat "$MNT/t/kept.o")"
	expect ENOENT stat "$MNT/t/secret"
	clean t
	teardown t
	git -C "$SRC" rm -q --cached secret
	git -C "$SRC" checkout -q kept.o
	# A file where the commit has a directory, and a directory where it has a file.
	git -C "$SRC" checkout -q -b shapes
	mkdir "$SRC/secretdir"
	echo x >"$SRC/secretdir/x"
	echo x >"$SRC/secretfile"
	git -C "$SRC" add -f secretdir secretfile
	git -C "$SRC" commit -qm shapes
	git -C "$SRC" checkout -q main
	echo file >"$SRC/secretdir"
	mkdir "$SRC/secretfile"
	echo x >"$SRC/secretfile/y"
	patterns secret secretdir secretfile
	printf '{"name":"u","base":"shapes"}' >"$MNT/ctl/create"
	same x "$(cat "$MNT/u/secretdir/x")"
	same x "$(cat "$MNT/u/secretfile")"
	same 1 "$(info u included)"
	clean u
	teardown u
	rm -r "$SRC/secretdir" "$SRC/secretfile"
	git -C "$SRC" branch -q -D shapes
}

submodules() {
	new_repo "$ROOM/sub"
	git -C "$SRC" -c protocol.file.allow=always submodule --quiet add "$ROOM/sub" sub
	git -C "$SRC" commit -qm sub
	echo o >"$SRC/sub/x.o"
	git init -q "$SRC/cache/clone"
	echo c >"$SRC/cache/clone/c"
	patterns '*.o' cache
	box m
	expect ENOENT stat "$MNT/m/sub/x.o"
	same c "$(cat "$MNT/m/cache/clone/c")"
	expect ENOENT stat "$MNT/m/cache/clone/.git"
	clean m
	teardown m
	git -C "$SRC" reset -q --hard HEAD~1
	rm -rf "$SRC/sub" "$ROOM/sub" "$SRC/.git/modules" "$SRC/cache/clone"
}

unusable() {
	rm "$SRC/.worktreeinclude"
	ln -s .gitignore "$SRC/.worktreeinclude"
	refuse mkdir "$MNT/l"
	like '*not a plain file*' "$(cat "$MNT/ctl/error")"
	rm "$SRC/.worktreeinclude"
	mkfifo "$SRC/.worktreeinclude"
	code=0
	timeout 60 mkdir "$MNT/l" || code=$?
	same 1 "$code"
	rm "$SRC/.worktreeinclude"
	patterns secret
	git -C "$SRC" update-index --split-index
	refuse mkdir "$MNT/l"
	like '*no-split-index*' "$(cat "$MNT/ctl/error")"
	git -C "$SRC" update-index --no-split-index
	box l
	same s "$(cat "$MNT/l/secret")"
	teardown l
	source_is_clean
}

# Directories are replaced by links out of the source while they are copied.
changing() {
	patterns big
	mkdir -p "$SRC/big/a" "$SRC/big/b" "$ROOM/elsewhere"
	for i in $(seq 200); do
		echo "$i" >"$SRC/big/a/$i"
		echo "$i" >"$SRC/big/b/$i"
		echo leaked >"$ROOM/elsewhere/$i"
	done
	(
		while [ ! -e "$ROOM/stop" ]; do
			mv "$SRC/big/a" "$SRC/big/c"
			ln -s "$ROOM/elsewhere" "$SRC/big/a"
			rm "$SRC/big/a"
			mv "$SRC/big/c" "$SRC/big/a"
		done
	) &
	for i in $(seq 12); do
		mkdir "$MNT/v$i"
		refuse grep -rq leaked "$MNT/v$i"
		same 200 "$(find "$MNT/v$i/big/b" -type f | wc -l)"
		teardown "v$i"
	done
	touch "$ROOM/stop"
	wait
	rm -rf "$SRC/big"
}

# A killed daemon leaves nothing of a create that was not finished, nor does one that is cancelled.
broken_off() {
	mkdir -p "$SRC/big"
	for i in $(seq 40); do
		mkdir "$SRC/big/$i"
		for j in $(seq 50); do
			head -c 20000 /dev/zero >"$SRC/big/$i/$j"
		done
	done
	for wait in 0.01 0.02 0.04; do
		mkdir "$MNT/k" &
		sleep $wait
		kill -INT $! 2>/dev/null || true
		wait $! || true
		[ ! -d "$MNT/k" ] || teardown k
	done
	for wait in 0.01 0.03; do
		mkdir "$MNT/k" 2>/dev/null &
		sleep $wait
		kill_daemon
		fusermount3 -uz "$MNT" 2>/dev/null || true
		wait $! || true
		remount
		[ ! -d "$MNT/k" ] || teardown k
	done
	source_is_clean
	same '' "$(find "$STATE/trees" "$STATE/trash" -name 40)"
	rm -rf "$SRC/big"
}

claim "a source with ignored files" make_source
for options in '' cow=off; do
	claim "mounting ${options:-with layers if they are to be had}" mount_repo "$options"
	rm -f "$SRC/.worktreeinclude"
	claim "without the file nothing is brought" nothing_without
	claim "with it what it names is, with modes, times and links" brings
	claim "what it does not name is not, nor links that lead out, nor FIFOs" leaves
	claim "the sandbox has copies of its own" apart
	claim "all kinds of patterns: as git says" as_git_says
	claim "what is not ignored in the sandbox is not brought" other_rules
	claim "what is tracked is not brought" never_tracked
	claim "submodules are not gone into, repositories come without .git" submodules
	claim "refused: a link, a FIFO, an index that cannot be read" unusable
	claim "the source changes meanwhile" changing
	rm -f "$ROOM/stop"
	claim "cancelled and killed creates leave nothing" broken_off
	claim "unmounting" unmount
done
claim "mounting again" mount_repo
finish
