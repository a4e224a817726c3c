# The runner: POSIX sh, sent along with each request to a machine; see call.h. The link sets
#   R_ROOM  a directory for its own files, which is made
#   R_TREE  the tree
# and calls functions r_*, one a line. Each answers in frames on descriptor 3, and nothing else
# writes there. A frame is a line
#   KIND WORD A B C BASE64
# with "-" for an empty WORD; "z" behind KIND: the bytes are compressed by gzip. The last line is
# ".", without which the answer is not whole. Functions use names that begin with r_ or R_.
LC_ALL=C
export LC_ALL
umask 022
R_IN=$R_ROOM/in
exec 3>&1 >/dev/null 2>&1 </dev/null

if command -v base64 >/dev/null; then
	r_base64() {
		base64 | tr -d '\n'
	}
fi

# r_frame KIND WORD A B C: a frame with the bytes of standard input
r_frame() {
	printf '%s %s %s %s %s ' "$1" "${2:--}" "${3:-0}" "${4:-0}" "${5:-0}" >&3
	r_base64 >&3
	echo >&3
}

# r_fail ERRNO SENTENCE: the call has failed; ERRNO is the number on this kind of system
r_fail() {
	printf %s "$2" | r_frame F - "$1"
}

r_end() {
	echo . >&3
}
