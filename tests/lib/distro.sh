#!/bin/sh
# distro.sh SUITE [OPTION...]: tests/run.sh OPTION... in a root of that Debian release, as root.
#
# The root is made once by debootstrap, below ${XDG_CACHE_HOME:-~/.cache}/sandboxfs-tests, from the
# mirror that this machine's apt uses, or SBX_MIRROR; removing it has it made anew. What is mounted
# and started for a run is in namespaces of its own and ends with them.
set -u

suite=$1
shift
here=$(cd "$(dirname "$0")/../.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/sandboxfs-tests
root=$cache/$suite

die() {
	echo "$*" >&2
	exit 1
}

# The first archive of the distribution proper in apt's sources, which debootstrap can read from.
mirror() {
	apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI)' \
		'Created-By: Packages' 2>/dev/null |
		awk '$1 == "Debian" && $2 !~ /-/ && $3 ~ /^https?:/ { print $3; exit }'
}

make_root() {
	from=${SBX_MIRROR:-$(mirror)}
	[ -n "$from" ] || die "apt has no mirror of Debian here: set SBX_MIRROR to the URL of one"
	echo "making a root of Debian $suite in $root"
	rm -rf "$root.new"
	mkdir -p "$root.new" &&
		debootstrap --variant=minbase "$suite" "$root.new" "$from" >"$root.log" 2>&1 || {
		tail -n 5 "$root.log" >&2
		die "debootstrap failed; its output is in $root.log"
	}
	# How this machine reaches the mirror: proxies and the like.
	apt-config dump 2>/dev/null | grep -E '^Acquire::(Check|Retries|https?::)' \
		>"$root.new/etc/apt/apt.conf.d/90host"
	mv "$root.new" "$root"
}

# The working tree as it is, uncommitted changes included. What has not changed keeps
# its time and what was built of it.
copy_tree() {
	old=$root/srv/sandboxfs new=$root/srv/sandboxfs.new
	rm -rf "$new"
	mkdir -p "$new" "$old"
	(cd "$here" && git ls-files -z -co --exclude-standard --deduplicate |
		tar --null --ignore-failed-read -T - -cf -) 2>/dev/null | tar -xmf - -C "$new" ||
		die "the working tree cannot be copied"
	(cd "$new" && find . -type f) | while IFS= read -r file; do
		! cmp -s "$new/$file" "$old/$file" || touch -r "$old/$file" "$new/$file"
	done
	for dir in "$old"/build*; do
		[ ! -d "$dir" ] || mv "$dir" "$new/"
	done
	rm -rf "$old"
	mv "$new" "$old"
}

# In the new namespaces. A changed root is no chroot: in one the kernel grants no user namespace.
enter() {
	exec 9>&- # the lock is held outside
	for file in resolv.conf hosts; do
		[ ! -e "/etc/$file" ] || cp -L "/etc/$file" "$root/etc/$file"
	done
	mount --bind "$root" "$root" &&
		mount -t proc proc "$root/proc" &&
		mount --rbind /sys "$root/sys" &&
		mount --rbind /dev "$root/dev" &&
		cd "$root" &&
		mkdir -p run/host &&
		pivot_root . run/host &&
		umount -l run/host &&
		cd /srv/sandboxfs || die "the root of $suite cannot be entered"
	exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
		LANG=C.UTF-8 TERM="${TERM:-dumb}" ${SBX_CYCLES:+SBX_CYCLES="$SBX_CYCLES"} \
		${SBX_KILLS:+SBX_KILLS="$SBX_KILLS"} \
		${SBX_STEPS:+SBX_STEPS="$SBX_STEPS"} ${SBX_CUTS:+SBX_CUTS="$SBX_CUTS"} \
		tests/run.sh "$@"
}

if [ "${SBX_DISTRO_ENTER:-}" = "$suite" ]; then
	enter "$@"
fi
[ "$(id -u)" = 0 ] || die "--distro makes a root of its own, which takes root"
command -v debootstrap >/dev/null ||
	die "debootstrap is missing; install with: apt-get install debootstrap"
[ -e "/usr/share/debootstrap/scripts/$suite" ] || die "debootstrap knows no release $suite"
mkdir -p "$cache" || exit 1
exec 9>"$root.lock"
flock -n 9 || die "another run uses $root"
[ -d "$root" ] || make_root
rm -rf "$root"/tmp/sandboxfs-* # of a run that was killed
copy_tree
SBX_DISTRO_ENTER=$suite exec unshare --mount --pid --fork --kill-child --propagation private \
	"$0" "$suite" "$@"
