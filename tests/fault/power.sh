#!/bin/sh
. "$TESTS/lib/mount.sh"
# The disk's power is cut at random moments; the driver knows what had been synced by then.
# SBX_CUTS=50 cuts more often, SBX_POWER_SEED=N takes the same steps again.
DISK=$ROOM/disk

skip() {
	echo "ok - power cuts # SKIP $1"
	exit 0
}

make_disk() {
	mkdir "$DISK"
	truncate -s 1G "$ROOM/disk.img"
	mkfs.ext4 -q -F "$ROOM/disk.img"
	mount -o loop "$ROOM/disk.img" "$DISK"
}

prepare() {
	REPO=$DISK/repo
	git config --global core.fsync all
	new_repo "$REPO"
	printf '*.log\n' >"$REPO/.gitignore"
	git -C "$REPO" add .
	git -C "$REPO" commit -qm second
	git clone -q --bare "$REPO" "$DISK/origin.git"
	git -C "$REPO" remote add origin "$DISK/origin.git"
	sync -f "$DISK"
}

[ "$(id -u)" = 0 ] || skip "not root"
command -v mkfs.ext4 >/dev/null || skip "there is no mkfs.ext4"
command -v losetup >/dev/null || skip "there is no losetup"
make_disk 2>"$ROOM/disk.log" ||
	skip "no ext4 in an image can be mounted: $(tail -n 1 "$ROOM/disk.log")"

claim "a repository on a disk of its own" prepare
claim \
	"$SBX_CUTS power cuts at random moments: what was synced is there, or where it comes back from" \
	python3 "$TESTS/fault/power.py" "$SBX_CUTS" "$ROOM/power.summary"
# shellcheck disable=SC2154
[ "$claim_code" = 0 ] || tail -n 5 "$LOG" | sed 's/^/# daemon: /'
[ ! -f "$ROOM/power.summary" ] || sed 's/^/# /' "$ROOM/power.summary"
umount "$DISK" 2>/dev/null || umount -l "$DISK"
