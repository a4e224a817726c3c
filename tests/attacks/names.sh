#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Names that mislead whoever looks at them, and names that are too long.

# A name and a path of N bytes.
long_name() {
	head -c "$1" /dev/zero | tr '\0' n
}

lengths() {
	name=$(long_name 255)
	: >"$MNT/a/$name"
	[ -e "$MNT/a/$name" ]
	run a sh -c "echo inside >$name"
	same inside "$(cat "$MNT/a/$name")"
	rm "$MNT/a/$name"
	expect ENAMETOOLONG open "$MNT/a/${name}n" O_CREAT\|O_WRONLY
	expect ENAMETOOLONG mkdir "$MNT/a/${name}n"
	expect ENAMETOOLONG stat "$MNT/a/${name}n"
	expect ENAMETOOLONG symlink target "$MNT/a/${name}n"
	expect ENAMETOOLONG rename "$MNT/a/README.md" "$MNT/a/${name}n"
	[ -z "$(ls "$MNT/a" | grep nnnn)" ]
}

# As deep as a path can say, counted from the host's root.
deep_paths() {
	path=$MNT/a
	while [ ${#path} -lt 3800 ]; do
		path=$path/$(long_name 200)
		mkdir "$path"
	done
	file=$path/$(long_name $((4094 - ${#path})))
	echo deep >"$file"
	same deep "$(cat "$file")"
	same 4095 ${#file}
	expect ENAMETOOLONG open "${file}n" O_CREAT\|O_WRONLY
	same deep "$(run a sh -c 'find . -type f -name "nnn*" -exec cat {} +')"
	# Deeper than any path: made inside, seen and removed outside.
	run a python3 -c 'import os
for i in range(1500):
	os.mkdir("deeper"); os.chdir("deeper")
open("bottom", "w").close()'
	same 1501 "$(find "$MNT/a/deeper" | wc -l)"
	rm -rf "$MNT/a/deeper" "$MNT/a/nnnn"* "$MNT/a/$(long_name 200)"
	[ ! -e "$MNT/a/deeper" ]
}

# Bytes that a terminal or a parser takes for something else.
odd_bytes() {
	run a python3 -c 'import os
for name in (b"new\nline", b"esc\x1b[2J", b"\xff\xfe", b"back\\slash", b"tab\t", b" ",
	b"-rf", b"*", b"$(id)", b"\r", b"a\x7f", b"%s%n"):
	os.mkdir(b"odd") if not os.path.isdir(b"odd") else None
	open(b"odd/" + name, "w").close()'
	same 12 "$(find "$MNT/a/odd" -type f -printf x | wc -c)"
	same 12 "$(ls -b "$MNT/a/odd" | wc -l)"
	python3 -m json.tool "$MNT/ctl/list.json" >/dev/null
	git -C "$MNT/a" status --porcelain -z >/dev/null
	rm -rf "$MNT/a/odd"
	[ ! -e "$MNT/a/odd" ]
}

# What fails about an odd name is told on one line.
odd_names_in_errors() {
	run a python3 -c 'import os; os.symlink("/etc/x\n{\"forged\":1}\x1b[2J", "odd-link")'
	expect EACCES open "$MNT/a/odd-link" O_RDONLY
	same 1 "$(wc -l <"$MNT/a/ctl/error")"
	refuse grep -q "$(printf '\033')" "$MNT/a/ctl/error"
	run a rm odd-link
}

case_is_kept_apart() {
	run a sh -c 'mkdir CTL; echo upper >CTL/exec; echo upper >STATUS'
	same upper "$(cat "$MNT/a/CTL/exec")"
	same upper "$(cat "$MNT/a/STATUS")"
	like '0 exited*' "$(cat "$MNT/a/status")"
	expect ENOENT stat "$MNT/A"
	expect ENOENT stat "$MNT/CTL/create"
	run a rm -r CTL STATUS
}

# The controls win over what a command puts in their place, and the
# host never takes one for the other.
names_of_controls() {
	run a sh -c 'mkdir -p ctl/jobs; echo planted >ctl/status; echo planted >ctl/error
		echo planted >README; ln -s /etc ctl/out'
	like '0 exited*' "$(cat "$MNT/a/ctl/status")"
	refuse grep -q planted "$MNT/a/ctl/error"
	expect ENOENT stat "$MNT/a/ctl/out"
	same planted "$(cat "$MNT/a/README")"
	expect EPERM\|EEXIST\|EBUSY rename "$MNT/a/README" "$MNT/a/ctl"
	run a rm -rf ctl README
}

dots() {
	expect EEXIST\|EINVAL mkdir "$MNT/."
	expect EEXIST\|EINVAL mkdir "$MNT/.."
	run a sh -c 'mkdir "..." ".. " "..." 2>/dev/null; echo x >"... "' || true
	expect 0 stat "$MNT/a/... "
	expect ENOENT stat "$MNT/a/.../../../a/missing"
	same "$("$TOOL" stat "$MNT" ino)" "$("$TOOL" stat "$MNT/a/.../../.." ino)"
	rm -rf "$MNT/a/..." "$MNT/a/.. " "$MNT/a/... "
}

more_files_than_descriptors() {
	unmount
	(
		ulimit -n 200
		mount_repo
	)
	run a sh -c 'mkdir many; i=0; while [ $i -lt 3000 ]; do echo $i >many/$i; i=$((i + 1)); done'
	same 3000 "$(find "$MNT/a/many" -type f | wc -l)"
	same 3000 "$(cat "$MNT/a/many"/* | wc -l)"
	for file in "$MNT/a/many"/*; do
		echo x >>"$file"
	done
	same 6000 "$(cat "$MNT/a/many"/* | wc -l)"
	rm -rf "$MNT/a/many"
	unmount
	mount_repo
}

claim "mounting" mount_victims
attack -daemon "names of 255 and 256 bytes" lengths
attack -daemon "paths as long as they can be, and longer" deep_paths
attack -daemon "names with newlines, escapes and invalid text" odd_bytes
attack -daemon "the same in what is refused" odd_names_in_errors
attack -daemon "names that differ in case" case_is_kept_apart
attack -daemon "names of controls" names_of_controls
attack -kernel "dots" dots
attack -daemon "more files than descriptors" more_files_than_descriptors
withstood
