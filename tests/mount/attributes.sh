#!/bin/sh
. "$TESTS/lib/mount.sh"
# Attributes: modes, owners, times to the nanosecond, sizes, extended attributes.

modes() {
	echo x >m
	for mode in 0000 0400 0644 0755 0777; do
		expect 0 chmod m $mode
		same $mode "$("$TOOL" stat m mode)"
	done
	expect 0 chmod src 0700
	same 0700 "$("$TOOL" stat src mode)"
	expect 0 chmod src 0755
	expect ENOENT chmod missing 0644
}

mode_of_the_root() {
	run a chmod 751 .
	same 0751 "$("$TOOL" stat . mode)"
	run a chmod 755 .
	same 0755 "$("$TOOL" stat . mode)"
	expect 0 chmod . 0775
	same 775 "$(run a stat -c %a .)"
	same 0775 "$("$TOOL" stat . mode)"
}

# A machine opens a tree that its owner may not enter, so that it can go on with it.
closed_tree() {
	echo in >in
	same said "$(run a sh -c 'chmod 600 . && echo said')"
	same 0700 "$("$TOOL" stat "$MNT/a" mode)"
	same in "$(run a cat in)"
	expect 0 chmod "$MNT/a" 0755
	same 755 "$(run a stat -c %a .)"
	rm in
}

# Where the owner may not write, the host is refused at once, and commands may have changed it.
closed_directories() {
	run a sh -c 'mkdir -p ro/d; echo f >ro/f; chmod 555 ro/d ro'
	same "0555 0555" "$("$TOOL" stat ro mode) $("$TOOL" stat ro/d mode)"
	if [ "$(id -u)" != 0 ]; then
		expect EACCES open ro/new O_CREAT\|O_WRONLY 644
		expect EACCES unlink ro/f
		expect EACCES mkdir ro/d/new 755
	fi
	echo longer >ro/f
	same longer "$(run a cat ro/f)"
	same longer "$(cat ro/f)"
	run a sh -c 'chmod 755 ro ro/d; rm ro/f; echo g >ro/g; echo h >ro/d/h; chmod 555 ro ro/d'
	same 'd g' "$(ls ro | paste -sd ' ')"
	same 'g h' "$(cat ro/g ro/d/h | paste -sd ' ')"
	same "0555 0555" "$("$TOOL" stat ro mode) $("$TOOL" stat ro/d mode)"
	run a sh -c 'chmod 755 ro; echo new >ro/n; mv ro/n ro/g; mkdir ro/e; chmod 555 ro'
	same 'new d e g' "$(cat ro/g) $(ls ro | paste -sd ' ')"
	touch -d @1000 ro
	same '555 1000' "$(run a stat -c '%a %Y' ro)"
	expect 0 chmod ro 0755
	echo mine >ro/mine
	expect 0 chmod ro 0555
	same '555 mine' "$(run a sh -c 'stat -c %a ro; cat ro/mine' | paste -sd ' ')"
	same 0555 "$("$TOOL" stat ro mode)"
	run a sh -c 'chmod -R u+w ro; rm -r ro/d/h ro/mine; chmod 555 ro/d ro'
	same 'd e g' "$(ls ro | paste -sd ' ')"
	run a sh -c 'chmod -R u+w ro; rm -r ro'
	expect ENOENT stat ro
}

# Until it is open again a machine may not be told, but nothing is lost.
closed_to_its_owner() {
	mkdir shut
	run a true
	echo data >shut/new
	expect 0 chmod shut 0600
	sync "$MNT/a" 2>/dev/null || true
	expect 0 chmod shut 0755
	same data "$(cat shut/new)"
	same data "$(run a cat shut/new)"
	same data "$(cat shut/new)"
	rm -r shut
}

no_setuid() {
	cp "$TOOL" prog
	expect 0\|EPERM chmod prog 4755
	same 0755 "$("$TOOL" stat prog mode)"
	expect 0\|EPERM chmod prog 2755
	same 0755 "$("$TOOL" stat prog mode)"
	expect 0\|EPERM open made O_CREAT\|O_WRONLY 6755
	[ ! -e made ] || case $("$TOOL" stat made mode) in 0*) ;; *) fail "setuid file was made" ;; esac
	run a stat -c %a prog | grep -qx 755
}

setgid_directories() {
	mkdir shared
	expect 0 chmod shared 2775
	same 2775 "$("$TOOL" stat shared mode)"
	mkdir shared/sub
	: >shared/file
	same "2755 0644" "$("$TOOL" stat shared/sub mode) $("$TOOL" stat shared/file mode)"
	same "$(stat -c %g shared)" "$(stat -c %g shared/file)"
	same 2775 "$(run a stat -c %a shared)"
	expect EPERM chmod shared 6775
	if [ "$(id -u)" = 0 ]; then
		expect 0 chown shared -1 12
		mkdir shared/of12
		same "12 2755" "$(stat -c '%g %a' shared/of12)"
	fi
	mv shared moved
	same 2775 "$("$TOOL" stat moved mode)"
	git init -q --shared moved/repo
	same 2 "$("$TOOL" stat moved/repo/.git/objects mode | cut -c1)"
	rm -r moved
}

owners() {
	me=$(id -u) group=$(id -g)
	echo x >o
	expect 0 chown o "$me" "$group"
	expect 0 chown o -1 -1
	if [ "$me" != 0 ]; then
		expect EPERM chown o 1 -1
		expect EPERM chown o 0 0
	fi
	same "$me" "$("$TOOL" stat o uid)"
}

sets_times() {
	echo x >t
	expect 0 utimens t 1000000000.123456789 1100000000.987654321
	same "1000000000.123456789 1100000000.987654321" "$("$TOOL" stat t atime mtime)"
	expect 0 utimens t omit 1200000000.000000001
	same "1000000000.123456789 1200000000.000000001" "$("$TOOL" stat t atime mtime)"
	expect 0 utimens t now omit
	[ "$("$TOOL" stat t atime | cut -d. -f1)" -gt 1600000000 ]
	same 1200000000.000000001 "$("$TOOL" stat t mtime)"
	ln -s t tl
	expect 0 utimens tl 5.000000006 7.000000008
	same 7.000000008 "$("$TOOL" lstat tl mtime)"
	same 1200000000.000000001 "$("$TOOL" stat t mtime)"
	expect 0 utimens t -5.000000000 -6.000000000
	same -6.000000000 "$("$TOOL" stat t mtime)"
}

writing_moves_mtime() {
	echo x >w
	expect 0 utimens w 1.000000000 1.000000000
	echo y >>w
	[ "$("$TOOL" stat w mtime | cut -d. -f1)" -gt 1600000000 ]
	mkdir wd
	expect 0 utimens wd 1.000000000 1.000000000
	touch wd/new
	[ "$("$TOOL" stat wd mtime | cut -d. -f1)" -gt 1600000000 ]
}

sizes() {
	printf 1234567890 >s
	expect 0 truncate s 4
	same 1234 "$(cat s)"
	expect 0 truncate s 8192
	same 8192 "$("$TOOL" stat s size)"
	same 8192 "$(wc -c <s)"
	expect EINVAL truncate s -1
	expect EISDIR truncate src 0
	expect ENOENT truncate missing 0
	expect 0 truncate s 1099511627776
	same 1099511627776 "$("$TOOL" stat s size)"
	expect 0 truncate s 0
}

xattrs_with_the_option() {
	echo x >x
	expect 0 setxattr x user.colour blue
	same blue "$("$TOOL" getxattr x user.colour)"
	expect ENODATA getxattr x user.none
	expect 0 removexattr x user.colour
	expect ENODATA getxattr x user.colour
	expect EPERM\|EOPNOTSUPP\|EINVAL setxattr x security.capability x
	expect EPERM\|EOPNOTSUPP setxattr x security.selinux x
	expect EPERM\|EOPNOTSUPP setxattr x trusted.overlay.opaque y
}

xattrs_without() {
	echo x >x2
	expect EOPNOTSUPP setxattr x2 user.colour blue
	expect EOPNOTSUPP getxattr x2 user.colour
	expect EOPNOTSUPP removexattr x2 user.colour
	cp -a x2 x3
	expect EPERM\|EOPNOTSUPP\|EINVAL setxattr x2 security.capability x
	expect EPERM\|EOPNOTSUPP setxattr x2 trusted.overlay.opaque y
}

claim "mounting" mount_repo
claim "mkdir" box a
cd "$MNT/a" || exit 1
claim "chmod" modes
claim_away "the root has the mode that a command gives it" mode_of_the_root
claim_away "and is reached where its owner may not enter it" closed_tree
claim "a directory in which its owner may not write" closed_directories
claim "and one that he may not enter" closed_to_its_owner
claim "neither chmod nor open can set setuid or setgid" no_setuid
claim "but of a directory setgid, and what is made in it is as it says" setgid_directories
claim "chown to oneself works, to others is EPERM" owners
claim "times are kept to the nanosecond, also of links" sets_times
claim "writing moves mtime of the file, creating that of the directory" writing_moves_mtime
claim "truncate: shorter, longer, EINVAL, EISDIR" sizes
claim "statfs answers for the mount" expect 0 statfs "$MNT"
claim "statfs answers for a sandbox" expect 0 statfs .
claim "no xattrs unless they are asked for" xattrs_without
cd "$ROOM" || exit 1
claim "unmounting" unmount
claim_away "user_xattr is refused, as nothing brings them to a machine" refuse remount user_xattr
claim_away "remounting without" remount ''
claim_here "remounting with user_xattr" remount user_xattr
is_away || cd "$MNT/a" || exit 1
claim_here "with user_xattr they pass; security and trusted never" xattrs_with_the_option
cd "$ROOM" || exit 1
finish
