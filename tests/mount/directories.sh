#!/bin/sh
. "$TESTS/lib/mount.sh"
# Directories: making, removing, and listing them while they change.

makes_and_removes() {
	expect 0 mkdir d 0751
	same "0751 directory" "$("$TOOL" stat d mode type)"
	expect EEXIST mkdir d
	expect EEXIST mkdir README.md
	expect ENOENT mkdir missing/d
	expect ENOTDIR mkdir README.md/d
	echo x >d/x
	expect ENOTEMPTY\|EEXIST rmdir d
	expect 0 unlink d/x
	expect 0 rmdir d
	expect ENOENT rmdir d
	expect EINVAL rmdir src/.
	expect ENOTEMPTY\|EEXIST rmdir src/..
}

counts_links() {
	mkdir n
	same 2 "$("$TOOL" stat n nlink)"
	mkdir n/1 n/2
	# Overlays and some file systems count no subdirectories: 1 or 2+n, as find expects.
	links=$("$TOOL" stat n nlink)
	[ "$links" = 4 ] || [ "$links" = 1 ] || [ "$links" = 2 ]
	same 3 "$(find n -type d | wc -l)"
}

lists_everything() {
	mkdir many
	(cd many && seq 1 3000 | xargs touch)
	same 3000 "$(ls many | wc -l)"
	same 3000 "$(find many -type f | wc -l)"
	same '1 2999 3000' "$(ls many | sort -n | sed -n '1p;2999p;3000p' | tr '\n' ' ' | sed 's/ $//')"
	expect 0 seekdir many
	rm -rf many
	expect ENOENT stat many
}

lists_dots() {
	same '.
..' "$(ls -a1 src | head -n 2)"
	same "$("$TOOL" stat . ino)" "$("$TOOL" stat src/.. ino)"
}

sees_changes_at_once() {
	mkdir live
	touch live/1
	same 1 "$(ls live)"
	touch live/2
	rm live/1
	same 2 "$(ls live)"
	mv live/2 live/3
	same 3 "$(ls live)"
	expect ENOENT stat live/2
}

# Read twice with a pause, so that the kernel uses its own copy; then changed from either side.
kept_listings_are_current() {
	mkdir -p kept/sub
	touch kept/0
	for i in 1 2 3; do
		sleep 0.1
		ls kept >/dev/null
		ls kept >/dev/null
		run a sh -c "touch kept/job$i; rm kept/$((i - 1))"
		ls kept | grep -qx "job$i"
		refuse sh -c "ls kept | grep -qx $((i - 1))"
		sleep 0.1
		ls kept >/dev/null
		ls kept >/dev/null
		touch "kept/$i"
		ls kept | grep -qx "$i"
		mv kept/sub "kept/sub$i"
		same "sub$i" "$(ls kept | grep sub)"
		mv "kept/sub$i" kept/sub
	done
	touch -d @1000 kept
	sleep 0.1
	ls kept >/dev/null
	ls kept >/dev/null
	run a sh -c "touch kept/hidden; touch -d @1000 kept"
	ls kept | grep -qx hidden
	rm -r kept
}

# No name leads there that could be looked up again.
kept_listing_of_the_working_directory() {
	mkdir wd
	cd wd
	touch 0
	for i in 1 2 3; do
		sleep 0.1
		ls >/dev/null
		ls >/dev/null
		run a sh -c "touch wd/job$i; rm wd/$((i - 1))"
		ls | grep -qx "job$i"
		refuse sh -c "ls | grep -qx $((i - 1))"
		touch "$i"
		ls | grep -qx "$i"
	done
	touch -d @1000 .
	sleep 0.1
	ls >/dev/null
	ls >/dev/null
	run a sh -c "touch wd/hidden; touch -d @1000 wd"
	ls | grep -qx hidden
	cd ..
	rm -r wd
}

deep_elsewhere() {
	expect 0 deep . 500
	mkdir further
	"$TOOL" deep further 700 2>&1 | grep -q ENAMETOOLONG
	rm -r further
}

# The sandbox is never idle in between.
kept_listing_while_another_runs() {
	mkdir beside
	"$TOOL" result ctl/spawn sleep 600 >"$ROOM/beside"
	for i in 1 2 3 4 5; do
		sleep 0.1
		ls beside >/dev/null
		ls beside >/dev/null
		run a touch "beside/$i"
		ls beside | grep -qx "$i"
		(
			cd beside
			sleep 0.1
			ls >/dev/null
			ls >/dev/null
			run a touch "beside/in$i"
			ls | grep -qx "in$i"
		)
	done
	echo 1 >"ctl/jobs/$(cat "$ROOM/beside")/kill"
	cat "ctl/jobs/$(cat "$ROOM/beside")/wait" >/dev/null
	rm -r beside
}

# Changed by nobody whom the kernel could see.
kept_listing_of_the_top() {
	for i in 1 2 3; do
		ls "$MNT" >/dev/null
		ls "$MNT" >/dev/null
		echo "top$i" >"$MNT/ctl/create"
		ls "$MNT" | grep -qx "top$i"
		echo "top$i" >"$MNT/ctl/teardown"
		refuse sh -c "ls '$MNT' | grep -qx top$i"
	done
	ls "$MNT" | grep -qx a
}

# By its time the kernel knows a listing that was on its way while sandboxes came or went.
top_has_the_time_of_its_change() {
	was=$(stat -c %y "$MNT")
	same "$was" "$(stat -c %y "$MNT")"
	for change in "create time" "teardown time"; do
		echo "${change#* }" >"$MNT/ctl/${change% *}"
		now=$(stat -c %y "$MNT")
		[ "$now" != "$was" ]
		was=$now
	done
	mkdir "$MNT/time"
	now=$(stat -c %y "$MNT")
	[ "$now" != "$was" ]
	mv "$MNT/time" "$MNT/other"
	[ "$now" != "$(stat -c %y "$MNT")" ]
	rmdir "$MNT/other"
}

# The kernel's copy goes away while somebody is in the middle of it,
# and what he has read is deleted.
kept_listing_lost_halfway() {
	mkdir halfway
	(cd halfway && seq 1 5000 | xargs touch)
	sleep 0.1
	ls halfway >/dev/null
	ls halfway >/dev/null
	python3 - <<-'END'
		import os
		first = os.scandir("halfway")
		seen = [next(first).name for _ in range(10)]
		for name in seen:
		    os.unlink("halfway/" + name)
		assert len(os.listdir("halfway")) == 4990
		seen += [entry.name for entry in first]
		assert len(seen) == 5000 and len(set(seen)) == 5000, len(seen)
	END
	rm -r halfway
}

# As above, where the kernel's copy ends with a page: 128 entries to each.
kept_listing_of_whole_pages() {
	for left in 126 1022; do
		mkdir pages
		(cd pages && seq 1001 $((1020 + left)) | xargs touch)
		sleep 0.1
		ls pages >/dev/null
		ls pages >/dev/null
		python3 - $left <<-'END'
			import ctypes, os, sys
			left = int(sys.argv[1])
			libc = ctypes.CDLL(None)
			seen = []
			def read(fd, size):
			    buf = ctypes.create_string_buffer(size)
			    n = libc.getdents64(fd, buf, size)
			    at = 0
			    while at < n:
			        end = at + int.from_bytes(buf.raw[at + 16:at + 18], sys.byteorder)
			        name = buf.raw[at + 19:end].split(b"\0")[0].decode()
			        at = end
			        if name[0] != ".":
			            seen.append(name)
			    return n
			fd = os.open("pages", os.O_RDONLY)
			while len(seen) < 20:
			    read(fd, 24)
			for name in seen:
			    os.unlink("pages/" + name)
			assert len(os.listdir("pages")) == left
			assert len(os.listdir("pages")) == left
			while read(fd, 32768) > 0:
			    pass
			assert len(seen) == left + 20 and len(set(seen)) == left + 20, len(seen)
		END
		rm -r pages
	done
}

# Files are written anew and renamed by one, while another reads and a third begins to.
kept_listing_of_replaced_files() {
	mkdir old new
	(cd old && seq 1 5000 | xargs touch)
	(cd new && seq 1 5000 | xargs touch)
	sleep 0.1
	ls old >/dev/null
	ls old >/dev/null
	python3 - <<-'END'
		import os
		first = os.scandir("old")
		seen = [next(first).name for _ in range(10)]
		for name in map(str, range(1, 5001, 3)):
		    os.rename("new/" + name, "old/" + name)
		assert len(os.listdir("old")) == 5000
		seen += [entry.name for entry in first]
		assert len(seen) == 5000 and len(set(seen)) == 5000, len(seen)
	END
	rm -r old new
}

# The directory does not change when the host takes the place of what a command made.
kept_listing_with_a_repository() {
	run a mkdir -p module/.git
	for i in 1 2; do
		sleep 0.1
		same '' "$(ls -A module)"
		same '' "$(ls -A module)"
		mkdir module/.git
		same .git "$(ls -A module)"
		sleep 0.1
		same .git "$(ls -A module)"
		rmdir module/.git
		same '' "$(ls -A module)"
		run a mkdir module/.git
	done
	run a rm -r module
}

survives_removal_of_the_cwd() {
	mkdir gone
	cd gone
	rmdir ../gone
	expect ENOENT open x O_CREAT\|O_WRONLY
	same '' "$(ls)"
}

claim "mounting" mount_repo
claim "mkdir makes a sandbox" box a
cd "$MNT/a" || exit 1
claim "mkdir and rmdir answer as POSIX says" makes_and_removes
claim "link counts of directories do not mislead find" counts_links
claim "3000 entries are listed once each, offsets can be returned to" lists_everything
claim ". and .. are right" lists_dots
claim "a listing shows what just happened" sees_changes_at_once
claim "a listing read again and again is the current one" kept_listings_are_current
claim "so is that of a working directory" kept_listing_of_the_working_directory
claim "and while another command runs" kept_listing_while_another_runs
claim "and that of the top" kept_listing_of_the_top
claim "which has the time of its last change" top_has_the_time_of_its_change
claim "a listing whose copy is lost halfway goes on where it was" kept_listing_lost_halfway
claim "also one that fills its pages" kept_listing_of_whole_pages
claim "files that are replaced meanwhile are listed once" kept_listing_of_replaced_files
# A repository that is elsewhere is not this host's to make.
claim_here "a repository that the host makes is listed at once" kept_listing_with_a_repository
mkdir busy
claim "5000 entries deleted while being read" expect 0 readdir-delete busy 5000
claim "a removed current directory is empty and refuses files" survives_removal_of_the_cwd
claim_here "600 levels: paths longer than PATH_MAX work step by step" expect 0 deep . 600
# Only a path names something to a machine.
claim_away "500 levels; where a path would be longer than PATH_MAX is ENAMETOOLONG" deep_elsewhere
claim "rm -rf removes them" rm -rf deeper
cd "$ROOM" || exit 1
finish
