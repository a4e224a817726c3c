#!/bin/sh
. "$TESTS/lib/mount.sh"
# The short programs of examples/, with nothing but file I/O.

hello() {
	"$@" "$MNT" >"$ROOM/hello.out"
	grep -q '^Hello from' "$ROOM/hello.out"
	grep -q 3 "$ROOM/hello.out"
}

in_c() {
	cc -o "$ROOM/hello" "$ROOM/examples/hello.c"
	hello "$ROOM/hello"
}

# As debootstrap makes it, and by stages as a plain chroot is.
bare_root() {
	[ "$(id -u)" = 0 ] || return 0
	mkdir "$ROOM/etc" && cp -a /etc/. "$ROOM/etc" && rm -f "$ROOM/etc/mtab"
	cat >"$ROOM/bare.sh" <<'END'
set -e
mount --bind "$ROOM/etc" /etc
"$SANDBOXFS" --doctor | grep '^warn .*/etc/mtab is missing.*ln -s'
setpriv --reuid=1 --regid=1 --clear-groups "$SANDBOXFS" --doctor | grep '^no .*/etc/mtab is missing.*ln -s'
. "$TESTS/lib/setup.sh"
setup_root
[ -r /etc/mtab ]
! "$SANDBOXFS" --doctor | grep mtab
mount -t tmpfs none /dev
setup_root 2>&1 | grep '/dev/fuse is missing'
umount /dev
mount -t tmpfs none /proc
setup_root 2>&1 | grep '/proc is not mounted'
"$SANDBOXFS" --doctor | grep '^no .*/proc is not mounted'
END
	ROOM=$ROOM SANDBOXFS=$SANDBOXFS TESTS=$TESTS unshare -m sh "$ROOM/bare.sh"
}

claim "a root without /etc/mtab, /dev or /proc is mended, or refused with the reason" bare_root
claim "mounting" mount_none
claim "hello.sh" hello sh "$ROOM/examples/hello.sh"
claim "hello.py" hello python3 "$ROOM/examples/hello.py"
claim "hello.js" hello node "$ROOM/examples/hello.js"
claim "hello.pl" hello perl "$ROOM/examples/hello.pl"
claim "hello.c" in_c
finish
