#!/bin/sh
. "$TESTS/lib/mount.sh"
# The program that runs commands: the daemon's own, of the same build, or none.

# refused_with SENTENCE: by the daemon in $ROOM/other, which then is gone.
refused_with() {
	(
		SANDBOXFS=$ROOM/other/sandboxfs
		refused_mount "$1" none "$MNT" -o "state_dir=$STATE"
	) || return 1
	same 1 "$(wc -l <"$ROOM/refused.log")"
	refuse "$TOOL" pids "$MNT"
}

of_another_version() {
	version=$("$SANDBOXFS" --version | cut -d ' ' -f 2)
	sed "s/$version, protocol/9.9.9, protocol/" \
		"$ROOM/bin/sandboxfs-runner" >"$ROOM/other/sandboxfs-runner"
	refused_with \
		"sandboxfs-runner is of another build: it is 9.9.9, protocol *, sandboxfs is $version, protocol *"
}

of_a_program_that_ends() {
	printf '#!/bin/sh\n' >"$ROOM/other/sandboxfs-runner"
	refused_with "died at its start"
}

that_may_not_be_run() {
	chmod 644 "$ROOM/other/sandboxfs-runner"
	refused_with "$ROOM/other/sandboxfs-runner cannot be started: Permission denied"
}

by_path_alone() {
	rm "$ROOM/other/sandboxfs-runner"
	(
		PATH=$ROOM/bin:$PATH
		refused_with "sandboxfs-runner, which runs commands, is neither beside sandboxfs nor in /*"
	)
}

started_by_hand() {
	refuse "$ROOM/bin/sandboxfs-runner" 2>"$ROOM/said"
	same 'sandboxfs-runner is started by sandboxfs' "$(cat "$ROOM/said")"
}

needs_no_other_library() {
	ldd "$ROOM/bin/sandboxfs-runner" >"$ROOM/needs"
	own='linux-vdso|ld-linux|/ld-|libc\.so|libseccomp'
	refuse grep -vE "$own|lib(asan|tsan|ubsan|m|gcc_s|stdc\+\+|dl|pthread|rt)\.so" "$ROOM/needs"
	is_sanitized || refuse grep -vE "$own" "$ROOM/needs"
}

mkdir "$ROOM/other"
cp "$SANDBOXFS" "$ROOM/other/sandboxfs"
: >"$ROOM/other/sandboxfs-runner"
chmod 755 "$ROOM/other/sandboxfs-runner"
claim "a runner of another build is refused in a sentence that names both" of_another_version
claim "so is one that is no runner" of_a_program_that_ends
claim "one that may not be executed" that_may_not_be_run
claim "and one that only PATH leads to" by_path_alone
claim "by hand it says that it is not meant to be" started_by_hand
claim "it needs the C library and libseccomp" needs_no_other_library
claim "mounting with the right one" mount_none
finish
