#!/bin/sh
# case.sh root|user SCRIPT: runs one case in a room of its own and then
# looks whether anything is left.
#
# The room is a directory below SBX_ROOMS or /tmp with a copy of the programs, the tool and the
# tests in it, so that an ordinary user needs no access to the source tree. SBX_OPTIONS is added to
# the -o of each mount. Cases print `ok - claim` and `not ok - claim`; numbers and the plan are
# added here. Skips, with the reason, only where FUSE, or what SBX_OPTIONS asks for, is absent.
#
# With BACKEND=daytona, vercel or dagger they are at a loopback server (cloud.sh).
# With BACKEND=dirs, and sandboxfs-dirs as SANDBOXFS, sandboxes are in machines below $ROOM/dirs
# (dirs.h), whose requests take SBX_DIRS_LATENCY ms; SBX_DIRS_SHELL is the shell there. With one of
# busybox a machine has the programs of busybox only.
set -u

who=$1
here=$(cd "$(dirname "$0")/.." && pwd)
script=$here/$(basename "$(dirname "$2")")/$(basename "$2")

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}

[ -e /dev/fuse ] || skip "this kernel offers no /dev/fuse"
[ "$who" = user ] || [ "$(id -u)" = 0 ] || skip "not root"
[ "${SBX_OPTIONS:-}" != io=passthrough ] ||
	"$SANDBOXFS" --doctor | grep -q '^ok .*FUSE passthrough' ||
	skip "this kernel has no FUSE passthrough"

client=$(basename "$script" .sh)
prepared=
if [ -n "${SBX_PREPARED:-}" ]; then
	prepared=$("$here/lib/prepare.sh" "$client" "$SBX_PREPARED")
	case $? in
	0) ;;
	77) skip "$prepared" ;;
	*)
		printf '%s\n' "$prepared" | sed 's/^/# /'
		printf 'not ok 1 - %s is prepared\n1..1\n' "$client"
		exit 1
		;;
	esac
fi

ROOM=$(mktemp -d "${SBX_ROOMS:-/tmp}/sandboxfs-test.XXXXXX") || exit 99
mkdir "$ROOM/bin" "$ROOM/home" "$ROOM/tmp" "$ROOM/mnt"
runner=${SBX_RUNNER:-$(dirname "$SANDBOXFS")/sandboxfs-runner}
cp "$SANDBOXFS" "$ROOM/bin/sandboxfs" &&
	cp "$runner" "$(dirname "$runner")/sandboxfs-push" "$ROOM/bin" ||
	echo "not ok - the daemon is built"
cp "$SBX_TOOL" "$ROOM/bin/tool"
applets=
case ${SBX_DIRS_SHELL:-} in
busybox*)
	applets=$ROOM/applets
	mkdir "$applets" && busybox --install -s "$applets" || echo "not ok - busybox is there"
	;;
esac
[ -z "${SBX_ATTACK:-}" ] || cp "$SBX_ATTACK" "$ROOM/bin/attack"
if [ -n "${SBX_BENCH:-}" ]; then
	mkdir -p "$ROOM/build/tests/bench"
	cp "$SANDBOXFS" "$ROOM/build/sandboxfs"
	cp "$runner" "$ROOM/build"
	cp "$SBX_BENCH"/bench-* "$ROOM/build/tests/bench/" 2>/dev/null
fi
cp -r "$here" "$ROOM/tests"
[ -z "$prepared" ] || cp -r "$prepared" "$ROOM/prepared"
[ ! -d "$here/../examples" ] || cp -r "$here/../examples" "$ROOM/examples"
mkdir "$ROOM/man" && cp "$here/../fs/"*.[1-9] "$here/../fs/"*/*.[1-9] "$ROOM/man"
cat >"$ROOM/home/.gitconfig" <<'END'
[user]
	name = Test
	email = test@example.org
[init]
	defaultBranch = main
[gc]
	auto = 0
END
chmod 755 "$ROOM"

become= dropper=
if [ "$who" = user ] && [ "$(id -u)" = 0 ]; then
	# An account that every Debian and Ubuntu has, and that is not the overflow uid as nobody is.
	uid=$(id -u games) gid=$(id -g games)
	chown -R "$uid:$gid" "$ROOM"
	become="setpriv --reuid=$uid --regid=$gid --clear-groups"
	# For drop_caches, which only root may.
	mkfifo "$ROOM/drop" "$ROOM/dropped"
	chown "$uid:$gid" "$ROOM/drop" "$ROOM/dropped"
	while read -r _ <"$ROOM/drop"; do
		echo 2 >/proc/sys/vm/drop_caches
		echo >"$ROOM/dropped"
	done &
	dropper=$!
fi

# processes TEXT: the ids of those whose command line has TEXT. One grep looks at them all, and
# reads TEXT as input, so that its own command line has none.
processes() {
	printf '%s\n' "$1" | grep -alF -f - /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3
}

leftovers() {
	grep -F " $ROOM/" /proc/self/mountinfo | sed 's/^/# mount: /'
	for pid in $(processes "$ROOM/"); do
		tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | sed "s|^|# process $pid: |"
	done
}

# Ends what a failed case left, so that the next one starts clean.
sweep() {
	for pid in $(grep -alF "$ROOM/dirs/" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3); do
		! readlink "/proc/$pid/cwd" | grep -qF "$ROOM/dirs/" || kill -9 "$pid"
	done
	for pid in $(processes "$ROOM/bin/sandboxfs"); do
		kill -9 "$pid"
	done
	while target=$(awk -v p="$ROOM/" 'index($5, p) == 1 { print $5; exit }' /proc/self/mountinfo) &&
		[ -n "$target" ]; do
		# -f ends the connection: a client that waits for a daemon that cannot die is freed.
		umount -f "$target" 2>/dev/null
		fusermount3 -uz "$target" 2>/dev/null || umount -l "$target" 2>/dev/null ||
			! grep -qF " $target " /proc/self/mountinfo || break
	done
}

# What grows with the source is the same for who asks: a user has less of it.
refs=100000
[ "$who" = root ] || refs=10000

inside() {
	env -i PATH="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" HOME="$ROOM/home" TMPDIR="$ROOM/tmp" \
		USER="$who" LANG=C.UTF-8 ROOM="$ROOM" SANDBOXFS="$ROOM/bin/sandboxfs" TOOL="$ROOM/bin/tool" \
		TESTS="$ROOM/tests" SBX_CYCLES="${SBX_CYCLES:-100}" SBX_KILLS="${SBX_KILLS:-10}" \
		SBX_CUTS="${SBX_CUTS:-8}" SBX_POWER_SEED="${SBX_POWER_SEED:-}" \
		SBX_STEPS="${SBX_STEPS:-3000}" SBX_REFS="${SBX_REFS:-$refs}" SBX_WEAK="${SBX_WEAK:-}" \
		SBX_OPTIONS="${SBX_OPTIONS:-}" BACKEND="${BACKEND:-}" SBX_DIRS="$ROOM/dirs" \
		SBX_DIRS_LATENCY="${SBX_DIRS_LATENCY:-0}" SBX_DIRS_SHELL="${SBX_DIRS_SHELL:-sh}" \
		${applets:+"SBX_DIRS_PATH=$applets"} \
		SBX_UNSEEN="${SBX_UNSEEN:-1}" SBX_SEED="${SBX_SEED:-}" SBX_MODEL_STEPS="${SBX_MODEL_STEPS:-}" \
		SBX_MODEL_SEED="${SBX_MODEL_SEED:-}" \
		SBX_MODEL_SECONDS="${SBX_MODEL_SECONDS:-}" SBX_MODEL_LAST="${SBX_MODEL_LAST:-}" \
		SBX_STRESS="${SBX_STRESS:-${CI:+60}}" \
		XDG_CACHE_HOME="$ROOM/cache" ${become:+"GCOV_PREFIX=$ROOM/gcov"} \
		ASAN_OPTIONS="log_path=$ROOM/asan" \
		TSAN_OPTIONS="log_path=$ROOM/tsan:suppressions=$ROOM/tests/lib/tsan.supp" \
		UBSAN_OPTIONS="log_path=$ROOM/ubsan:print_stacktrace=1" \
		LSAN_OPTIONS="suppressions=$ROOM/tests/lib/lsan.supp:print_suppressions=0" \
		$become "$ROOM/tests/${script#"$here"/}"
}

# Not awk: some buffer their input, and a case that hangs would show nothing.
number() {
	n=0
	while IFS= read -r line; do
		case $line in
		'ok - '*) n=$((n + 1)) && printf 'ok %d - %s\n' $n "${line#ok - }" ;;
		'not ok - '*) n=$((n + 1)) && printf 'not ok %d - %s\n' $n "${line#not ok - }" ;;
		*) printf '%s\n' "$line" ;;
		esac
	done
	echo "1..$n"
}

clean() {
	[ -z "$dropper" ] || kill "$dropper"
	sweep
	cd /
	chattr -R -f -ia "$ROOM/state" 2>/dev/null
	chmod -R u+rwx "$ROOM" 2>/dev/null
	rm -rf "$ROOM"
}

trap clean EXIT
trap 'exit 1' HUP INT TERM
cd "$ROOM" || exit 99
{
	inside
	code=$?
	[ $code = 0 ] || echo "not ok - the case runs to its end (exit $code)"
	left=$(leftovers)
	if [ -n "$left" ]; then
		echo "$left"
		echo "not ok - no process and no mount is left"
	else
		echo "ok - no process and no mount is left"
	fi
	# One that a signal ended in the middle of its first words leaves an empty one.
	reports=$(find "$ROOM" -maxdepth 1 \( -name 'asan.*' -o -name 'tsan.*' \
		-o -name 'ubsan.*' \) -size +0)
	if [ -n "$reports" ]; then
		printf '%s\n' "$reports" | while read -r report; do sed 's/^/# /' "$report"; done
		echo "not ok - the sanitizers are silent"
	fi
} | number
