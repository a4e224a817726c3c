#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/away.sh"
# The machine is told of each change, in the order of the changes, and can do the same with that.

# changes NAME: what was told, without what was asked.
changes() {
	grep -v '^want' "$FAR/$1/log" || true
}

# told NAME LINE...: of these changes, since the last look.
told() {
	told_box=$1
	shift
	changes "$told_box" | uniq >"$ROOM/changes"
	forget_log "$told_box"
	printf '%s\n' "$@" | diff - "$ROOM/changes"
}

told_nothing() {
	changes "$1" >"$ROOM/changes"
	forget_log "$1"
	diff /dev/null "$ROOM/changes"
}

# --- one by one ----------------------------------------------------------------------------------

prepare() {
	made a
	ls "$MNT/a" "$MNT/a/src" >/dev/null
	forget_log a
}

making() {
	echo text >"$MNT/a/new"
	told a 'made new -644' 'data new -644'
	: >"$MNT/a/src/blank"
	told a 'made src/blank -644'
	mkdir -m 750 "$MNT/a/dir"
	told a 'made dir d750'
	ln -s new "$MNT/a/dir/soft"
	told a 'made dir/soft l777 new'
	expect 0 mknod "$MNT/a/fifo" f 0600
	told a 'made fifo p600'
	expect 0 bind "$MNT/a/socket"
	told a 'made socket s755'
	ln "$MNT/a/file" "$MNT/a/dir/hard"
	told a 'linked file dir/hard -644'
	brought a
	forget_log a
}

writing() {
	echo more >>"$MNT/a/new"
	told a 'data new -644'
	expect 0 write "$MNT/a/new" O_WRONLY\|O_APPEND end
	told a 'data new -644'
	expect 0 pwrite "$MNT/a/run" 3 x
	told a 'data run -755'
	expect 0 truncate "$MNT/a/run" 4
	told a 'data run -755'
	expect 0 fallocate "$MNT/a/run" plain 0 100
	told a 'data run -755'
	expect 0 copy-range "$MNT/a/run" "$MNT/a/src/main.c"
	told a 'emptied src/main.c -644' 'data src/main.c -644'
	brought a
	forget_log a
}

emptying() {
	expect 0 truncate "$MNT/a/new" 0
	told a 'emptied new -644'
	expect 0 open "$MNT/a/big" O_WRONLY\|O_TRUNC
	told a 'emptied big -644'
	same 0 "$(stat -c %s "$MNT/a/big")"
	echo x >"$MNT/a/run"
	told a 'emptied run -755' 'data run -755'
	brought a
	forget_log a
}

# The kernel does not know that the machine has made it meanwhile.
creating_what_is_there() {
	expect ENOENT stat "$MNT/a/late"
	printf late >"$FAR/a/far/late"
	refresh a late
	forget_log a
	expect EEXIST open "$MNT/a/late" O_CREAT\|O_EXCL\|O_WRONLY
	expect 0 open "$MNT/a/late" O_CREAT\|O_WRONLY
	told_nothing a
	same late "$(cat "$MNT/a/late")"
	expect 0 open "$MNT/a/late" O_CREAT\|O_TRUNC\|O_WRONLY
	told a 'emptied late -644'
	brought a
	forget_log a
}

status_changes() {
	expect 0 chmod "$MNT/a/new" 600
	told a 'status new -600'
	expect 0 utimens "$MNT/a/new" 1000000000.5 1000000001.5
	told a 'status new -600'
	touch -h -d '2001-01-01' "$MNT/a/link"
	told a 'status link l777'
	expect 0 chmod "$MNT/a/dir" 700
	told a 'status dir d700'
	expect 0 chown "$MNT/a/new" "$(id -u)" "$(id -g)"
	told_nothing a
	brought a
	forget_log a
}

moving() {
	expect 0 rename "$MNT/a/new" "$MNT/a/dir/old"
	told a 'moved new dir/old -600'
	expect 0 rename "$MNT/a/dir/old" "$MNT/a/run"
	told a 'moved dir/old run -600'
	expect 0 rename "$MNT/a/src" "$MNT/a/dir/src"
	told a 'moved src dir/src d755'
	expect 0 rename "$MNT/a/file" "$MNT/a/link" EXCHANGE
	told a 'swapped file link -644'
	expect EEXIST rename "$MNT/a/file" "$MNT/a/link" NOREPLACE
	expect ENOENT rename "$MNT/a/none" "$MNT/a/link"
	# Two names of one file: nothing happens.
	expect 0 rename "$MNT/a/link" "$MNT/a/dir/hard"
	told_nothing a
	echo y >>"$MNT/a/dir/src/main.c"
	told a 'data dir/src/main.c -644'
	brought a
	forget_log a
}

removing() {
	rm "$MNT/a/dir/hard"
	told a 'gone dir/hard -644'
	rm -f "$MNT/a/file" "$MNT/a/fifo" "$MNT/a/socket"
	told a 'gone file l777' 'gone fifo p600' 'gone socket s755'
	rmdir "$MNT/a/empty"
	told a 'gone empty d755'
	expect ENOTEMPTY rmdir "$MNT/a/dir"
	expect EISDIR unlink "$MNT/a/dir"
	expect ENOENT unlink "$MNT/a/none"
	told_nothing a
	brought a
	forget_log a
}

# Nobody but who has it open sees what is written to it.
without_a_name() {
	echo gone >"$MNT/a/gone"
	exec 7>>"$MNT/a/gone"
	rm "$MNT/a/gone"
	forget_log a
	echo more >&7
	expect 0 truncate /dev/fd/7 2
	expect 0 chmod /dev/fd/7 600
	exec 7>&-
	told_nothing a
	brought a
	forget_log a
}

# --- what must not be done on half knowledge -----------------------------------------------------

unknown_directories_stay() {
	made b
	expect ENOTEMPTY rmdir "$MNT/b/src"
	asked b 'want names src'
	mkdir "$MNT/b/other"
	expect ENOTEMPTY rename "$MNT/b/other" "$MNT/b/src/deep"
	asked b 'want names src/deep'
	rmdir "$MNT/b/empty"
	asked b 'want names empty'
	brought b
}

absent_contents_are_kept() {
	made c
	printf X | dd of="$MNT/c/file" bs=1 seek=1 conv=notrunc 2>/dev/null
	same hXllo "$(cat "$MNT/c/file")"
	mv "$MNT/c/big" "$MNT/c/src/bigger"
	ln "$MNT/c/run" "$MNT/c/ran"
	brought c
	same ran "$("$MNT/c/ran")"
}

no_room_to_note() {
	made full
	ls "$MNT/full" >/dev/null
	forget_log full
	touch "$FAR/full/full"
	for call in "write $MNT/full/file O_WRONLY more" "truncate $MNT/full/file 0" \
		"truncate $MNT/full/file 2" "mkdir $MNT/full/dir" "unlink $MNT/full/file" \
		"rmdir $MNT/full/empty" "rename $MNT/full/file $MNT/full/other" \
		"link $MNT/full/file $MNT/full/other" "symlink file $MNT/full/other" \
		"mknod $MNT/full/other f" "chmod $MNT/full/file 600" \
		"open $MNT/full/other O_CREAT|O_WRONLY" "fallocate $MNT/full/file plain 0 10"; do
		# shellcheck disable=SC2086
		expect ENOSPC $call
		error_says full 'ENOSPC: there is no room to note it'
	done
	rm "$FAR/full/full"
	told_nothing full
	brought full
}

# --- all together --------------------------------------------------------------------------------

# The machine's tree is this one's after any number of changes of any kind.
random_changes() {
	made random
	python3 - "$MNT/random" "$1" <<'END'
import os, random, stat, sys
top, seed = sys.argv[1], int(sys.argv[2])
r = random.Random(seed)

def some(kind):
    all = []
    for d, dirs, files in os.walk(top):
        names = dirs if kind == "dir" else files
        all += [os.path.join(d, n) for n in names]
    return r.choice(sorted(all)) if all else None

def fresh():
    return os.path.join(some("dir") or top, f"n{r.randrange(40)}")

# Who opens a FIFO waits for a partner.
def waits(path):
    return os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode)

def step():
    what = r.randrange(13)
    f, d, n = some("file"), some("dir"), fresh()
    if what == 0: os.mkdir(n)
    elif what == 1 and not waits(n): open(n, "a").write(str(r.random()))
    elif what == 2: os.symlink("n1", n)
    elif what == 3: os.link(f, n, follow_symlinks=False)
    elif what == 4: os.unlink(f)
    elif what == 5: os.rmdir(d)
    elif what == 6: os.rename(f, n)
    elif what == 7: os.rename(d, n)
    elif what == 8: os.truncate(f, r.randrange(3) * 5)
    elif what == 9: os.chmod(f, 0o600 + r.randrange(64))
    elif what == 10: os.utime(f, (r.randrange(10**9), r.randrange(10**9)))
    elif what == 11 and not waits(f):
        with open(f, "r+b") as o:
            o.seek(r.randrange(9))
            o.write(b"xy")
    elif what == 12: os.mkfifo(n) if r.randrange(4) == 0 else os.rename(f, some("file"))

for i in range(400):
    try:
        step()
    except OSError:
        pass
    if i % 100 == 99:
        open(top + "/ctl/sync", "w").write("1\n")
END
	brought random
	teardown random
	rm -r "$FAR/random"
}

random_seeds() {
	for seed in 1 2 3 4 5 6; do
		random_changes $seed
	done
}

# --- waiting for it ------------------------------------------------------------------------------

syncs_wait() {
	made slow
	echo new >"$MNT/slow/new"
	hold slow
	echo 1 >"$MNT/slow/ctl/sync" &
	asked slow flush
	"$TOOL" talk "$MNT/slow/new" @fsync >"$ROOM/fsynced" &
	until [ "$(grep -c flush "$FAR/slow/log")" = 2 ]; do tick; done
	[ ! -e "$FAR/slow/far/new" ]
	same new "$(timeout 60 cat "$MNT/slow/new")"
	let_go slow
	wait
	same new "$(cat "$FAR/slow/far/new")"
	python3 -c 'import os, sys
for path in sys.argv[1:]: os.fsync(os.open(path, os.O_RDONLY))' "$MNT/slow/src" "$MNT/slow"
	same 4 "$(grep -c flush "$FAR/slow/log")"
}

failed_syncs_say_so() {
	echo "121 *" >"$FAR/slow/fail"
	refuse sh -c 'echo 1 >"$1"' sh "$MNT/slow/ctl/sync"
	error_says slow 'EREMOTEIO: the played machine says'
	same EREMOTEIO "$(python3 -c 'import errno, os, sys
try: os.fsync(os.open(sys.argv[1], os.O_RDONLY))
except OSError as e: print(errno.errorcode[e.errno])' "$MNT/slow/new")"
	rm "$FAR/slow/fail"
	hold slow
	forget_log slow
	sh -c 'echo 1 >"$1"' sh "$MNT/slow/ctl/sync" &
	client=$!
	asked slow flush
	kill -9 $client
	asked slow unwant
	let_go slow
	brought slow
}

# --- what is of this machine alone ---------------------------------------------------------------

own_repositories() {
	made git
	ls "$MNT/git" >/dev/null
	forget_log git
	git -C "$MNT/git" init -q
	git -C "$MNT/git" add file run
	git -C "$MNT/git" commit -qm first
	git -C "$MNT/git/src" init -q
	told_nothing git
	same 'first' "$(git -C "$MNT/git" log --format=%s)"
	rm -rf "$MNT/git/src/.git"
	told_nothing git
	expect EXDEV rename "$MNT/git/.git/description" "$MNT/git/description"
	expect EXDEV rename "$MNT/git/file" "$MNT/git/.git/file"
	expect EXDEV link "$MNT/git/file" "$MNT/git/.git/file"
	expect 0 rename "$MNT/git/.git/description" "$MNT/git/.git/said"
	told_nothing git
	mv "$MNT/git/.git/said" "$MNT/git/said"
	told git 'made said -600' 'data said -600' 'status said -600' 'status said -644'
}

# Host git goes by no repository that a command has made.
repositories_of_the_machine() {
	machine cloned
	mkdir -p "$FAR/cloned/far/clone/.git" "$FAR/cloned/far/bare/objects" \
		"$FAR/cloned/far/bare/refs"
	echo 'ref: refs/heads/main' >"$FAR/cloned/far/bare/HEAD"
	touch "$FAR/cloned/far/clone/.git/config" "$FAR/cloned/far/bare/config"
	mkdir "$MNT/cloned"
	same '' "$(ls -A "$MNT/cloned/clone")"
	expect ENOENT stat "$MNT/cloned/clone/.git"
	expect EPERM mkdir "$MNT/cloned/clone/.git"
	error_says cloned 'a command has made .git here'
	expect ENOTEMPTY rmdir "$MNT/cloned/clone"
	error_says cloned 'a command has made .git in clone'
	same "$(id -u)" "$(stat -c %u "$MNT/cloned/bare")"
	refuse git -C "$MNT/cloned/bare" rev-parse HEAD
	refuse test "$(id -u)" = "$(stat -c %u "$MNT/cloned/bare")"
	told_nothing cloned
}

attributes_of_users() {
	expect EOPNOTSUPP setxattr "$MNT/git/file" user.a b
	expect EOPNOTSUPP getxattr "$MNT/git/file" user.sandboxfs.of
}

claim "mounting" mount_none backend=memory,user_xattr
claim "a machine" prepare
claim "what is made is told" making
claim "what is written is told" writing
claim "what is emptied is told, and not fetched before" emptying
claim "a file that was there is not told to be made" creating_what_is_there
claim "modes and times are told" status_changes
claim "what is moved and swapped is told" moving
claim "what is removed is told" removing
claim "what has no name is told to nobody" without_a_name
claim "a directory whose names are elsewhere is not taken for empty" unknown_directories_stay
claim "contents that are elsewhere are not lost by a change" absent_contents_are_kept
claim "without room to note it nothing is changed" no_room_to_note
claim "random changes make the same tree there" random_seeds
claim "sync and fsync wait until it is there" syncs_wait
claim "and fail when it cannot be, and end with who waits" failed_syncs_say_so
claim "a .git of the host's own is told to nobody" own_repositories
claim "nor is host git led by what a command has made" repositories_of_the_machine
claim "extended attributes are refused" attributes_of_users
finish
