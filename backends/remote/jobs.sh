# Commands. Each has a directory in $R_JOBS by its id. Who makes that starts the command, so it is
# started once, however often it is asked for. There are
#   in         its standard input, if there is any
#   out err    what it has written, as much as is kept; out.in and err.in are the pipes, out.all and
#              err.all those to who counts, and out.n and err.n how much it was
#   super-PID pid-PID   processes: who watches over it, and itself
#   kill-SIGNAL         a signal that came before it was executed
#   fail-ERRNO          it could not be started; "fail" is a sentence, where there was room for it
#   lease               made by who asks for the job, and taken away by who watches over it
#   end-CODE-USER-SYS-OUT-ERR-WHY   it has ended; ms; bytes that it has written, 0: not known;
#                       WHY is "oom" or empty
# What the runner has to know is in names, as these need no room on a full disk.
# $R_JOBS/over has the names of those that were read to the end, and that do not start again. They
# are forgotten after an hour: a start is repeated for minutes.
R_JOBS=$R_ROOM/jobs
R_MERGE= # 1: stderr is a part of stdout
R_TERM=  # after so many ms the job gets SIGTERM from here, and SIGKILL a second later; empty: never
R_EVENTS=/sys/fs/cgroup/memory.events
R_ELF=$(printf '\177ELF')

# What who watches needs as well, which is a shell of its own.
#
# r_job_noted DIR KIND: R_NOTED, what the name KIND-... in it says; fails where there is none
#
# r_job_watched JOB DIR: whether somebody watches over it; the number may be another's by now.
#
# r_job_pids JOB DIR: R_PIDS, the processes of a job: those that have its mark in their environment,
# those in the session of its leader, and what descends from them. What has left the session, has
# another environment and no parent of these any more escapes.
#
# r_job_kill SIGNAL JOB DIR: sends it to all of them; by 9 none is left.
R_JOB_KILL='
r_job_noted() {
	for R_NOTED in "$1/$2-"*; do
		R_NOTED=${R_NOTED##*/"$2"-}
	done
	[ "$R_NOTED" != "*" ] && return
	# A runner of before has it in the file of that name.
	case $2 in
	super | pid) [ -s "$1/$2" ] && read -r R_NOTED <"$1/$2" ;;
	*) return 1 ;;
	esac
}
r_job_watched() {
	r_job_noted "$2" super || return
	case $(cat "/proc/$R_NOTED/cmdline") in
	*"$1"*) ;;
	*) return 1 ;;
	esac
}
r_job_pids() {
	R_PIDS=" "
	for r_p in $(grep -lzxF "SANDBOXFS_JOB=$1" /proc/[0-9]*/environ); do
		r_p=${r_p#/proc/}
		R_PIDS="$R_PIDS${r_p%/*} "
	done
	r_leader=-
	r_job_watched "$1" "$2" && r_job_noted "$2" pid && r_leader=$R_NOTED
	r_all=$(sed -n "s/^\([0-9]*\) (.*) [^ZX] \([0-9]*\) [0-9]* \([0-9]*\) .*/\1 \2 \3/p" \
		/proc/[0-9]*/stat)
	r_more=1
	while [ "$r_more" ]; do
		r_more=
		set -- $r_all
		while [ $# -gt 2 ]; do
			r_is=
			case $R_PIDS in
			*" $1 "*) ;;
			*" $2 "*) r_is=1 ;;
			*) case " $1 $3 " in *" $r_leader "*) r_is=1 ;; esac ;;
			esac
			[ "$r_is" ] && R_PIDS="$R_PIDS$1 " r_more=1
			shift 3
		done
	done
}
r_job_kill() {
	r_round=0
	r_left=1
	while [ "$r_left" ] && [ $r_round -lt 100 ]; do
		r_left=
		r_round=$((r_round + 1))
		r_job_pids "$2" "$3"
		for r_p in $R_PIDS; do
			kill "-$1" "$r_p" && r_left=1
		done
		[ "$1" = 9 ] || return
		[ -z "$r_left" ] || sleep 0.02 || sleep 1
	done
}
'
eval "$R_JOB_KILL"

# Who watches: JOB DIR LEASE TIME TERM KEEP EVENTS ERR LEAD, then what LEAD gets. LEASE in seconds,
# TIME in ms, 0: none. TERM: as R_TERM. KEEP: blocks of 512 bytes that are kept of each stream. ERR:
# the file of stderr. A reader that has reached its limit goes on and drops what follows; without a
# tee it is ended by it, and another follows. A count is written over blanks, as that needs no room
# on a full disk. Time is counted in naps, as a machine that slept has a clock that jumps. Pipes
# that are open one second after all that can be killed is dead are a stranger's, unless a reader
# still has its turn to come: a machine under load may not have begun it. The job is started from a
# subshell because a shell tells of its end by a signal where its own output goes to.
#
# r_rest MS: a nap as exact as the machine can have it, or a little longer. A trap ends it.
#
# r_reads: whether one of the readers, or a child of theirs, has something to do
R_JOB_WATCH='
r_job=$1 r_dir=$2 r_lease=$3 r_time=$4 r_term=$5 r_keep=$6 r_events=$7 r_err=$8 r_lead=$9
shift 9
r_rest() {
	r_s=$(($1 / 1000))
	r_ms=00$(($1 % 1000))
	r_ms=${r_ms#"${r_ms%???}"}
	if [ "$r_ms" != 000 ]; then
		sleep "$r_s.$r_ms" &
		wait $! && return
		usleep "$1"000 &
		wait $! && return
		r_s=$((r_s + 1))
	fi
	sleep "$r_s" &
	wait $!
}
r_oom() {
	R_OOM=0
	[ -r "$r_events" ] || return
	while read -r r_key r_n; do
		[ "$r_key" != oom_kill ] || R_OOM=$r_n
	done <"$r_events"
}
r_oom
r_oom_before=$R_OOM
true >"$r_dir/super-$$"
# Nobody waits for the other end of a pipe: this shell has both, until the command has ended, or it
# was killed.
exec 8<>"$r_dir/out.in" 9<>"$r_dir/err.in"
r_readers= r_counters=
for r_f in out err; do
	true >"$r_dir/$r_f"
	if [ -p "$r_dir/$r_f.all" ]; then
		echo "                    " >"$r_dir/$r_f.n"
		wc -c <"$r_dir/$r_f.all" 1<>"$r_dir/$r_f.n" 8<&- 9<&- &
		r_counters="$r_counters $!"
		(
			trap "" XFSZ
			[ "$r_keep" = 0 ] || ulimit -f "$r_keep"
			exec tee "$r_dir/$r_f"
		) <"$r_dir/$r_f.in" >"$r_dir/$r_f.all" 8<&- 9<&- &
	else
		{
			(
				ulimit -c 0
				[ "$r_keep" = 0 ] || ulimit -f "$r_keep"
				exec cat
			)
			exec cat >/dev/null
		} >"$r_dir/$r_f" <"$r_dir/$r_f.in" 8<&- 9<&- &
	fi
	r_readers="$r_readers $!"
done
(
	trap "kill \$!; exit" TERM
	r_left=$((r_lease * 1000))
	r_step=5000
	[ "$r_lease" -gt 60 ] || r_step=1000
	r_time=${r_term:-$r_time}
	while kill -0 $$; do
		[ "$r_time" -gt 0 ] && [ "$r_time" -lt "$r_step" ] && r_step=$r_time
		r_rest "$r_step"
		if [ -e "$r_dir/lease" ]; then
			rm -f "$r_dir/lease"
			r_left=$((r_lease * 1000 + r_step))
		fi
		r_left=$((r_left - r_step))
		[ "$r_lease" = 0 ] || [ "$r_left" -gt 0 ] || break
		[ "$r_time" -gt 0 ] || continue
		r_time=$((r_time - r_step))
		[ "$r_time" -gt 0 ] || break
	done
	if [ "$r_term" ]; then
		r_job_kill 15 "$r_job" "$r_dir"
		r_rest 1000
	fi
	r_job_kill 9 "$r_job" "$r_dir"
) 8<&- 9<&- &
r_watch=$!
r_reads() {
	set -- $(sed -n "s/^\([0-9]*\) (.*) [RD] \([0-9]*\) .*/\1 \2/p" /proc/[0-9]*/stat)
	while [ $# -gt 1 ]; do
		case " $r_readers $r_counters " in
		*" $1 "* | *" $2 "*) return ;;
		esac
		shift 2
	done
	return 1
}
r_in=$r_dir/in
[ -e "$r_in" ] || r_in=/dev/null
(exec $(command -v setsid) sh -c "$r_lead" sh "$r_dir" "$@" \
	<"$r_in" >"$r_dir/out.in" 2>"$r_dir/$r_err.in" 8<&- 9<&-)
r_code=$?
exec 8<&- 9<&-
times >"$r_dir/times"
r_job_kill 9 "$r_job" "$r_dir"
kill "$r_watch"
{
	sleep 1
	r_looks=60
	while [ $r_looks -gt 0 ] && r_reads; do
		sleep 1
		r_looks=$((r_looks - 1))
	done
	kill -9 $r_readers
} &
wait $r_readers
kill $!
[ -z "$r_counters" ] || wait $r_counters
r_total() {
	R_TOTAL=
	[ ! -s "$r_dir/$1.n" ] || read -r R_TOTAL <"$r_dir/$1.n"
	R_TOTAL=${R_TOTAL:-0}
}
r_ms() {
	R_MS=0
	case $1 in
	[0-9]*m[0-9]*.[0-9]*s) ;;
	*) return ;;
	esac
	r_s=${1#*m}
	r_f=${r_s#*.}
	r_f=${r_f%s}000
	r_f=1${r_f%"${r_f#???}"}
	R_MS=$(((${1%m*} * 60 + ${r_s%.*}) * 1000 + r_f - 1000))
}
{
	read -r r_user
	read -r r_user r_sys
} <"$r_dir/times"
r_ms "$r_user"
r_user=$R_MS
r_ms "$r_sys"
r_oom
r_why=
[ "$r_code" = 137 ] && [ "$R_OOM" -gt "$r_oom_before" ] && r_why=oom
r_total out
r_out=$R_TOTAL
r_total err
mv -f "$r_dir/out.in" "$r_dir/end-$r_code-$r_user-$R_MS-$r_out-$R_TOTAL-$r_why"
'

# The job itself, until it is executed: DIR CPU_S MEMORY_KB PROCS FILE_BLOCKS UMASK LOCALE WORD...
# Who has used up its time gets SIGXCPU, a second before SIGKILL.
R_JOB_LEAD='
true >"$1/pid-$$"
for r_signal in "$1"/kill-*; do
	[ ! -e "$r_signal" ] || kill "-${r_signal##*-}" $$
done
{
	[ "$2" = 0 ] || { ulimit -S -t "$2" && ulimit -H -t $(($2 + 1)); }
	[ "$3" = 0 ] || ulimit -v "$3"
	[ "$4" = 0 ] || ulimit -u "$4" || ulimit -p "$4"
	[ "$5" = 0 ] || ulimit -f "$5"
} 2>/dev/null
umask "$6"
case $7 in
x*) LC_ALL=${7#x} ;;
*) unset LC_ALL ;;
esac
[ "$HOME" ] || eval "HOME=~$(id -un)"
TMPDIR=${TMPDIR:-/tmp}
export HOME TMPDIR PWD
unset OLDPWD
shift 7
exec env "$@"
'

# For a program that env would take for a variable, or that is to have another name: NAME FILE
# WORD... Where the shell gives no names it gets that of its file.
R_JOB_NAMED='
r_name=$1 r_file=$2
shift 2
(exec -a x /bin/sh -c :) 2>/dev/null && exec -a "$r_name" "$r_file" "$@"
exec "$r_file" "$@"
'

# r_job_refuse ERRNO SENTENCE: the job in $r_dir cannot be started
r_job_refuse() {
	printf %s "$2" >"$r_dir/fail"
	true >"$r_dir/fail-$1"
	exit
}

# r_job_refuse_unwritten SENTENCE: the same, because that could not be written
r_job_refuse_unwritten() {
	r_reason 121 "$1"
	r_job_refuse "$R_ERRNO" "$R_TEXT"
}

# r_job_find PROGRAM PATH: whether execve could execute it, before a shell says so by a number that
# could be the program's own.
r_job_find() {
	r_errno=2
	case $1 in
	*/*)
		r_file=$1
		[ -e "$1" ] && r_errno=13
		[ -f "$1" ] && [ -x "$1" ] && r_errno=0
		;;
	*)
		set -f
		IFS=:
		for r_file in $2; do
			r_file=${r_file:-.}/$1
			[ -f "$r_file" ] || continue
			r_errno=13
			[ -x "$r_file" ] || continue
			r_errno=0
			break
		done
		unset IFS
		set +f
		;;
	esac
	case $r_errno in
	2) r_job_refuse 2 "$1: program not found" ;;
	13) r_job_refuse 13 "$1: not executable" ;;
	esac
	[ -r "$r_file" ] || return 0
	r_head=$(dd if="$r_file" bs=256 count=1)
	case $r_head in
	'#!'*)
		read -r r_head <<-END
			${r_head#??}
		END
		[ -e "${r_head%% *}" ] ||
			r_job_refuse 2 "$1: the interpreter it names was not found"
		;;
	"$R_ELF"*) ;;
	*) r_job_refuse 8 "$1: neither a binary nor a script that begins with #!" ;;
	esac
}

# r_job_run ...: as r_exec, with its directory made; becomes who watches
r_job_run() {
	case $7 in
	f:*) mv -f "$R_IN/${7#f:}" "$r_dir/in" ;;
	p:*) printf "${7#p:}" >"$r_dir/in" ;;
	esac || r_job_refuse_unwritten "the standard input of the job cannot be stored in $r_dir"
	if command -v tee && command -v wc; then
		mkfifo "$r_dir/out.in" "$r_dir/err.in" "$r_dir/out.all" "$r_dir/err.all"
	else
		mkfifo "$r_dir/out.in" "$r_dir/err.in"
	fi ||
		r_job_refuse_unwritten "pipes for the job cannot be made in $r_dir"
	r_enter || r_job_refuse 2 "the tree, $R_TREE, is not there"
	r_root=${PWD%/}
	[ -e "$R_TREE/$6" ] || r_job_refuse 2 "working directory $6 does not exist"
	[ -d "$R_TREE/$6" ] || r_job_refuse 20 "working directory $6 is not a directory"
	cd -P "$R_TREE/$6" || r_job_refuse 13 "working directory $6 cannot be entered"
	case $PWD/ in
	"$r_root"/*) ;;
	*) r_job_refuse 13 "path confinement violation: cwd $6 leads out of the sandbox" ;;
	esac
	case ${14} in
	x*) r_job_find "${13}" "${14#x}" ;;
	*) r_job_find "${13}" "${PATH-/bin:/usr/bin}" ;;
	esac
	r_err=err
	[ -z "$R_MERGE" ] || r_err=out
	r_lease=$4 r_keep=$5 r_time=$8 r_cpu=$9 r_memory=${10} r_procs=${11} r_size=${12}
	shift 14
	exec $(command -v setsid) sh -c "$R_JOB_KILL$R_JOB_WATCH" sh "$r_job" "$r_dir" "$r_lease" \
		"$r_time" "$R_TERM" "$r_keep" "$R_EVENTS" "$r_err" "$R_JOB_LEAD" "$r_cpu" "$r_memory" \
		"$r_procs" "$r_size" "$R_MASK" "$R_LOCALE" "SANDBOXFS_JOB=$r_job" "$@"
}

# r_job_begin ...: the same in the background. A shell has what it starts by "&" ignore SIGINT and
# SIGQUIT, which nothing can undo. So the job is a child in the foreground, of a shell that it
# kills.
r_job_begin() {
	(
		r_parent=$(exec sh -c 'echo $PPID')
		[ "$r_parent" != $$ ] || exit
		(
			exec 3>&-
			kill -9 "$r_parent" || exit
			r_job_run "$@"
		)
		:
	)
	[ $? = 137 ] || r_job_run "$@" 3>&- &
}

# r_job_room: makes what all jobs need, and goes there
r_job_room() {
	[ -d "$R_JOBS/over" ] || mkdir -p "$R_JOBS/over"
	cd "$R_JOBS" || {
		r_fail 121 "$R_JOBS, the directory of the jobs there, cannot be made"
		return 1
	}
}

# r_nap: a while, longer each time; R_SPENT is the sum, in ms
r_nap() {
	if sleep "0.$R_NAP"; then
		R_SPENT=$((R_SPENT + 5 + ${R_NAP#0}))
	else
		sleep 1
		R_SPENT=$((R_SPENT + 1000))
	fi
	case $R_NAP in
	010) R_NAP=020 ;;
	020) R_NAP=040 ;;
	040) R_NAP=080 ;;
	*) R_NAP=200 ;;
	esac
}

# r_job_ended JOB: whether; R_END, CODE-USER-SYS-OUT-ERR-WHY
r_job_ended() {
	r_job_noted "$1" end && R_END=$R_NOTED
}

# r_job_ends [JOB OUT ERR]...: R_ENDS, of all that have ended by now
r_job_ends() {
	R_ENDS=' '
	while [ $# -gt 2 ]; do
		! r_job_ended "$1" || R_ENDS="$R_ENDS$1=$R_END "
		shift 3
	done
}

# r_job_sizes [JOB OUT ERR]...: R_SIZES, how much each has written by now
r_job_sizes() {
	r_files=
	while [ $# -gt 2 ]; do
		r_files="$r_files $1/out $1/err"
		shift 3
	done
	R_SIZES=' '
	while read -r r_f r_f r_f r_f r_n r_f r_f r_f r_f; do
		R_SIZES="$R_SIZES$r_f=$r_n "
	done <<-END
		$(ls -ln $r_files)
	END
}

# r_job_size FILE: R_SIZE
r_job_size() {
	R_SIZE=0
	case $R_SIZES in
	*" $1="*)
		R_SIZE=${R_SIZES#*" $1="}
		R_SIZE=${R_SIZE%% *}
		;;
	esac
}

# r_job_begins JOB: whether nobody watches over it yet, but will soon
r_job_begins() {
	! r_job_noted "$1" super && [ $R_SPENT -lt 10000 ]
}

# r_job_lives JOB: whether somebody watches over it, or will soon
r_job_lives() {
	if r_job_noted "$1" super; then
		kill -0 "$R_NOTED"
	else
		[ $R_SPENT -lt 10000 ]
	fi
}

# r_job_news [JOB OUT ERR]...: whether there is anything to tell of
r_job_news() {
	r_job_sizes "$@"
	while [ $# -gt 2 ]; do
		[ -d "$1" ] && ! r_job_noted "$1" fail && ! r_job_ended "$1" && r_job_lives "$1" || return 0
		r_job_size "$1/out"
		[ "$R_SIZE" -le "$2" ] || return 0
		r_job_size "$1/err"
		[ "$R_SIZE" -le "$3" ] || return 0
		shift 3
	done
	return 1
}

# r_job_bytes KIND JOB FILE OFFSET: a frame, whose offset may be a little before that. R_REST: there
# is more.
r_job_bytes() {
	r_job_size "$2/$3"
	r_n=$((R_SIZE - $4))
	[ $r_n -gt 0 ] || return
	[ $r_n -le "$r_limit" ] || r_n=$r_limit R_REST=1
	r_skip=$(($4 / 4096))
	r_tell=r_frame
	[ $r_n -lt 4096 ] || r_tell=r_pack
	dd if="$2/$3" bs=4096 skip=$r_skip count=$((($4 + r_n + 4095) / 4096 - r_skip)) |
		$r_tell "$1" "$2" $((r_skip * 4096))
}

# r_job_say_end JOB: that it has ended as $r_end says
r_job_say_end() {
	r_f=$1
	IFS=-
	set -- $r_end
	unset IFS
	r_job_size "$r_f/out"
	r_n=$(($4 - R_SIZE))
	[ $r_n -gt 0 ] || r_n=0
	r_job_size "$r_f/err"
	r_m=$(($5 - R_SIZE))
	[ $r_m -gt 0 ] || r_m=0
	[ $r_n$r_m = 00 ] || r_say C "$r_f" $r_n $r_m 0 ''
	r_say X "$r_f" "$1" "$2" "$3" "$6"
}

# r_job_end JOB: that it has ended, or is lost. Whether the number of who watches is another's is
# looked at where nothing was heard for a while.
r_job_end() {
	case $R_ENDS in
	*" $1="*)
		r_end=${R_ENDS#*" $1="}
		r_end=${r_end%% *}
		r_job_say_end "$1"
		;;
	*)
		r_job_lives "$1" && {
			[ $R_SPENT -lt 900 ] || ! r_job_noted "$1" super || r_job_watched "$1" "$1"
		} || r_job_ended "$1" || {
			r_job_kill 9 "$1" "$1"
			r_say F "$1" 116 0 0 'the machine has lost the job'
		}
		;;
	esac
}

# r_job_tell [JOB OUT ERR]...: all that is to be told of them. Which have ended is looked at before
# how much they have written.
r_job_tell() {
	r_job_ends "$@"
	r_job_sizes "$@"
	while [ $# -gt 2 ]; do
		if [ ! -d "$1" ]; then
			r_say F "$1" 116 0 0 'the machine does not know the job'
		elif r_job_noted "$1" fail; then
			r_text=$(cat "$1/fail")
			r_say F "$1" "$R_NOTED" 0 0 \
				"${r_text:-the machine had no room to say why the job was not started}"
		else
			! r_job_noted "$1" pid || r_say S "$1" 0 0 0 ''
			R_REST=
			r_job_bytes O "$1" out "$2"
			r_job_bytes E "$1" err "$3"
			[ "$R_REST" ] || r_job_end "$1"
		fi
		shift 3
	done
}

# r_exec WAIT LIMIT JOB LEASE KEEP CWD INPUT TIME CPU_S MEMORY_KB PROCS FILE_BLOCKS PROGRAM PATH
# WORD...: starts the job, waits so many ms for its end, and in any case for who watches over it,
# because until then it may be ended with this script. Tells what there is, LIMIT bytes at most of
# each stream. CWD: from the tree. INPUT: p:FORMAT for printf, f:NUMBER of a file that was put, or
# nothing. TIME: ms. PROGRAM: what is looked for, along PATH (xPATH; empty: the machine's). WORD: as
# env has them.
r_exec() {
	[ -z "$R_FAILED" ] || return
	r_job_room || return
	r_limit=$2 r_job=$3 r_dir=$R_JOBS/$3
	if [ ! -e "over/$3" ]; then
		if mkdir "$3"; then
			r_job_begin "$@"
		elif [ ! -d "$3" ]; then
			r_reason 121 "a directory for the job cannot be made in $R_JOBS"
			r_fail "$R_ERRNO" "$R_TEXT"
			return
		fi
		true >"$3/lease"
	fi
	R_SPENT=0 R_NAP=010
	until [ ! -d "$3" ] || r_job_noted "$3" fail || r_job_ended "$3" ||
		{ [ $R_SPENT -ge "$1" ] && ! r_job_begins "$3"; }; do
		r_nap
	done
	r_job_tell "$3" 0 0
	# Who polls for others is to poll for this one as well.
	r_job_ended "$3" || rm -f poll-*
}

# r_poll WAIT LIMIT [JOB OUT ERR]...: waits so many ms at most until there is more of one of them
# than those offsets say, and tells it.
r_poll() {
	r_wait=$1 r_limit=$2
	shift 2
	r_job_room || return
	r_poll=poll-$$
	true >"$r_poll"
	for r_f; do
		[ ! -d "$r_f" ] || true >"$r_f/lease"
	done
	R_SPENT=0 R_NAP=010
	until r_job_news "$@" || [ $R_SPENT -ge "$r_wait" ] || [ ! -e "$r_poll" ]; do
		r_nap
	done
	rm -f "$r_poll"
	r_job_tell "$@"
}

# r_kill JOB SIGNAL: of a job that is not there the start is taken away
r_kill() {
	r_job_room || return
	[ ! -e "over/$1" ] || return
	if mkdir "$1"; then
		true >"$1/end-$((128 + $2))-0-0-0-0-"
	elif ! r_job_ended "$1"; then
		true >"$1/kill-$2"
		r_job_kill "$2" "$1" "$1"
	fi
}

# r_over_forget: an hour, or a day where find has no minutes
r_over_forget() {
	find over -type f -mmin +60 -exec rm -f {} + || find over -type f -mtime +0 -exec rm -f {} +
}

# r_reap JOB...: they were read to the end. Not every call looks through all names.
r_reap() {
	r_job_room || return
	for r_f; do
		true >"over/$r_f"
		case $r_f in
		*00) r_over_forget ;;
		esac
	done
	# Who watched over one that was lost may be about to write of its end.
	rm -rf "$@" || rm -rf "$@"
}

# r_sweep DAEMON: ends the jobs of others than that daemon. I: each of them that ran.
r_sweep() {
	r_job_room || return
	r_over_forget
	for r_f in *-*; do
		case $r_f in
		"$1"-* | poll-* | '*-*') continue ;;
		esac
		r_job_ended "$r_f" || {
			r_kill "$r_f" 9
			r_say I killed 0 0 0 "$r_f"
		}
		r_reap "$r_f"
	done
}

# r_info: what there is. I: sh (dash, bash, ...), NAME of a program: its path, or "busybox" behind
# it; ulimit: the limits of t v u f that are enforced; uname, user, cpus.
r_info() {
	r_exe=$(readlink /proc/$$/exe)
	r_say I sh 0 0 0 "${r_exe##*/}"
	for r_f in base64 od gzip find stat tar git setsid grep sed mkfifo env dd; do
		r_p=$(command -v "$r_f") || continue
		case $(readlink -f "$r_p") in
		*/busybox*) r_p="$r_p busybox" ;;
		esac
		r_say I "$r_f" 0 0 0 "$r_p"
	done
	r_p=
	for r_f in t v u f; do
		(ulimit -$r_f 1000 || { [ $r_f = u ] && ulimit -p 1000; }) && r_p=$r_p$r_f
	done
	r_say I ulimit 0 0 0 "$r_p"
	r_say I uname 0 0 0 "$(uname -srm)"
	r_say I user 0 0 0 "$(id -un) $(id -u)"
	r_say I cpus 0 0 0 "$(nproc)"
}
