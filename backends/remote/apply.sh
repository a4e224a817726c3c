# Applying a batch: what the host has changed is done in the tree here as well. The lines that do it
# (r_do_*, in the function r_batch or in a file) are numbered, and each is noted in the file
#   $R_ROOM/progress   ID BATCH NUMBER, and in the end ID BATCH done
# when it is done, so that lines that are run again go on behind the last that was noted. Of the one
# behind it nobody knows whether it was done (R_HALF). Runners of the same room take turns, by
# files that are empty:
#   $R_ROOM/turns/N              the N-th
#   $R_ROOM/turns/N.by-PID-START whose it is
#   $R_ROOM/turns/N.over         it has ended
# None of this needs a block of the disk, because removing has to work on a full one: a note is
# written over the one before.
#
# Files to be put are in $R_IN, packed or one by one; a pack is opened in R_STAGE, on the file
# system of the tree, from where its files are moved into place. A line that cannot be done is told
# and passed over; what keeps all lines from being done ends the call.

# r_born PID: when the process was started, in R_BORN; "" when there is none
r_born() {
	R_BORN= r_line=
	read -r r_line <"/proc/$1/stat" || return 0
	r_line=${r_line##*) }
	set -- $r_line
	shift 19
	R_BORN=$1
}

# r_turn_is_over N: by its own word, or because its runner is gone
r_turn_is_over() {
	[ -e "$R_ROOM/turns/$1.over" ] && return
	for r_since in "$R_ROOM/turns/$1".by-*; do
		r_since=${r_since##*.by-}
	done
	r_pid=${r_since%%-*} r_since=${r_since#*-}
	if [ "$r_pid" = '*' ]; then
		# A runner of before has a directory, with files.
		r_pid= r_since=
		[ -e "$R_ROOM/turns/$1/over" ] && return
		read -r r_pid r_since <"$R_ROOM/turns/$1/by"
	fi
	if [ -z "$r_pid" ]; then
		# It has just begun, or was killed before it could tell.
		[ $((R_WAITED % 30)) -eq 29 ]
	elif [ -d /proc/self ]; then
		r_born "$r_pid"
		[ "$R_BORN" != "$r_since" ]
	else
		! kill -0 "$r_pid"
	fi
}

# r_last_turn: in R_LAST; 0 when there is none
r_last_turn() {
	R_LAST=0
	for r_t in "$R_ROOM"/turns/*; do
		r_t=${r_t##*/}
		case $r_t in
		*[!0-9]*) ;;
		*) [ "$r_t" -gt "$R_LAST" ] && R_LAST=$r_t ;;
		esac
	done
	return 0
}

# r_drop_turns: those before R_TURN
r_drop_turns() {
	set --
	for r_t in "$R_ROOM"/turns/*; do
		r_n=${r_t##*/}
		[ "${r_n%%.*}" -lt "$R_TURN" ] && set -- "$@" "$r_t"
	done
	[ $# -eq 0 ] || rm -rf -- "$@"
}

r_pause() {
	sleep 0.1 || sleep 1
}

# r_claim FILE: makes it, empty; fails where it is there
r_claim() {
	set -C
	true >"$1"
	r_made=$?
	set +C
	return $r_made
}

# r_take_turn: waits until nobody else applies anything here
r_take_turn() {
	[ -d "$R_ROOM/turns" ] || mkdir -p "$R_ROOM/turns" || return
	R_WAITED=0
	while [ "$R_WAITED" -lt 3000 ]; do
		r_last_turn
		if [ "$R_LAST" -eq 0 ] || r_turn_is_over "$R_LAST"; then
			# What a killed runner has started may take a moment to end.
			[ "$R_LAST" -eq 0 ] || [ -e "$R_ROOM/turns/$R_LAST.over" ] || r_pause
			R_TURN=$((R_LAST + 1))
			r_born $$
			if r_claim "$R_ROOM/turns/$R_TURN"; then
				true >"$R_ROOM/turns/$R_TURN.by-$$-$R_BORN" || {
					rm -f "$R_ROOM/turns/$R_TURN"
					return 1
				}
				r_last_turn
				if [ "$R_LAST" -eq "$R_TURN" ]; then
					r_drop_turns
					return 0
				fi
				# The number was free again, because a later turn has come.
				rm -f "$R_ROOM/turns/$R_TURN" "$R_ROOM/turns/$R_TURN".*
			fi
			r_last_turn
			[ "$R_LAST" -ge "$R_TURN" ] || return
		fi
		R_WAITED=$((R_WAITED + 1))
		r_pause
	done
	return 1
}

# r_read_mark: how far batch R_BATCH was done, in R_DONE: a number, "all", or "" when it was not
# begun
r_read_mark() {
	R_DONE= r_i= r_b= r_n=
	read -r r_i r_b r_n <"$R_ROOM/progress"
	# Where a runner of before has noted it, in lines.
	[ "${r_i:--}" != - ] || while read -r r_x r_y r_z; do
		r_i=$r_x r_b=$r_y r_n=$r_z
	done <"$R_ROOM/applied"
	[ "$r_i" = "$R_ID" ] || return 0
	[ "$r_b" -eq "$R_BATCH" ] && R_DONE=$r_n
	[ "$R_DONE" = done ] || [ "$r_b" -gt "$R_BATCH" ] && R_DONE=all
	return 0
}

# r_progress NUMBER: the line is done
r_progress() {
	printf '%-79s\n' "$R_ID $R_BATCH $1" 1<>"$R_ROOM/progress"
}

# r_drop_inputs: what was put for a call that never came. When that was is told by ctime, because
# who puts a file may give it any time.
r_drop_inputs() {
	find "$R_IN" -type f -ctime +0 | while IFS= read -r r_q; do
		[ "${r_q##*/}" -lt 2147483648 ] && rm -f "$r_q"
	done
}

# r_begin_batch: removes what others have left
r_begin_batch() {
	set --
	r_inputs=
	for r_q in "$R_IN"/*; do
		r_n=${r_q##*/}
		case $r_n in
		*[!0-9]* | 0*) continue ;;
		esac
		if [ "$r_n" -lt 2147483648 ]; then
			r_inputs=1
		elif [ $((r_n >> 26 & 31)) -ne $((R_BATCH & 31)) ]; then
			set -- "$@" "$r_q"
		fi
	done
	[ -z "$r_inputs" ] || r_drop_inputs
	for r_q in "$R_ROOM/stage" "./.sandboxfs-stage" "$R_ROOM/refused" "$R_ROOM/applied"; do
		[ -e "$r_q" ] && set -- "$@" "$r_q"
	done
	[ $# -eq 0 ] || rm -rf -- "$@"
	r_progress 0 || R_UNNOTED=1
}

# r_halt WHY: nothing more is done of the batch
r_halt() {
	[ -z "$R_STOP" ] || return 0
	R_STOP=$1
	case $R_WHY$1 in
	121*": No space left on device") R_WHY=28 ;;
	121*"uota exceeded") R_WHY=122 ;;
	esac
}

# r_halt_unwritten: the same, because the room cannot be written
r_halt_unwritten() {
	r_reason 121 "$R_ROOM cannot be written"
	R_WHY=$R_ERRNO
	r_halt "$R_TEXT"
}

# r_miss WHAT: the same, because that is not there; by 116 the host knows that it is to be put again
r_miss() {
	[ -n "$R_STOP" ] || R_WHY=116
	r_halt "$1 is not there"
}

# r_give_up ERRNO SENTENCE: ends the call
r_give_up() {
	r_fail "$1" "$2"
	r_end
	exit 0
}

# r_apply ID BATCH [NUMBER]: the lines are in the file of that number, or in r_batch
r_apply() {
	R_ID=$1 R_BATCH=$2
	R_WHY=121 R_STAGE= R_STOP= R_HALF= R_WHOLE= R_LAYERED= R_NUMBER=0 R_TURN= R_UNNOTED=
	R_NOTED_SENT=
	r_enter || r_give_up 2 "the tree is gone"
	r_take_turn || {
		r_reason 121 "no turn in $R_ROOM"
		r_give_up "$R_ERRNO" "cannot apply what was changed: $R_TEXT"
	}
	r_read_mark
	if [ -z "$R_DONE" ]; then
		R_DONE=0
		r_begin_batch
	elif [ "$R_DONE" != all ]; then
		R_HALF=1
	fi
	R_ALL=
	[ "$R_DONE" = all ] && R_ALL=1 R_DONE=9999999999
	r_run_lines "$3"
	true >"$R_ROOM/turns/$R_TURN.over"
	[ -z "$R_STOP" ] || r_give_up "$R_WHY" "cannot apply what was changed: $R_STOP"
	r_tell_refused
}

# r_clear ID BATCH [PATH...]: removes what that batch or a later one is to remove, and what was put
# for the batch, which is put again. So a full disk has room for what comes before. When the batch
# is done nothing is removed, because these may be names of something new by then.
r_clear() {
	R_ID=$1 R_BATCH=$2
	shift 2
	r_enter && r_take_turn || return
	r_read_mark
	[ "$R_DONE" = all ] || rm -rf -- "$R_ROOM/stage" ./.sandboxfs-stage "$R_IN"/[2-4]?????????
	[ "$R_DONE" = all ] || rm -f -- "$@"
	true >"$R_ROOM/turns/$R_TURN.over"
}

# r_tell_refused: of a line that a runner was killed at, or that had no room, the end is missing.
# Its step was not noted, and so is done again.
r_tell_refused() {
	[ -s "$R_ROOM/refused" ] || return 0
	while IFS= read -r r_line; do
		case $r_line in
		*" .") printf '%s\n' "${r_line% .}" ;;
		esac
	done <"$R_ROOM/refused" >&3
}

# r_run_lines [NUMBER]
r_run_lines() {
	if [ -z "$1" ]; then
		r_batch
	elif [ -f "$R_IN/$1" ]; then
		. "$R_IN/$1"
	elif [ -z "$R_ALL" ]; then
		r_miss "what is to be done"
	fi
	[ -n "$R_ALL$R_STOP" ] || r_progress done || r_halt_unwritten
	[ -z "$R_STAGE" ] || [ -n "$R_STOP" ] || rm -rf "$R_STAGE"
}

# r_skip NUMBER [1]: whether the line is not to be done; else it is the one that is at work. 1: it
# removes, which makes room, and may be done again: so it is done although what was done before it
# could not be noted.
r_skip() {
	[ -n "$R_STOP" ] || [ "$1" -le "$R_DONE" ] && return
	[ -z "$R_UNNOTED" ] || if r_progress "$R_NUMBER"; then
		R_UNNOTED=
	elif [ -z "$2" ]; then
		r_halt_unwritten
		return 0
	fi
	R_NUMBER=$1
	return 1
}

# r_note: the line at work is done
r_note() {
	R_HALF=
	[ -n "$R_STOP" ] || r_progress "$R_NUMBER" || R_UNNOTED=1
}

# r_refused PATH WHY: false. The frame is kept in a line that ends in " .", for all answers.
r_refused() {
	case $2 in
	*": No space left on device" | *"uota exceeded" | *": Read-only file system" | \
		*": Input/output error" | *": I/O error")
		r_halt "$2"
		;;
	*)
		r_text=$(printf '%s\0%s' "${1#./}" "$2" | r_encode)
		printf '\nN%s - %s %s 0 %s .\n' "$R_FORM" "$R_NUMBER" "$R_BATCH" "$r_text" \
			>>"$R_ROOM/refused" || r_halt_unwritten
		;;
	esac
	return 1
}

# r_try COMMAND...: the last word of it is the path that it is about
r_try() {
	r_why=$("$@" 2>&1) && return
	for r_p; do :; done
	r_refused "$r_p" "$r_why"
}

r_is_there() {
	[ -e "$1" ] || [ -h "$1" ]
}

r_is_dir() {
	[ -d "$1" ] && [ ! -h "$1" ]
}

# r_do_mkdir NUMBER PATH...
r_do_mkdir() {
	r_skip "$1" && return
	shift
	mkdir -- "$@" || for r_q; do
		r_is_dir "$r_q" || r_try mkdir -- "$r_q"
	done
	r_note
}

# r_do_rm NUMBER PATH...
r_do_rm() {
	r_skip "$1" 1 && return
	shift
	rm -f -- "$@" || for r_q; do
		r_try rm -f -- "$r_q"
	done
	r_note
}

# r_do_rmdir NUMBER PATH...
r_do_rmdir() {
	r_skip "$1" 1 && return
	shift
	rmdir -- "$@" || for r_q; do
		! r_is_there "$r_q" || r_try rmdir -- "$r_q"
	done
	r_note
}

# r_do_open NUMBER MODE PATH...: directories, before something is done in them
r_do_open() {
	r_skip "$1" && return
	shift
	r_chmod "$@"
	r_note
}

# r_chmod MODE PATH...
r_chmod() {
	chmod "$@" && return
	r_m=$1
	shift
	for r_q; do
		r_try chmod "$r_m" "$r_q"
	done
}

# r_is_layered: whether the tree is an overlay. An overlay copies a file of a layer below as soon as
# a name of it is changed, moved or linked, and the file's other names keep the old one.
r_is_layered() {
	[ -n "$R_LAYERED" ] || case $(stat -f -c %t . || find . -prune -printf %F) in
	794c7630 | overlay) R_LAYERED=yes ;;
	*) R_LAYERED=no ;;
	esac
	[ "$R_LAYERED" = yes ]
}

# r_numbers FILE: its device and its inode
r_numbers() {
	find "$1" -prune -printf '%D %i' || stat -c '%d %i' "$1"
}

# r_hold PATH...: before they are changed. The other names of these files become names of the copy
# that an overlay makes.
r_hold() {
	for r_h; do
		[ ! -f "$r_h" ] || break
		shift
	done
	[ $# -gt 0 ] && r_is_layered || return 0
	r_many=$(find "$@" -prune -type f -links +1) && [ -z "$r_many" ] && return
	r_open_stage
	# Of what was broken off some may be left to do.
	r_copied=$R_HALF
	for r_h; do
		[ ! -f "$r_h" ] || [ -h "$r_h" ] || r_copy_up "$r_h" $(r_numbers "$r_h")
	done
	[ -z "$r_copied" ] || r_rejoin
	rm -f "$R_STAGE"/held.*
}

# r_copy_up PATH DEVICE INODE: for one more name the overlay copies the file, where it has not yet.
# That name has the numbers of the other names, which are those of before.
r_copy_up() {
	[ $# = 3 ] && [ ! -e "$R_STAGE/held.$2.$3" ] && ln -- "$1" "$R_STAGE/held.$2.$3" || return
	if [ "$(r_numbers "$1")" = "$2 $3" ]; then
		rm -f "$R_STAGE/held.$2.$3"
	else
		r_copied=1
	fi
}

# r_rejoin: the names of what r_copy_up has held, wherever in the tree. A name is never missing.
r_rejoin() {
	{
		find . -xdev -type f -links +1 -printf '%D %i %p\n' ||
			find . -xdev -type f -links +1 -exec stat -c '%d %i %n' {} +
	} | while IFS= read -r r_line; do
		r_dev=${r_line%% *} r_q=${r_line#* }
		r_ino=${r_q%% *} r_q=${r_q#* }
		r_held=$R_STAGE/held.$r_dev.$r_ino
		[ -f "$r_held" ] && [ "$(r_numbers "$r_q")" = "$r_dev $r_ino" ] &&
			ln -f -- "$r_held" "$R_STAGE/other" && mv -f -- "$R_STAGE/other" "$r_q"
	done
}

# r_move_file FROM TO: over what may be there, but not into it
r_move_file() {
	if r_is_dir "$2"; then
		r_refused "$2" "a directory is there"
		return
	fi
	# mv follows links to directories, stumbles over those that lead round in a circle, and leaves
	# alone what it takes for the same file, as a link and what it leads to.
	if [ -h "$2" ] || { [ -e "$2" ] && { [ -h "$1" ] || [ "$1" -ef "$2" ]; }; }; then
		r_try rm -f -- "$2" || return
	fi
	r_try mv -f -- "$1" "$2"
}

# r_make_way PATH: nothing is there any more
r_make_way() {
	if r_is_dir "$1"; then
		r_refused "$1" "a directory is there"
	elif r_is_there "$1"; then
		r_try rm -f -- "$1"
	fi
}

# r_do_mv NUMBER FROM TO
r_do_mv() {
	r_skip "$1" && return
	if ! r_is_there "$2"; then
		[ -n "$R_HALF" ] || r_refused "$2" "it is gone"
	elif ! r_is_dir "$2"; then
		r_hold "$2"
		r_move_file "$2" "$3"
	elif ! r_is_dir "$3"; then
		r_make_way "$3" && r_try mv -f -- "$2" "$3"
	elif rmdir -- "$3"; then
		r_try mv -f -- "$2" "$3"
	else
		# Perhaps a part of a copy that was broken off, perhaps what a command has made.
		r_refused "$3" "the directory is not empty"
	fi
	r_note
}

# r_do_link NUMBER FROM TO
r_do_link() {
	r_skip "$1" && return
	if ! r_is_there "$2" || r_is_dir "$2"; then
		r_refused "$2" "it is gone"
	elif r_make_way "$3"; then
		r_hold "$2"
		r_try ln -- "$2" "$3"
	fi
	r_note
}

# r_do_symlink NUMBER TIME TARGET PATH
r_do_symlink() {
	r_skip "$1" && return
	r_make_way "$4" && r_try ln -s -- "$3" "$4" && r_do_link_time "$2" "$4"
	r_note
}

# r_do_fifo NUMBER PATH
r_do_fifo() {
	r_skip "$1" && return
	r_make_way "$2" && r_try mkfifo "$2"
	r_note
}

# r_do_socket NUMBER PATH
r_do_socket() {
	r_skip "$1" && return
	r_refused "$2" "a socket is of one machine only"
	r_note
}

# r_open_stage: R_STAGE is where a file can be moved from to the tree, and not copied
r_open_stage() {
	[ -z "$R_STAGE" ] || return 0
	R_STAGE=$R_ROOM/stage
	set -- $(stat -c %d "$R_ROOM" .)
	[ "$1" = "$2" ] && [ -n "$1" ] || R_STAGE=./.sandboxfs-stage
	[ -d "$R_STAGE" ] || r_why=$(mkdir "$R_STAGE" 2>&1) || r_halt "$r_why"
}

# r_halt_unpacked WHY: a full disk is told by tar(1) in the midst of its words, or not at all
r_halt_unpacked() {
	r_why=$1$(head -c 65536 /dev/zero 2>&1 >"$R_STAGE/try")
	case $r_why in
	*"No space left on device"*) R_WHY=28 ;;
	*"uota exceeded"*) R_WHY=122 ;;
	esac
	r_halt "$1"
}

# r_do_pack NUMBER FILE: opens the pack, unless what is in it was put up to the line NUMBER
r_do_pack() {
	[ -z "$R_STOP" ] && [ "$1" -gt "$R_DONE" ] || return
	[ -f "$R_IN/$2" ] || r_miss "what it puts"
	r_open_stage
	[ -z "$R_STOP" ] || return
	if command -v tar; then
		r_why=$(tar -xpof "$R_IN/$2" -C "$R_STAGE" 2>&1) || r_halt_unpacked "$r_why"
	else
		r_untar "$R_IN/$2" || r_halt_unpacked "cannot write to $R_STAGE"
	fi
}

# r_untar FILE: as tar; the heads are plain, see pack.c
r_untar() {
	r_k=0 r_when=
	while :; do
		r_head=$(dd if="$1" bs=512 skip=$r_k count=1 | tr -s '\0' '\n')
		[ -n "$r_head" ] || return 0
		{
			IFS= read -r r_name
			read -r r_mode
			read -r r_x
			read -r r_x
			read -r r_size
			read -r r_time
			read -r r_x
			IFS= read -r r_type
		} <<-END
			$r_head
		END
		r_k=$((r_k + 1)) r_size=$((0$r_size)) r_out=$R_STAGE/$r_name
		r_n=$((r_size / 512))
		case $r_type in
		" x"*)
			r_when=$(dd if="$1" bs=512 skip=$r_k count=1 | tr -d '\0')
			r_when=${r_when#*mtime=}
			;;
		" 2"*)
			mkdir -p "${r_out%/*}" && ln -sf -- "${r_type# 2}" "$r_out" || return
			r_when=
			;;
		*)
			mkdir -p "${r_out%/*}" && rm -f -- "$r_out" && {
				dd if="$1" bs=512 skip=$r_k count=$r_n &&
					dd if="$1" bs=1 skip=$(((r_k + r_n) * 512)) count=$((r_size % 512))
			} >"$r_out" && chmod "$r_mode" "$r_out" || return
			r_touch -c "${r_when:-$((0$r_time)).0}" "$r_out"
			r_when=
			;;
		esac
		r_k=$((r_k + (r_size + 511) / 512))
	done
}

# r_into FILE PATH: moves it into place
r_into() {
	if r_is_there "$1"; then
		r_move_file "$1" "$2"
	elif [ -z "$R_HALF" ]; then
		r_miss "what is put at $2"
	fi
}

# r_left N...: how many of N lines, the last of which is at work, are still to be done, in R_LEFT
r_left() {
	R_LEFT=$1
	[ $((R_NUMBER - R_LEFT)) -ge "$R_DONE" ] || R_LEFT=$((R_NUMBER - R_DONE))
}

# r_do_place NUMBER STAGED DIRECTORY NAME...: as many lines as there are names
r_do_place() {
	r_skip "$1" && return
	r_from=$R_STAGE/$2 r_to=$3
	shift 3
	r_left $#
	shift $(($# - R_LEFT))
	r_move "" "$@"
	r_note
}

# r_move MODE NAME...: from r_from to r_to; MODE as in r_put
r_move() {
	r_m=$1
	shift
	for r_q; do
		r_is_there "$r_from/$r_q" || [ -n "$R_HALF" ] || r_miss "what is put at $r_to/$r_q"
		set -- "$@" "$r_from/$r_q"
		shift
	done
	[ -z "$R_STOP" ] || return
	mv -f -- "$@" "$r_to/" || for r_q; do
		! r_is_there "$r_q" || r_put "$r_q" "$r_to/${r_q##*/}" "$r_m"
	done
}

# r_put FILE PATH MODE: into place. MODE "": a new file. Else these are new contents of the file
# that is there, which is kept where its directory may not be written to.
r_put() {
	if [ -n "$3" ] && [ -f "$1" ] && [ -f "$2" ] && [ ! -h "$2" ]; then
		mv -f -- "$1" "$2" || r_write "$@"
	else
		r_into "$1" "$2"
	fi
}

# r_write FILE PATH MODE: to the file that is there
r_write() {
	r_why=$({ cat "$1" >"$2" || { chmod u+w "$2" && cat "$1" >"$2"; }; } 2>&1) ||
		r_refused "$2" "$r_why" || return
	touch -r "$1" "$2"
	chmod "$3" "$2" && rm -f -- "$1"
}

# r_do_over NUMBER STAGED MODE DIRECTORY NAME...: over files that may have other names
r_do_over() {
	r_skip "$1" && return
	r_from=$R_STAGE/$2 r_m=$3 r_to=$4
	shift 4
	r_left $#
	shift $(($# - R_LEFT))
	for r_q; do
		set -- "$@" "$r_to/$r_q"
		shift
	done
	if r_many=$(find "$@" -prune -type f -links +1) && [ -z "$r_many" ]; then
		for r_q; do
			set -- "$@" "${r_q##*/}"
			shift
		done
		r_move "$r_m" "$@"
	else
		r_hold "$@"
		for r_o; do
			r_over "$r_from/${r_o##*/}" "$r_o" "$r_m"
		done
	fi
	r_note
}

# r_over FILE PATH MODE: keeps the file that is there where it has other names
r_over() {
	r_l=$(ls -ld -- "$2")
	set -- "$1" "$2" "$3" ${r_l%%./*}
	if [ -f "$2" ] && [ ! -h "$2" ] && [ "$5" -gt 1 ] && [ -f "$1" ]; then
		r_write "$1" "$2" "$3"
	else
		r_put "$1" "$2" "$3"
	fi
}

# r_do_put NUMBER FILE KIND MODE TIME PATH: KIND is new, or old as in r_do_over
r_do_put() {
	r_skip "$1" && return
	r_open_stage
	r_s=$R_IN/$2
	if [ "$R_STAGE" != "$R_ROOM/stage" ]; then
		r_s=$R_STAGE/$2
		[ ! -f "$R_IN/$2" ] || r_why=$(mv -f "$R_IN/$2" "$r_s" 2>&1) || r_halt "$r_why"
	fi
	if [ -f "$r_s" ]; then
		chmod "$4" "$r_s"
		r_touch -c "$5" "$r_s"
	fi
	if [ -n "$R_STOP" ]; then
		return
	elif [ "$3" = old ]; then
		r_hold "$6"
		r_over "$r_s" "$6" "$4"
	else
		r_into "$r_s" "$6"
	fi
	r_note
}

# r_touch FLAGS TIME PATH...: in whole seconds where no others are known
r_touch() {
	r_f=$1 r_w=$2
	shift 2
	[ -z "$R_WHOLE" ] && touch "$r_f" -d "@$r_w" "$@" && return
	touch "$r_f" -d "@${r_w%.*}" "$@" && R_WHOLE=1
}

# r_do_time TIME PATH...
r_do_time() {
	[ -z "$R_ALL$R_STOP" ] || return
	r_w=$1
	shift
	r_hold "$@"
	r_touch -c "$r_w" "$@" && return
	for r_q; do
		r_try touch -c -d "@${r_w%.*}" "$r_q"
	done
}

# r_do_link_time TIME PATH...
r_do_link_time() {
	[ -z "$R_ALL$R_STOP" ] || return
	r_touch -ch "$@"
}

# r_do_mode MODE PATH...
r_do_mode() {
	[ -z "$R_ALL$R_STOP" ] || return
	r_m=$1
	shift
	r_hold "$@"
	r_chmod "$r_m" "$@"
}

# r_do_sent PATH...: tells how they are now. Those of a batch that was done before may have been
# written to, or replaced, since. So what was noted when they came is told before.
r_do_sent() {
	[ -z "$R_STOP" ] && r_enter || return
	r_now=$(date +%s%N)
	case $r_now in
	*[!0-9]* | ?????????? | ???????????) r_now=$(date +%s)000000000 ;;
	esac
	if [ -z "$R_ALL" ]; then
		r_note_sent "$@"
		r_look_at_sent "=" "$@" | r_frame M - "$r_now"
	else
		r_tell_noted
		r_look_at_sent - "$@" | r_frame M - "$r_now"
	fi
}

# r_note_sent PATH...: notes it in $R_ROOM/sent, behind a line "ID BATCH", as the end of a frame.
# One that was cut, by a kill or for want of room, has no mark at its end.
r_note_sent() {
	[ -n "$R_NOTED_SENT" ] || echo "$R_ID $R_BATCH" >"$R_ROOM/sent"
	R_NOTED_SENT=1
	{
		printf '%s ' "$r_now"
		r_look_at_sent "~" "$@" | r_encode && echo " ."
	} >>"$R_ROOM/sent" || true >"$R_ROOM/sent"
}

# r_tell_noted: once
r_tell_noted() {
	[ -z "$R_NOTED_SENT" ] && [ -s "$R_ROOM/sent" ] || return 0
	R_NOTED_SENT=1
	{
		read -r r_line
		[ "$r_line" != "$R_ID $R_BATCH" ] || while IFS= read -r r_line; do
			case $r_line in
			*" .") printf 'M%s - %s 0 %s\n' "$R_FORM" "$r_now" "${r_line% .}" ;;
			esac
		done
	} <"$R_ROOM/sent" >&3
}

# r_look_at_sent FLAG PATH...: records of a manifest
r_look_at_sent() {
	r_as=$1
	shift
	if find . -prune -printf ''; then
		find "$@" -prune -type f -printf "$r_as"'%y %m %s %T@,%C@ %i %n %p\0\0'
	else
		r_list_sent "$@"
	fi
}

# r_list_sent PATH...: the same by stat, as r_walk_stat has it
r_list_sent() {
	[ "$R_top" ] || r_look_around >/dev/null
	find "$@" -prune -type f ! -path "*$R_NL*" -print0 | xargs -0 -r stat -c "$R_form" |
		sed "$R_types;s/^-f /${r_as}f /" | tr '\n' '\0'
}
