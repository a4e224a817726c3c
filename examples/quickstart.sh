#!/bin/sh
# quickstart.sh: the main job in two minutes, on a bare machine (Debian 12 or 13,
# Ubuntu 24.04), as root or as an ordinary user: install, build, mount this very
# repository, work in two sandboxes, clean up.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/tests/lib/setup.sh"

step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() {
	printf '$ %s\n' "$*"
	sh -c "$*"
}

# quiet COMMAND...: shows what it prints only when it fails.
quiet() {
	if ! said=$("$@" 2>&1); then
		printf '%s\n' "$said" | grep -A 12 -m 1 -i 'error\|failed' || printf '%s\n' "$said" | tail -n 20
		exit 1
	fi
}

step "Installing what is missing"
setup_install "$setup_build_needs"
setup_root
setup_fuse
echo "all there"

step "Building"
build=$here/build
if [ ! -w "$here" ]; then
	build=$(mktemp -d "${TMPDIR:-/tmp}/sandboxfs-build.XXXXXX")
	built=$build
fi
[ -f "$build/build.ninja" ] || quiet meson setup "$build" "$here"
quiet ninja -C "$build"
"$build/sandboxfs" --version

room=$(mktemp -d "${TMPDIR:-/tmp}/sandboxfs-quickstart.XXXXXX")
MNT=$room/mnt
export MNT
cleanup() {
	cd /
	if [ -d "$MNT/ctl/" ]; then
		for name in tidy broken; do
			echo $name >"$MNT/ctl/teardown" || true
		done
	fi
	fusermount3 -u "$MNT" 2>/dev/null || true
	chmod -R u+rwx "$room" 2>/dev/null || true
	rm -rf "$room" ${built:+"$built"}
}
trap cleanup EXIT
trap 'exit 1' INT TERM

step "A clone of the repository that this file is part of"
# Whoever owns the checkout: cloning only reads it.
git -c safe.directory='*' clone -q --no-hardlinks "$here" "$room/repo" 2>/dev/null || {
	# Not a checkout but an unpacked archive: make it one.
	mkdir "$room/repo"
	(cd "$here" && tar --exclude='./build*' --exclude=./.git -cf - .) | tar -C "$room/repo" -xf -
	git -C "$room/repo" init -q
	git -C "$room/repo" add .
	git -C "$room/repo" -c user.name=quickstart -c user.email=quickstart@example.org commit -qm import
}
git -C "$room/repo" log --oneline -n 3

step "Mounting it"
mkdir "$MNT"
show "$build/sandboxfs $room/repo \$MNT -o state_dir=$room/state"
show 'ls $MNT'

step "Two sandboxes: mkdir"
show 'mkdir $MNT/tidy $MNT/broken'
show "git -C $room/repo worktree list"

step "Editing a file through the mount, with any program"
show 'sed -i "s/^project(.sandboxfs.,/project('"'"'quickstart'"'"',/" $MNT/tidy/meson.build'
show 'git -C $MNT/tidy diff --stat'
show 'git -C $MNT/broken status --short --branch'

step "A command inside: write its argv, read the result"
show 'echo "uname -s" > $MNT/tidy/ctl/exec'
show 'cat $MNT/tidy/ctl/stdout'
show 'cat $MNT/tidy/ctl/status'

step "Compiling the project's event loop inside and running its unit tests"
cat >"$MNT/tidy/try.sh" <<'END'
set -e
cflags="-std=gnu11 -D_GNU_SOURCE -Iinclude -I. $(pkg-config --cflags cmocka)"
cc $cflags -o try tests/unit/backends/support/test_loop.c backends/support/loop.c -pthread \
	$(pkg-config --libs cmocka)
./try
END
show 'echo "sh try.sh" > $MNT/tidy/ctl/exec'
show 'tail -n 3 $MNT/tidy/ctl/stdout $MNT/tidy/ctl/stderr'
show 'cat $MNT/tidy/ctl/status'
grep -q '^0 exited' "$MNT/tidy/ctl/status"

step "The other sandbox knows nothing of it; a failure is a status, not an accident"
show 'echo "this is not C" >> $MNT/broken/backends/support/loop.c'
show 'echo "cc -fsyntax-only -D_GNU_SOURCE -Iinclude -I. backends/support/loop.c" \
	> $MNT/broken/ctl/exec'
show 'head -n 2 $MNT/broken/ctl/stderr'
show 'cat $MNT/broken/ctl/status'
# dash has one word for every errno of a write; the sentence in ctl/error is shown instead.
refute() {
	printf '$ %s\n' "$*"
	if sh -c "$*"; then
		echo "that should have been refused" >&2
		exit 1
	fi
}

step "Refused: leading out of the sandbox"
refute 'ln -s /etc/passwd $MNT/broken/secret'
refute 'echo "{\"argv\":[\"ls\"],\"cwd\":\"../tidy\"}" 2>/dev/null > $MNT/broken/ctl/exec'
show 'cat $MNT/broken/ctl/error'

step "Refused: a shell line where an argv is meant"
refute 'echo "ls | wc" 2>/dev/null > $MNT/broken/ctl/exec'
show 'cat $MNT/broken/ctl/error'

step "A timeout ends everything that the command started and keeps its output"
show 'echo "{\"argv\":[\"sh\",\"-c\",\"echo partial; sleep 100\"],\"timeout_ms\":300}" \
	> $MNT/broken/ctl/exec'
show 'cat $MNT/broken/ctl/stdout $MNT/broken/ctl/status'
grep -q '^124 timeout' "$MNT/broken/ctl/status"

step "The way back: a snapshot, a mess, restore"
show 'echo "as it should be" > $MNT/tidy/ctl/snapshot; cat $MNT/tidy/ctl/snapshot'
show 'rm -r $MNT/tidy/fs; cat $MNT/tidy/ctl/changes | head -n 3'
show 'cat $MNT/tidy/ctl/snapshot > $MNT/tidy/ctl/restore; git -C $MNT/tidy status --short'
[ -d "$MNT/tidy/fs" ]

step "Done with one: rmdir. What was not committed is in the trash"
show 'echo unfinished > $MNT/broken/notes; rmdir $MNT/broken'
show 'cat $MNT/ctl/list'
show 'echo broken > $MNT/ctl/teardown; cat $MNT/ctl/trash'
show 'echo "{\"name\":\"again\",\"from\":\"trash:$(cut -d" " -f1 $MNT/ctl/trash)\"}" \
	> $MNT/ctl/create; cat $MNT/again/notes'

step "Teardown, unmount"
show 'echo tidy > $MNT/ctl/teardown; echo again > $MNT/ctl/teardown'
show "git -C $room/repo worktree list"
show 'fusermount3 -u $MNT'

printf '\nThat was all. README.md tells the rest.\n'
