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
setpriv --reuid=1 --regid=1 --clear-groups "$SANDBOXFS" --doctor |
	grep '^no .*/etc/mtab is missing.*ln -s'
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

# A directory that is no mount point, as the root.
plain_chroot() {
	[ "$(id -u)" = 0 ] || return 0
	mkdir "$ROOM/chroot"
	cat >"$ROOM/chroot.sh" <<'END'
set -e
cd "$ROOM/chroot"
mkdir -p mnt tmp srv
cp "$SANDBOXFS" "$(dirname "$SANDBOXFS")/sandboxfs-runner" srv
for dir in /usr /etc /bin /sbin /lib* /proc /sys /dev; do
	[ -d "$dir" ] || continue
	if [ -L "$dir" ]; then cp -P "$dir" .; else mkdir ".$dir" && mount --rbind "$dir" ".$dir"; fi
done
export TMPDIR=/tmp
# They name files that are not in there.
unset LSAN_OPTIONS TSAN_OPTIONS
chroot . /srv/sandboxfs --doctor | grep '^no .*this is a chroot.*pivot_root'
! chroot . /srv/sandboxfs none /mnt 2>err
grep 'this is a chroot.*pivot_root' err
END
	ROOM=$ROOM SANDBOXFS=$SANDBOXFS unshare -m --propagation private sh "$ROOM/chroot.sh"
}

claim "a root without /etc/mtab, /dev or /proc is mended, or refused with the reason" bare_root
claim "in a plain chroot the reason is the chroot" plain_chroot
claim "mounting" mount_none
claim "hello.sh" hello sh "$ROOM/examples/hello.sh"
claim "hello.py" hello python3 "$ROOM/examples/hello.py"
claim "hello.js" hello node "$ROOM/examples/hello.js"
claim "hello.pl" hello perl "$ROOM/examples/hello.pl"
claim "hello.c" in_c
finish
