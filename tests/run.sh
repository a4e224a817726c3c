#!/bin/sh
# Builds and runs all tests; ends with a line `N passed, N failed`, and with 0 only when none failed
# and nothing is left: no mount, process or directory of the suite.
#
#   tests/run.sh                     everything but the suite matrix
#   tests/run.sh --suite unit,mount  some suites (unit, backends, mount, attacks, weak, clients,
#                                    fault, stress, fuzz, bench, sdk, real, matrix); may be
#                                    repeated. matrix: more of the cases of mount and clients on
#                                    sandboxes that are elsewhere; it takes half an hour
#   tests/run.sh --asan | --tsan     built with sanitizers
#   tests/run.sh --coverage          with line coverage, which must reach 85 %
#   tests/run.sh --distro trixie     in a root of that Debian release (debootstrap, as root), with
#                                    the options above
set -u

here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/tests/lib/setup.sh"

all_suites='unit backends mount attacks weak clients fault stress fuzz bench sdk real matrix'

# Adds the suites of the list $1 (a,b) to those that are run; refuses what
# is none before anything is built.
add_suites() {
	names=$(printf '%s' "$1" | tr ',' ' ')
	[ -n "${names# }" ] || { echo "--suite names no suite; there are: $all_suites" >&2 && exit 2; }
	for name in $names; do
		case " $all_suites " in
		*" $name "*) suites="$suites --suite $name" ;;
		*) echo "there is no suite \"$name\"; there are: $all_suites" >&2 && exit 2 ;;
		esac
	done
}

build=build options= suites= coverage= factor=1 distro= others=
while [ $# -gt 0 ]; do
	word=$1
	case $word in
	--asan) build=build-asan options='-Db_sanitize=address,undefined -Db_lundef=false' factor=4 ;;
	--tsan) build=build-tsan options='-Db_sanitize=thread -Db_lundef=false' factor=4 ;;
	--coverage) build=build-cov options='-Db_coverage=true' coverage=1 ;;
	--suite) add_suites "${2:-}" && word="--suite $2" && shift ;;
	--distro) distro=$2 word= && shift ;;
	*) sed -n '2,14s/^# \{0,1\}//p' "$0" && exit 2 ;;
	esac
	others="$others $word"
	shift
done
# shellcheck disable=SC2086
[ -z "$distro" ] || exec "$here/tests/lib/distro.sh" "$distro" $others

cd "$here" || exit 1
setup_install "$setup_build_needs$setup_test_needs${coverage:+$setup_coverage_needs}" || exit 1
# Without FUSE the cases that mount are passed over, each with its reason.
setup_root || { [ -e /proc/self/mountinfo ] && [ ! -e /dev/fuse ]; } || exit 1
setup_fuse
# shellcheck disable=SC2086
[ -f "$build/build.ninja" ] || meson setup "$build" $options || exit 1
ninja -C "$build" || exit 1

top=$(mktemp -d "${TMPDIR:-/tmp}/sandboxfs-suite.XXXXXX") || exit 1
SBX_ROOMS=$top/rooms
mkdir "$SBX_ROOMS" && chmod 755 "$top" "$SBX_ROOMS" || exit 1

# Root's tests have a disk of their own, with a journal. An ext4 without one takes no inode number
# again for minutes, and passes over each of them for every new file: half of the suite's time.
make_disk() {
	[ "$(id -u)" = 0 ] && [ "$(df -Pk "$top" | awk 'END { print $4 }')" -gt $((8 << 20)) ] &&
		truncate -s 8G "$top/disk" && mkfs.ext4 -q "$top/disk" &&
		mount -o loop,discard "$top/disk" "$SBX_ROOMS" && rmdir "$SBX_ROOMS/lost+found"
}

# What was left behind stays to be looked at, in the file of the disk or in the directory.
leave_rooms() {
	left=$(ls -A "$SBX_ROOMS")
	if mountpoint -q "$SBX_ROOMS"; then
		umount "$SBX_ROOMS" || umount -l "$SBX_ROOMS"
	fi
	[ -n "$left" ] || rm -f "$top/disk"
	rmdir "$SBX_ROOMS" "$top" 2>/dev/null
}
trap leave_rooms EXIT
trap 'exit 130' HUP INT TERM
make_disk >/dev/null 2>&1 || rm -f "$top/disk"

# Unit tests, and what they test, have their temporary files there as well.
export SBX_ROOMS TMPDIR="$SBX_ROOMS"
if [ $factor = 1 ]; then
	# As root and as a user: 1000 and 100 together.
	export SBX_CYCLES="${SBX_CYCLES:-500}" SBX_KILLS="${SBX_KILLS:-50}"
else
	# What a sanitizer has to look at a hundred thousand times it does not see better.
	export SBX_REFS="${SBX_REFS:-10000}"
fi
# Some of them fork beside a loop of their own, and begin threads then.
export TSAN_OPTIONS="suppressions=$here/tests/lib/tsan.supp:die_after_fork=0"
export LSAN_OPTIONS="suppressions=$here/tests/lib/lsan.supp:print_suppressions=0"

# Most programs wait for a daemon or a machine most of their time, so that six of them keep two
# processors busy. On a machine that has other work as well they take several times as long.
# shellcheck disable=SC2086
meson test -C "$build" --no-rebuild --timeout-multiplier $((factor * 4)) \
	--num-processes $(($(nproc) * 3)) ${suites:---no-suite matrix}

result=0
left=$({
	ls -A "$SBX_ROOMS"
	grep -F "$SBX_ROOMS/" /proc/self/mountinfo
	for pid in $(printf '%s\n' "$SBX_ROOMS" | grep -alF -f - /proc/[0-9]*/cmdline 2>/dev/null |
		cut -d / -f 3); do
		tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | sed "s|^|$pid: |"
	done
})
if [ -n "$left" ]; then
	echo "left behind:"
	echo "$left"
	result=1
fi
if [ -n "$coverage" ]; then
	gcovr -r . "$build" --filter 'fs/' --filter 'backends/' --filter 'include/' --fail-under-line 85 ||
		result=1
fi
python3 tests/lib/summary.py "$build/meson-logs/testlog.json" || result=1
exit $result
