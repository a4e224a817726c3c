#!/bin/sh
. "$TESTS/lib/mount.sh"
# What is inside files: holes, copies, maps, locks, many writers.

allocation() {
	printf abc >f
	expect 0 fallocate f plain 0 10000
	same 10000 "$("$TOOL" stat f size)"
	expect 0 fallocate f keep 0 20000
	same 10000 "$("$TOOL" stat f size)"
	expect 0\|EOPNOTSUPP fallocate f punch 0 4096
	expect EINVAL fallocate f plain 0 0
	expect EINVAL fallocate f plain -1 10
	expect ENOENT fallocate missing plain 0 1
}

holes() {
	expect 0 open h O_CREAT\|O_WRONLY
	expect 0 truncate h 1048576
	expect 0 pwrite h 524288 data
	same 524288 "$("$TOOL" seek h data 0)"
	same 0 "$("$TOOL" seek h hole 0)"
	expect ENXIO seek h data 1048576
	expect ENXIO seek h hole 2000000
}

copies() {
	head -c 3000000 /dev/urandom >c1
	expect 0 copy-range c1 c2
	cmp c1 c2
	expect 0 copy-range c1 ../b/c3
	cmp c1 ../b/c3
	expect 0\|EXDEV copy-range c1 "$ROOM/c4"
}

# Of what a command made, which the mount has open for reading only.
large_reads() {
	head -c 300001 /dev/urandom >l1
	run a cp l1 l2
	cmp l1 l2
	run a truncate -s 200003 l2
	head -c 200003 l1 | cmp - l2
	run a truncate -s 400000 l2
	same 400000 "$(wc -c <l2)"
	same 0 "$(tail -c +200004 l2 | tr -d '\0' | wc -c)"
	same "" "$(tail -c +400001 l2)"
}

direct() {
	head -c 65536 /dev/urandom >d1
	dd if=d1 of=d2 bs=4096 iflag=direct oflag=direct 2>/dev/null || dd if=d1 of=d2 bs=4096 2>/dev/null
	cmp d1 d2
}

# read_deep TOP: the first byte of what lies below it, by steps, or the errno.
read_deep() {
	python3 -c 'import errno, os, sys
os.chdir(sys.argv[1])
for i in range(19): os.chdir("d" * 200)
try: print(os.read(os.open("f" * 40, os.O_RDONLY), 1).decode())
except OSError as e: print(errno.errorcode[e.errno])' "$1"
}

# By its name it can be reached in steps only: for contents that are not here nobody can be asked.
too_deep() {
	run a sh -c 'd=$(printf %200s "" | tr " " d) && mkdir w && cd w && i=0
		while [ $i -lt 19 ]; do mkdir "$d" && cd "$d" && i=$((i + 1)); done
		head -c 3000000 /dev/zero | tr "\0" x >"$(printf %40s "" | tr " " f)"'
	drop_caches
	top=$(printf '%250s' '' | tr ' ' w)
	mv "$MNT/a/w" "$MNT/a/$top"
	want=x
	is_away && want=ENAMETOOLONG
	same "$want" "$(read_deep "$MNT/a/$top")"
	mv "$MNT/a/$top" "$MNT/a/w"
	same x "$(read_deep "$MNT/a/w")"
}

claim "mounting" mount_repo
claim "two sandboxes" box a b
cd "$MNT/a" || exit 1
claim "fallocate grows, keeps, punches, refuses nonsense" allocation
claim "SEEK_DATA and SEEK_HOLE find data and holes" holes
claim "copy_file_range copies within and between sandboxes" copies
claim "large reads are exact, also of a file that a command makes shorter or longer" large_reads
claim "what lies too deep for a path is read as it is, or not at all" too_deep
claim "O_DIRECT copies exactly" direct
claim "shared maps are written and read" expect 0 mmap mapped
claim "O_APPEND from 8 processes loses nothing" expect 0 append-race appended 8 500
claim "flock and fcntl locks exclude each other's processes" expect 0 locks locked
claim "a blocking lock is granted when it is free, stat goes on meanwhile" expect 0 lock-wait locked
claim "O_TMPFILE is refused cleanly" expect EOPNOTSUPP\|ENOSYS\|EINVAL open . O_TMPFILE\|O_RDWR
cd "$ROOM" || exit 1
finish
