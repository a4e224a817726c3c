# The runner: POSIX sh, sent along with each request to a machine; see call.h. The link sets
#   R_ROOM  a directory for its own files, which is made
#   R_TREE  the tree
# and calls functions r_*, one a line. Each answers in frames on descriptor 3, and nothing else
# writes there. A frame is a line
#   KIND WORD A B C BYTES
# with "-" for an empty WORD. BYTES are in base64; "h" behind KIND: in hexadecimal; "z": and
# compressed by gzip before; "t": as they are. The last line is ".", without which the answer is not
# whole. Functions use names that begin with r_ or R_. What goes on when the script has ended closes
# descriptor 3.

# What a command is to find as it was.
R_LOCALE=${LC_ALL+x$LC_ALL}
R_MASK=$(umask)
LC_ALL=C
export LC_ALL
umask 022
R_IN=$R_ROOM/in
R_FAILED=
exec 3>&1 >/dev/null 2>&1 </dev/null

if command -v base64; then
	R_FORM=
	r_encode() {
		base64 | tr -d '\n'
	}
else
	R_FORM=h
	r_encode() {
		od -An -v -tx1 | tr -d ' \n'
	}
fi

# r_frame KIND WORD A B C: a frame with the bytes of standard input
r_frame() {
	printf '%s%s %s %s %s %s ' "$1" "$R_FORM" "${2:--}" "${3:-0}" "${4:-0}" "${5:-0}" >&3
	r_encode >&3
	echo >&3
}

# r_pack KIND WORD A B C: the same, compressed where gzip is there, for what is large
r_pack() {
	if command -v gzip; then
		gzip -1 | r_frame "${1}z" "$2" "$3" "$4" "$5"
	else
		r_frame "$@"
	fi
}

# r_say KIND WORD A B C TEXT: a frame with a short text
r_say() {
	case $6 in
	*[!\ -~]*)
		printf %s "$6" | r_frame "$1" "$2" "$3" "$4" "$5"
		;;
	*)
		printf '%st %s %s %s %s %s\n' "$1" "${2:--}" "${3:-0}" "${4:-0}" "${5:-0}" "$6" >&3
		;;
	esac
}

# r_fail ERRNO SENTENCE [1]: the call has failed; ERRNO is a number of Linux. 1: it has failed to
# tell of the tree, and what else it is to do is done
r_fail() {
	R_FAILED=$1
	r_say F - "$1" "${3:-0}" 0 "$2"
}

# r_reason ERRNO SENTENCE: why a file of the room cannot be made or written. R_ERRNO and R_TEXT are
# these, or say that the disk is full.
r_reason() {
	R_ERRNO=$1 R_TEXT=$2
	case $({ echo | cat >"$R_ROOM/try.$$"; } 2>&1) in
	*"No space left on device") R_ERRNO=28 R_TEXT="$2: the disk there is full" ;;
	*"uota exceeded") R_ERRNO=122 R_TEXT="$2: the disk quota there is used up" ;;
	esac
	rm -f "$R_ROOM/try.$$"
}

# r_raw WORD SCRIPT: runs it in the tree. D: its standard output, A its exit status; E: what it has
# complained of. What runs twice is done twice.
r_raw() {
	r_file=$R_ROOM/raw.$$
	(cd "$R_TREE" && eval "$2" 3>&-) >"$r_file.out" 2>"$r_file.err"
	r_code=$?
	r_pack D "$1" "$r_code" <"$r_file.out"
	r_frame E "$1" <"$r_file.err"
	rm -f "$r_file.out" "$r_file.err"
}

# r_enter: the directory to work in is the tree. Of one whose mode keeps its owner out the host has
# the mode with what he needs to look into it, and so it has that here.
r_enter() {
	cd -P -- "$R_TREE/" && return
	[ -d "$R_TREE" ] && [ ! -x "$R_TREE" ] && chmod u+rx "$R_TREE" && cd -P -- "$R_TREE/"
}

r_end() {
	echo . >&3
}

[ -d "$R_ROOM" ] || mkdir -p -m 700 "$R_ROOM" ||
	r_fail 121 "$R_ROOM, the directory of sandboxfs there, cannot be made"
# As apply.sh has it. It has its block before the disk is full.
[ -e "$R_ROOM/progress" ] || {
	set -C
	printf '%-79s\n' "- 0 0" >"$R_ROOM/progress"
	set +C
}
