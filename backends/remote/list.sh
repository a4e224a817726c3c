# The tree: what is in it, what has changed, what files hold. Listings answer in REMOTE_MANIFEST
# frames, whose A is when they were begun; manifest.h has the records. No path goes through a link,
# and nothing that is called .git is told of.
#
# Stamps are files $R_ROOM/s.NAME. One holds the time it was made, and its own is a second before,
# because what changes within the tick of a stamp is not newer than it.
R_NL='
'
R_MIB=1048576
R_CAP=48000000
R_top=

# r_zip KIND WORD A B: a frame of the bytes of standard input
r_zip() {
	if command -v gzip; then
		gzip -1c | r_frame "$1z" "$2" "$3" "$4"
	else
		r_frame "$1" "$2" "$3" "$4"
	fi
}

# r_records WORD BEGUN: a frame of the records on standard input. It says since when all files have
# other inodes than in the last one
r_records() {
	R_moved=0
	! [ -e "$R_ROOM/renumbered" ] || {
		R_moved=$(stat -c %.9Z "$R_ROOM/renumbered" | tr -d .)
		case $R_moved in
		'' | *[!0-9]*) R_moved=$(stat -c %Z "$R_ROOM/renumbered")000000000 ;;
		esac
		rm -f "$R_ROOM/renumbered"
	}
	head -c $R_CAP | r_zip M "$1" "$2" "$R_moved"
}

# r_now: R_NOW is the time in nanoseconds
r_now() {
	R_NOW=$(date +%s%N)
	case $R_NOW in
	*[!0-9]*)
		echo >"$R_ROOM/now.$$"
		R_NOW=$(r_time "$R_ROOM/now.$$")
		rm -f "$R_ROOM/now.$$"
		;;
	esac
}

# r_time FILE: when it was changed, in nanoseconds
r_time() {
	set -- $(stat -c '%Y %y' "$1") 0 0 0
	case $3 in
	*.?????????) echo "$1${3#*.}" ;;
	*) echo "${1}000000000" ;;
	esac
}

# r_home: the directory to work in is the tree
r_home() {
	[ "$R_top" ] || r_look_around
	[ "$R_top" ] && r_enter && return
	r_fail 116 "the directory of the tree is not there any more" 1
	return 1
}

# r_look_around: what there is to work with
r_look_around() {
	R_top=$(r_enter && pwd -P)
	if find / -maxdepth 0 -cnewer / -printf x; then
		R_new=-cnewer
		R_form='%m %s %T@,%C@ %i %n %p\0'
		return
	fi
	R_new=
	find / -maxdepth 0 -cmin -1000 && R_new=-cmin
	# stat(1) adds the second newline.
	R_form="%A %a %s %Y %y %Z %z %i %h %n$R_NL"
}

# r_in DIR: goes to the directory, where it is one of the tree and beneath no link
r_in() {
	case $1 in
	.) cd -P -- "$R_top/" ;;
	*) cd -P -- "$R_top/$1" && [ "$PWD" = "${R_top%/}/$1" ] ;;
	esac
}

# r_gone PATH: the record of what is not there
r_gone() {
	printf '?f 0 0 0 0 0 %s\0\0' "$1"
}

# r_no_dir PATH: the record of what is not there, or of what is there and is no directory; goes
# elsewhere
r_no_dir() {
	case $1 in
	*/*) r_in "${1%/*}" ;;
	*) r_home ;;
	esac
	if [ $? = 0 ] && [ -h "./${1##*/}" -o -e "./${1##*/}" ]; then
		r_home && r_walk - "./$1" -maxdepth 0
	else
		r_gone "$1"
	fi
}

# r_walk FLAG ARGUMENTS: the records of what find(1) finds; FLAG for directories
r_walk() {
	R_flag=$1
	shift
	if [ "$R_new" != -cnewer ]; then
		r_walk_stat "$@"
		return
	fi
	find "$@" \( -type f -printf "-f $R_form\0" -o \
		-type d -readable -printf "${R_flag}d $R_form\0" -o \
		-type d -printf "-d $R_form\0" -o \
		-type l -printf "-l $R_form%l\0" -o \
		-type p -printf "-p $R_form\0" -o -type s -printf "-s $R_form\0" \)
}

# Of each day and time that stat(1) tells, the fraction is kept.
R_types='s/^-[^ ]* /-f /
	s/^d-[^ ]* /-d /
	s/^d[^ ]* /Ld /
	s/^\([ps]\)[^ ]* /-\1 /
	s/^\(.. [0-7]* [0-9]* [-0-9]*\) [-0-9]* [:0-9]*\([.0-9]*\) [-+0-9]* /\1\2,/
	s/^\(.. [0-7]* [0-9]* [-.0-9]*,[-0-9]*\) [-0-9]* [:0-9]*\([.0-9]*\) [-+0-9]* /\1\2 /'

# r_walk_stat ARGUMENTS: the same without -printf. A name with a newline, and a link, are looked at
# one by one.
r_walk_stat() {
	export R_flag
	find "$@" ! -type l ! -type b ! -type c ! -path "*$R_NL*" -print0 |
		xargs -0 -r stat -c "$R_form" | sed "$R_types;s/^L/$R_flag/" | tr '\n' '\0'
	find "$@" \( -type l -o -path "*$R_NL*" \) -exec sh -c "$R_one" sh {} +
}

R_one='for f do
	s=$(stat -c "%a %s %Y %y %Z %z %i %h" "$f") || continue
	set -- $s
	t=${5#*.}
	[ "$t" = "$5" ] && t=0
	s="$1 $2 $3.$t"
	t=${9#*.}
	[ "$t" = "$9" ] && t=0
	s="$s,$7.$t ${11} ${12}"
	if [ -h "$f" ]; then
		t=$(readlink "$f" && echo .)
		printf "%s\0%s\0" "-l $s $f" "${t%??}"
	elif [ -f "$f" ]; then
		printf "%s\0\0" "-f $s $f"
	elif [ -d "$f" ]; then
		t=$R_flag
		[ -r "$f" ] || t=-
		printf "%s\0\0" "${t}d $s $f"
	elif [ -p "$f" ]; then
		printf "%s\0\0" "-p $s $f"
	elif [ -S "$f" ]; then
		printf "%s\0\0" "-s $s $f"
	fi
done'

# r_sizes ARGUMENTS: the sizes of the regular files that find(1) finds
r_sizes() {
	if [ "$R_new" = -cnewer ]; then
		find "$@" -type f -printf '%s\n'
	else
		find "$@" -type f -exec stat -c %s {} +
	fi
}

# r_count MOST ARGUMENTS: how many find(1) finds, or more than MOST
r_count() {
	R_most=$1
	shift
	find "$@" -name .git -prune -o -print0 | tr -cd '\0' | head -c $((R_most + 1)) | wc -c
}

# r_levels DEPTH DIR...: the records of DIRs so far down
r_levels() {
	R_depth=$1
	shift
	r_walk L "$@" -maxdepth $((R_depth - 1)) -name .git -prune -o -type d
	r_walk - "$@" -maxdepth "$R_depth" -name .git -prune -o ! -type d
	r_walk - "$@" -mindepth "$R_depth" -maxdepth "$R_depth" -type d ! -path '*/.git/*' \
		! -name .git
}

# r_list LIMIT DIR...: the names in DIRs; a little more where there is little in them
r_list() {
	r_home || return
	R_limit=$1
	shift
	r_now
	{
		for R_dir do
			shift
			if r_in "$R_dir"; then
				[ "$R_dir" = . ] || R_dir=./$R_dir
				set -- "$@" "$R_dir"
			else
				r_no_dir "$R_dir"
			fi
		done
		r_home
		if [ $# = 0 ]; then
			:
		elif [ $# != 1 ] && [ "$(r_count "$R_limit" "$@" -maxdepth 1)" -gt "$R_limit" ]; then
			printf '!\0\0'
		elif [ "$(r_count 1000 "$@" -maxdepth 3)" -le 1000 ]; then
			r_levels 3 "$@"
		else
			r_levels 1 "$@"
		fi
	} | r_records - "$R_NOW"
}

# r_stamp NAME: makes it, unless an earlier sending has; R_NOW is when
r_stamp() {
	if [ -s "$R_ROOM/s.$1" ]; then
		read -r R_NOW <"$R_ROOM/s.$1"
		return
	fi
	r_now
	echo "$R_NOW" >"$R_ROOM/s.$1"
	touch -d "@$((${R_NOW%?????????} - 1))" "$R_ROOM/s.$1" || rm -f "$R_ROOM/s.$1"
}

# r_newer OLD: words for find(1), which tell what has changed since that stamp; fails where nobody
# knows, as where the clock was set back since
r_newer() {
	[ "$R_new" ] && [ "$1" ] && [ -s "$R_ROOM/s.$1" ] || return
	R_since=$R_ROOM/s.$1
	read -r R_then <"$R_since"
	[ "${R_then%?????????}" -le "${R_NOW%?????????}" ] || return
	if [ "$R_new" = -cmin ]; then
		read -r R_since <"$R_since"
		R_since=-$((($(date +%s) - ${R_since%?????????}) / 60 + 2))
	fi
}

# r_all LIMIT [NEW]: the records of the tree, of its upper levels where there are more
r_all() {
	r_home || return
	if [ "$2" ]; then
		r_stamp "$2"
	else
		r_now
	fi
	if [ "$(r_count "$1" .)" -le "$1" ]; then
		r_walk L . -name .git -prune -o
	else
		R_depth=1
		while [ "$(r_count "$1" . -maxdepth $((R_depth + 1)))" -le "$1" ]; do
			R_depth=$((R_depth + 1))
		done
		r_levels "$R_depth" .
	fi | r_records "$2" "$R_NOW"
}

# r_changed: of the directories on standard input, one a line and those above first, all that is in
# them, and in those below that have changed
r_changed() {
	set --
	R_up=//
	while IFS= read -r R_dir; do
		while :; do
			R_last=${R_up%%//*}
			case $R_dir in
			"$R_last"/*) break ;;
			esac
			[ "$R_last" ] || break
			R_up=${R_up#*//}
		done
		# Who is right below one that is walked is walked with it.
		[ "$R_last" ] && [ "$R_last" = "${R_dir%/*}" ] || set -- "$@" "$R_dir"
		R_up=$R_dir//$R_up
		[ $# -lt 100 ] || {
			r_changed_walk "$@"
			set --
		}
	done
	[ $# = 0 ] || r_changed_walk "$@"
}

r_changed_walk() {
	r_walk L "$@" -name .git -prune -o -type d ! "$R_new" "$R_since" -prune -o
	r_walk - "$@" -name .git -prune -o -type d ! "$R_new" "$R_since" -prune
}

# r_changes OLD NEW [DIR...]: what has changed in the DIRs, or the tree, since stamp OLD was made
# ("": all is told); NEW is made first. Of DIRs that follow one another each begins with the number
# of parts that it has in common with the one before: "0/a/b 1/c" is a/b and a/c; "." is the root.
r_changes() {
	r_home || return
	R_old=$1
	R_name=$2
	shift 2
	r_stamp "$R_name"
	find "$R_ROOM" -maxdepth 1 -name 's.*' ! -name "s.$R_old" ! -name "s.$R_name" -mmin +5 \
		-exec rm -f {} +
	{
		if [ $# = 0 ]; then
			r_changes_all
		else
			r_changes_in "$@"
		fi
	} | r_records "$R_name" "$R_NOW"
}

r_changes_all() {
	if ! r_newer "$R_old"; then
		r_walk L . -name .git -prune -o
		return
	fi
	find . -name .git -prune -o -type d ! -path "*$R_NL*" "$R_new" "$R_since" -print | r_changed
	r_walk - . -name .git -prune -o ! -type d "$R_new" "$R_since"
	r_walk L . -name .git -prune -o -path "*$R_NL*"
}

r_changes_in() {
	R_path=
	R_parts=0
	R_first=1
	for R_dir do
		[ "$R_first" ] && set --
		R_first=
		if [ "$R_dir" != . ]; then
			r_unfold "$R_dir"
			R_dir=$R_path
		fi
		if r_in "$R_dir"; then
			[ "$R_dir" = . ] || R_dir=./$R_dir
			set -- "$@" "$R_dir"
		else
			r_no_dir "$R_dir"
		fi
	done
	r_home
	[ $# = 0 ] && return
	if ! r_newer "$R_old"; then
		r_levels 1 "$@"
		return
	fi
	find "$@" -maxdepth 0 ! -path "*$R_NL*" "$R_new" "$R_since" -print | r_changed
	for R_dir do
		case $R_dir in
		*"$R_NL"*) r_levels 1 "$R_dir" ;;
		esac
	done
	r_walk - "$@" -maxdepth 1 -name .git -prune -o "$R_new" "$R_since" \
		\( ! -type d -o -prune \)
}

# r_unfold N/REST: R_path is the first N parts of what it was, and REST
r_unfold() {
	R_keep=${1%%/*}
	while [ "$R_parts" -gt "$R_keep" ]; do
		case $R_path in
		*/*) R_path=${R_path%/*} ;;
		*) R_path= ;;
		esac
		R_parts=$((R_parts - 1))
	done
	R_rest=${1#*/}
	R_path=${R_path:+$R_path/}$R_rest
	while :; do
		R_parts=$((R_parts + 1))
		case $R_rest in
		*/*) R_rest=${R_rest#*/} ;;
		*) break ;;
		esac
	done
}

# r_read WORD PATH OFFSET LENGTH: the record of a file, and bytes of it; OFFSET is whole MiB
r_read() {
	r_home || return
	r_now
	case $2 in
	*/*) r_in "${2%/*}" ;;
	esac
	R_there=$?
	R_file=./${2##*/}
	if [ $R_there = 0 ] && [ -h "$R_file" -o -e "$R_file" ]; then
		r_home
		r_walk - "./$2" -maxdepth 0 | r_records "$1" "$R_NOW"
		[ -h "./$2" ] || [ ! -f "./$2" ] || r_bytes "$1" "./$2" "$3" "$4"
	else
		r_home
		r_gone "$2" | r_records "$1" "$R_NOW"
	fi
}

# r_bytes WORD PATH OFFSET LENGTH
r_bytes() {
	dd "if=$2" bs=$R_MIB skip=$(($3 / R_MIB)) count=$((($4 + R_MIB - 1) / R_MIB)) |
		head -c "$4" | r_zip D "$1" "$3"
}

# r_gather MAXFILE MAXTOTAL [PATH...]: a tar of the regular files among PATHs that have MAXFILE
# bytes at most, behind their records; without tar(1) the bytes of each, whose word is the number of
# its PATH, from 0. Without PATH, of all of the tree, if they have MAXTOTAL bytes at most; and no
# records.
r_gather() {
	r_home || return
	R_max=$1
	R_total=$2
	shift 2
	R_size=-$((R_max + 1))c
	if [ $# != 0 ]; then
		r_gather_some "$@"
	elif command -v tar && r_gather_fits; then
		find . -name .git -prune -o -type f -size "$R_size" -exec tar -cf - {} + |
			r_zip T - 0
	fi
}

r_gather_fits() {
	[ "$(r_sizes . -name .git -prune -o | {
		R_sum=0
		while [ $R_sum -le "$R_total" ] && read -r R_one_size; do
			R_sum=$((R_sum + R_one_size))
		done
		echo $R_sum
	})" -le "$R_total" ]
}

r_gather_some() {
	r_now
	R_last=//
	R_number=0
	for R_path do
		shift
		case $R_path in
		*/*) R_dir=${R_path%/*} ;;
		*) R_dir=. ;;
		esac
		[ "$R_dir" = "$R_last" ] || {
			r_in "$R_dir"
			R_there=$?
			R_last=$R_dir
		}
		# The places of the others count.
		[ $R_there = 0 ] && set -- "$@" "./$R_path" || set -- "$@" /dev/null
	done
	r_home
	r_walk - "$@" -maxdepth 0 -type f -size "$R_size" | r_records - "$R_NOW"
	if command -v tar; then
		find "$@" -maxdepth 0 -type f -size "$R_size" -exec tar -cf - {} + | r_zip T - 0
		return
	fi
	for R_path do
		[ -h "$R_path" ] || [ ! -f "$R_path" ] ||
			r_bytes "$R_number" "$R_path" 0 "$R_max"
		R_number=$((R_number + 1))
	done
}
