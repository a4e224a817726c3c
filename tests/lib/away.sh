# Verbs for cases whose sandboxes are on a machine that the case plays: tests/lib/away.h. Sourced
# after mount.sh.
# shellcheck shell=sh
export SBX_AWAY="$ROOM/away"
FAR=$SBX_AWAY

# machine NAME: one that has some files, of which a sandbox can be made.
machine() {
	mkdir -p "$FAR/$1/far/src/deep" "$FAR/$1/far/empty"
	printf 'hello\n' >"$FAR/$1/far/file"
	printf 'int main;\n' >"$FAR/$1/far/src/main.c"
	printf 'deep\n' >"$FAR/$1/far/src/deep/down"
	printf '#!/bin/sh\necho ran\n' >"$FAR/$1/far/run"
	chmod 755 "$FAR/$1/far/run"
	ln -s src/main.c "$FAR/$1/far/link"
	some_bytes 3000000 >"$FAR/$1/far/big"
	touch -d '2020-02-02 02:02:02' "$FAR/$1/far/file"
}

# some_bytes COUNT: that are no hole.
some_bytes() {
	"$TOOL" pattern 100 "$1" 2>/dev/null
}

# made NAME: the sandbox of a machine.
made() {
	machine "$1"
	mkdir "$MNT/$1"
}

hold() {
	touch "$FAR/$1/hold"
}

let_go() {
	rm "$FAR/$1/hold"
}

# asked NAME LINE: waits until that is in the log.
asked() {
	until grep -qxF "$2" "$FAR/$1/log" 2>/dev/null; do tick; done
}

forget_log() {
	: >"$FAR/$1/log"
}

# logged NAME LINE...: the log has these lines and no others.
logged() {
	logged_box=$1
	shift
	printf '%s\n' "$@" | diff - "$FAR/$logged_box/log"
}

silent() {
	diff /dev/null "$FAR/$1/log"
}

# asked_of NAME WORDS: the same for a line that begins so.
asked_of() {
	until grep -q "^$2" "$FAR/$1/log" 2>/dev/null; do tick; done
}

# become NAME PATH TEXT: the machine's file is that, at once, and of the same time as it was.
become() {
	printf '%s' "$3" >"$ROOM/become"
	[ ! -e "$FAR/$1/far/$2" ] || touch -r "$FAR/$1/far/$2" "$ROOM/become"
	mv "$ROOM/become" "$FAR/$1/far/$2"
	refresh "$1" "$2"
}

# refresh NAME PATH: the machine's file there is another than it was.
refresh() {
	printf '%s\n' "$2" >"$ROOM/refresh"
	mv "$ROOM/refresh" "$FAR/$1/refresh"
	while [ -e "$FAR/$1/refresh" ]; do tick; done
}

# A FIFO shows as a socket once the kernel has forgotten who made it.
facts() {
	(
		cd "$1"
		find . ! -name . -printf '%P %y %m %l ' \( -type d -printf '\n' -o \
			-printf '%n %s %T@\n' \) | sed 's/ p / s /' | sort
		find . -type f -exec cksum {} + | sort
	)
}

same_trees() {
	facts "$FAR/$1/far" >"$ROOM/far.facts"
	facts "$MNT/$1" >"$ROOM/mnt.facts"
	diff "$ROOM/far.facts" "$ROOM/mnt.facts"
}

# brought NAME: all that was changed is on the machine, which has the same tree.
brought() {
	echo 1 >"$MNT/$1/ctl/sync"
	same_trees "$1"
}
