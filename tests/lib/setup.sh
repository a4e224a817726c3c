# What has to be installed, in one place: for the build, and for the tests. Sourced by tests/run.sh
# and examples/quickstart.sh. Debian 12 and 13, Ubuntu 24.04.
# shellcheck shell=sh

# command or pkg-config module, and the package that has it
setup_build_needs='
cc gcc
meson meson
ninja ninja-build
pkg-config pkg-config
git git
fusermount3 fuse3
fuse3.pc libfuse3-dev
libgit2.pc libgit2-dev
json-c.pc libjson-c-dev
zlib.pc zlib1g-dev
cmocka.pc libcmocka-dev
libcurl.pc libcurl4-openssl-dev
libarchive.pc libarchive-dev
libcrypto.pc libssl-dev
libseccomp.pc libseccomp-dev
libcap.pc libcap-dev
'
setup_test_needs='
bash bash
dash dash
zsh zsh
mandoc mandoc
busybox busybox
python3 python3
node nodejs
npm npm
perl perl
awk mawk
rsync rsync
vim vim
nano nano
emacs emacs-nox
go golang-go
rustc rustc
javac default-jdk-headless
sqlite3 sqlite3
curl curl
make make
flock util-linux
chattr e2fsprogs
setpriv util-linux
pgrep procps
'
# What tests/bench/run compares with; it says which are not there.
setup_bench_needs='
rg ripgrep
bindfs bindfs
fuse-overlayfs fuse-overlayfs
mergerfs mergerfs
bwrap bubblewrap
sqlite3 sqlite3
mkfs.ext4 e2fsprogs
'
setup_coverage_needs='
gcovr gcovr
'

setup_has() {
	case $1 in
	*.pc) pkg-config --exists "${1%.pc}" 2>/dev/null ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

# setup_missing LIST: the packages that are not there
setup_missing() {
	printf '%s\n' "$1" | while read -r need package; do
		[ -z "$need" ] || setup_has "$need" || printf '%s ' "$package"
	done
}

# setup_install LIST: installs what is missing, as root or by sudo; else says what to install.
setup_install() {
	setup_packages=$(setup_missing "$1")
	[ -n "$setup_packages" ] || return 0
	setup_sudo=
	if [ "$(id -u)" != 0 ]; then
		setup_sudo='sudo -n'
		sudo -n true 2>/dev/null || setup_sudo=false
	fi
	if [ "$setup_sudo" = false ] || ! command -v apt-get >/dev/null; then
		echo "missing; install with: apt-get install $setup_packages" >&2
		return 1
	fi
	echo "installing: $setup_packages"
	# shellcheck disable=SC2086
	{
		$setup_sudo apt-get update -qq &&
			$setup_sudo env DEBIAN_FRONTEND=noninteractive \
				apt-get install -y -qq --no-install-recommends $setup_packages
	} >/dev/null || {
		echo "apt-get could not install: $setup_packages" >&2
		return 1
	}
}

# setup_root: what a root made by debootstrap is without. fusermount3 -u reads /etc/mtab. Fails,
# with the reason, where nothing can be mounted.
setup_root() {
	if [ ! -e /proc/self/mountinfo ]; then
		echo "/proc is not mounted; as root: mount -t proc proc /proc" >&2
		return 1
	fi
	if [ ! -c /dev/fuse ]; then
		echo "/dev/fuse is missing; as root: modprobe fuse; in a container: --device /dev/fuse;" \
			"in a chroot: mount --rbind /dev DIR/dev" >&2
		return 1
	fi
	[ ! -e /etc/mtab ] || return 0
	if [ "$(id -u)" = 0 ]; then
		ln -sf ../proc/self/mounts /etc/mtab
	else
		echo "/etc/mtab is missing; as root: ln -s ../proc/self/mounts /etc/mtab" >&2
		return 1
	fi
}

# setup_fuse: /dev/fuse is for everybody, as udev makes it; where no udev ran, root sets it so.
setup_fuse() {
	[ "$(id -u)" = 0 ] && [ -c /dev/fuse ] || return 0
	[ -n "$(find /dev/fuse -perm -0666)" ] || chmod 0666 /dev/fuse
}
