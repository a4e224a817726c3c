#!/bin/sh
. "$TESTS/lib/mount.sh"
# Files: open in all its ways, write, read, names.

creates_and_opens() {
	expect 0 open f O_CREAT\|O_EXCL\|O_WRONLY 0640
	same "0640 regular 0" "$("$TOOL" stat f mode type size)"
	expect EEXIST open f O_CREAT\|O_EXCL\|O_WRONLY
	expect 0 open f O_RDWR
	expect ENOENT open missing O_RDONLY
	expect ENOENT open missing/f O_CREAT\|O_WRONLY
	expect ENOTDIR open f/x O_RDONLY
	expect ENOTDIR open f O_RDONLY\|O_DIRECTORY
	expect EISDIR open src O_WRONLY
	expect ELOOP open link O_RDONLY\|O_NOFOLLOW
	expect 0 open link O_RDONLY
	expect EEXIST open link O_CREAT\|O_EXCL\|O_WRONLY
}

honours_umask() {
	(umask 027 && : >masked && mkdir masked.d)
	same 0640 "$("$TOOL" stat masked mode)"
	same 0750 "$("$TOOL" stat masked.d mode)"
}

truncates_on_open() {
	echo long text >t
	: >t
	same 0 "$("$TOOL" stat t size)"
	echo a >t
	echo b >>t
	same 'a
b' "$(cat t)"
}

rewrites_in_the_middle() {
	printf 0123456789 >m
	expect 0 pwrite m 3 abc
	same 012abc6789 "$(cat m)"
	expect 0 pwrite m 12 zz
	printf '012abc6789\0\0zz' | cmp - m
}

keeps_big_files_exact() {
	head -c 5000000 /dev/urandom >"$ROOM/big"
	cp "$ROOM/big" big
	cmp "$ROOM/big" big
	dd if="$ROOM/big" of=big2 bs=4099 2>/dev/null
	cmp "$ROOM/big" big2
	same 5000000 "$("$TOOL" stat big size)"
}

limits_names() {
	long=$(printf '%0255d' 7)
	expect 0 open "$long" O_CREAT\|O_WRONLY
	same "$long" "$(ls | grep 00007)"
	expect ENAMETOOLONG open "${long}x" O_CREAT\|O_WRONLY
	expect ENAMETOOLONG mkdir "${long}x"
	expect 0 unlink "$long"
}

takes_odd_names() {
	for name in 'a b' '-n' '*' "new
line" 'ünïcode' "$(printf 'bad\377utf')" '.hidden' '...' 'semi;colon' "quo'te" 'back\slash'; do
		printf '%s\n' "$name" >"./$name"
		same "$name" "$(cat "./$name")"
		expect 0 unlink "./$name"
	done
}

refuses_removal_of_the_wrong_kind() {
	expect EISDIR\|EPERM unlink src
	expect ENOTDIR rmdir README.md
	expect ENOENT unlink missing
}

respects_modes() {
	echo secret >closed
	chmod 000 closed
	[ "$(id -u)" = 0 ] || expect EACCES open closed O_RDONLY
	[ "$(id -u)" = 0 ] || expect EACCES access closed r
	mkdir shut
	echo x >shut/x
	chmod 000 shut
	[ "$(id -u)" = 0 ] || expect EACCES open shut/x O_RDONLY
	chmod 755 shut
	chmod 644 closed
	expect 0 access README.md rw
	expect EACCES access README.md x
	expect 0 access src x
	refuse ./README.md
	cp "$TOOL" program
	./program stat . type
}

claim "mounting a repository succeeds" mount_repo
claim "mkdir makes a sandbox" box a
cd "$MNT/a" || exit 1
claim "open obeys O_CREAT, O_EXCL, O_DIRECTORY, O_NOFOLLOW" creates_and_opens
claim "the umask counts once" honours_umask
claim "O_TRUNC and O_APPEND do what they say" truncates_on_open
claim "a write in the middle and past the end" rewrites_in_the_middle
claim "big files are byte-exact in any block size" keeps_big_files_exact
claim "a name of 255 bytes works, 256 is ENAMETOOLONG" limits_names
claim "names may hold any byte" takes_odd_names
claim "unlink and rmdir tell files from directories" refuses_removal_of_the_wrong_kind
claim "modes are respected, a program on the mount can be executed" respects_modes
claim "an unlinked file works until it is closed" expect 0 unlinked gone
claim "a file that was renamed over works until it is closed" expect 0 replaced old new
claim "20 000 files do not need 20 000 descriptors" expect 0 many . 20000
cd "$ROOM" || exit 1
finish
