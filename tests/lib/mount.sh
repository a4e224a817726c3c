# Verbs for cases that need a real mount. Sourced; needs ROOM, SANDBOXFS, TOOL of case.sh.
# shellcheck shell=sh
MNT=$ROOM/mnt
REPO=$ROOM/repo
STATE=$ROOM/state
LOG=$ROOM/daemon.log
RECORD=$ROOM/daemon.record
# With BACKEND=dirs sandboxes are elsewhere: machines are directories here (dirs.h).
DIRS=$ROOM/dirs
# Seconds to sleep for a command that is to be found by its argument:
# other cases run at the same time.
LONG=98765.$$

# --- saying what holds -------------------------------------------------------------------

# claim TEXT COMMAND...: the command (mostly a function, under set -e) succeeds.
claim() {
	claim_text=$1
	shift
	(
		set -e
		"$@"
	) >"$ROOM/claim.log" 2>&1 </dev/null
	claim_code=$?
	if [ $claim_code = 0 ]; then
		echo "ok - $claim_text"
	else
		tail -n 30 "$ROOM/claim.log" | sed 's/^/# /'
		echo "not ok - $claim_text"
	fi
}

is_away() {
	[ -n "${BACKEND:-}" ]
}

# With BACKEND=daytona, vercel or dagger they are at a loopback server of it (cloud.sh).
is_cloud() {
	is_away && [ "$BACKEND" != dirs ]
}

# claim_here, claim_away: a claim of what only sandboxes on this host, or elsewhere, can hold.
claim_here() {
	is_away || claim "$@"
}

claim_away() {
	! is_away || claim "$@"
}

fail() {
	echo "$*" >&2
	return 1
}

# same WANT HAVE
same() {
	[ "$1" = "$2" ] || fail "want '$1', have '$2'"
}

# like PATTERN TEXT: a shell pattern
like() {
	# shellcheck disable=SC2254
	case $2 in
	$1) ;;
	*) fail "want like '$1', have '$2'" ;;
	esac
}

# expect WANT TOOL-ARGUMENTS...: the test tool prints exactly that;
# WANT may list alternatives (A|B).
expect() {
	expect_want=$1
	shift
	expect_have=$("$TOOL" "$@")
	case "|$expect_want|" in
	*"|$expect_have|"*) ;;
	*) fail "$*: want $expect_want, have $expect_have" ;;
	esac
}

refuse() {
	! "$@" || fail "was not refused: $*"
}

# tick [WORDS]: the body of a loop that waits for something; ends the claim when it has waited two
# minutes. WORDS say for what.
tick() {
	ticks=$((${ticks:-0} + 1))
	if [ $ticks -gt 2400 ]; then
		echo "waited in vain${*:+: $*}" >&2
		exit 1
	fi
	sleep 0.05
}

# --- sources -----------------------------------------------------------------------------

new_repo() {
	repo_dir=${1:-$REPO}
	mkdir -p "$repo_dir/src"
	git -C "$repo_dir" init -q
	printf 'hello\n' >"$repo_dir/README.md"
	printf 'int main(void)\n{\n\treturn 0;\n}\n' >"$repo_dir/src/main.c"
	printf 'all:\n\tcc -o main src/main.c\n' >"$repo_dir/Makefile"
	ln -s src/main.c "$repo_dir/link"
	git -C "$repo_dir" add .
	git -C "$repo_dir" commit -qm 'first'
}

# --- mounting ----------------------------------------------------------------------------

is_mounted() {
	awk -v p="${1:-$MNT}" '$5 == p { found = 1 } END { exit !found }' /proc/self/mountinfo
}

# mount_fs SOURCE [OPTIONS]: returns when the mount is usable.
# Without walls trees are full copies: without a view nothing else shows a layered one to a command.
# What runs in a machine of dirs has this host's network, which has to be asked for.
mount_fs() {
	printf '%s\n' "$1" >"$ROOM/mounted.source"
	printf '%s\n' "${2:-}" >"$ROOM/mounted.options"
	"$TOOL" mount "$LOG" "$RECORD" "$SANDBOXFS" "$1" "$MNT" \
		-o "state_dir=$STATE${BACKEND:+,backend=$BACKEND,net=host}${SBX_WEAK:+,cow=off}$(
			printf %s "${SBX_OPTIONS:+,$SBX_OPTIONS}${2:+,$2}"
		)" || {
		cat "$LOG"
		return 1
	}
}

mount_repo() {
	[ -d "$REPO" ] || new_repo
	if is_cloud; then
		mount_fs "$(cloud_source "$REPO")" "${1:-}"
	else
		mount_fs "$REPO" "${1:-}"
	fi
}

mount_dir() {
	mkdir -p "$ROOM/plain/sub"
	echo plain >"$ROOM/plain/file"
	mount_fs "$ROOM/plain" "${1:-}"
}

mount_none() {
	mount_fs none "${1:-}"
}

remount() {
	mount_fs "$(cat "$ROOM/mounted.source")" "${1-$(cat "$ROOM/mounted.options")}"
}

# Waits until the daemon and all that it started are gone.
await_end() {
	flock -w 60 "$RECORD" true || fail "the daemon does not end"
}

# Every process of the daemon ended by itself, with 0, and said nothing suspicious.
ended_well() {
	suspicious='assert|sanitizer|runtime error|segmentation|double free|corrupt'
	if grep -v '^exit 0 ' "$RECORD"; then
		grep -iE -A 8 "$suspicious" "$LOG" || tail -n 8 "$LOG"
		fail "a process of the daemon ended badly"
	fi
	if grep -iE -A 8 "$suspicious" "$LOG"; then
		fail "suspicious words in the log"
	fi
}

unmount() {
	# A client's last child (rsync's) may still be on its way out of the current directory.
	unmount_tries=0
	until fusermount3 -u "$MNT"; do
		unmount_tries=$((unmount_tries + 1))
		[ $unmount_tries -lt 300 ] || return 1
		sleep 0.1
	done
	await_end || return 1
	ended_well
}

# Not the least number: numbers begin anew, and the spawner and jobs' inits look alike.
# Has the kernel forget all names and files that nobody uses. An ordinary user whose
# case was not started by root cannot.
drop_caches() {
	if [ "$(id -u)" = 0 ]; then
		echo 2 >/proc/sys/vm/drop_caches
	elif [ -p "$ROOM/drop" ]; then
		echo >"$ROOM/drop"
		read -r _ <"$ROOM/dropped"
	fi
}

daemon_pid() {
	for pid in $("$TOOL" pids "$MNT"); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" != sandboxfs ] || echo "$pid"
	done
}

# frozen COMMAND...: the command needs no answer of the daemon, which is stopped for it. It is not
# given up by a signal: who waits for an answer to what the daemon has read waits on.
frozen() {
	frozen_pid=$(daemon_pid)
	rm -f "$ROOM/frozen.code"
	kill -STOP "$frozen_pid"
	(
		"$@" && echo 0 >"$ROOM/frozen.code" || echo 1 >"$ROOM/frozen.code"
	) &
	frozen_tries=0
	until [ -s "$ROOM/frozen.code" ] || [ $frozen_tries = 200 ]; do
		frozen_tries=$((frozen_tries + 1))
		sleep 0.1
	done
	frozen_code=$(cat "$ROOM/frozen.code" 2>/dev/null) || frozen_code=none
	kill -CONT "$frozen_pid"
	wait $!
	[ "$frozen_code" = 0 ]
}

kill_daemon() {
	for pid in $("$TOOL" pids "$MNT"); do
		kill -9 "$pid" 2>/dev/null || true
	done
	await_end
}

# refused_mount PATTERN ARGUMENT...: exits non-zero, says something like PATTERN, mounts nothing.
refused_mount() {
	refused_pattern=$1
	shift
	if timeout 60 "$SANDBOXFS" "$@" >"$ROOM/refused.log" 2>&1; then
		fail "was not refused: $*"
		return 1
	fi
	like "*$refused_pattern*" "$(cat "$ROOM/refused.log")" || return 1
	refuse is_mounted "$MNT"
}

# --- sandboxes ---------------------------------------------------------------------------

box() {
	for name; do
		mkdir "$MNT/$name" || return 1
	done
}

# run NAME COMMAND...: as if the command were run here: output, exit code.
run() {
	run_box=$1
	shift
	"$TOOL" exec "$MNT/$run_box/ctl/exec" "$@"
}

# seen_at NAME: the path of its tree as its commands know it, which elsewhere is none of this host.
seen_at() {
	if is_away; then
		cat "$MNT/$1/ctl/workdir"
	else
		echo "$MNT/$1"
	fi
}

# talk NAME/FILE CHUNK...: writes to a control file, prints failures and what it then reads.
talk() {
	talk_file=$MNT/$1
	shift
	"$TOOL" talk "$talk_file" "$@"
}

# ref_of NAME KIND[/REST]: where the source has what is only the sandbox's.
ref_of() {
	ref_own=$("$TOOL" json refs <"$MNT/$1/ctl/info")
	ref_rest=${2#"${2%%/*}"}
	echo "refs/sandboxfs/${2%%/*}/${ref_own##*/}$ref_rest"
}

error_says() {
	like "*$2*" "$(cat "$MNT/$1/ctl/error")"
}

teardown() {
	for name; do
		printf '%s\n' "$name" >"$MNT/ctl/teardown" || return 1
	done
}

teardown_all() {
	for dir in "$MNT"/*/; do
		name=$(basename "$dir")
		[ "$name" = ctl ] || [ "$name" = '*' ] || teardown "$name" || return 1
	done
}

# Neither worktree, branch, entry nor directory is left of any sandbox.
source_is_clean() {
	[ ! -d "$REPO/.git" ] || {
		same 1 "$(git -C "$REPO" worktree list | wc -l)"
		same main "$(git -C "$REPO" for-each-ref --format='%(refname:short)' refs/heads)"
		[ ! -d "$REPO/.git/worktrees" ] || same '' "$(ls "$REPO/.git/worktrees")"
		git -C "$REPO" fsck --no-progress --no-dangling
	}
}

# But for what the trash has.
source_and_state_are_clean() {
	source_is_clean
	if is_cloud; then
		cloud_is_clean
	elif is_away; then
		same '' "$(ls "$DIRS/machines")"
	fi
	[ ! -d "$STATE" ] ||
		same '' "$(find "$STATE" -path "$STATE/removed" -prune -o -name README.md -print)"
}

# Whether the daemon's memory is not its own: a sanitizer keeps what was
# freed, and a copy of the environment.
is_sanitized() {
	ldd "$SANDBOXFS" | grep -q 'lib[at]san'
}

# Until the daemon has the 8 files that it keeps ready for branches, so that its
# descriptors can be counted, by who may.
until_it_is_ready() {
	ls "/proc/$(daemon_pid)/fd" >/dev/null 2>&1 || return 0
	tries=0
	until [ "$(ls -l "/proc/$(daemon_pid)/fd" 2>/dev/null | grep -c '/\.git/#')" -ge 8 ]; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || return 0
		tick
	done
}

# drop_refs PREFIX...: removes the refs of the source below it.
drop_refs() {
	git -C "$REPO" for-each-ref --format='delete %(refname)' "$@" | git -C "$REPO" update-ref --stdin
}

tear_and_unmount() {
	teardown_all
	unmount
	source_and_state_are_clean
}

# What was committed outlives its sandbox.
tear_and_drop() {
	teardown_all
	unmount
	drop_refs refs/heads/sandbox refs/sandboxfs
	source_and_state_are_clean
}

# --- sandboxes elsewhere (BACKEND=dirs) ----------------------------------------------------

# machine NAME: the directory that its sandbox is.
machine() {
	dirname "$(cat "$MNT/$1/ctl/workdir")"
}

# faults LINE...: what goes wrong from here on (dirs.h); none: nothing.
faults() {
	printf '%s\n' "$@" >"$DIRS/faults.new"
	mv "$DIRS/faults.new" "$DIRS/faults"
}

# fsync_errno FILE: the name of what fsync fails with, or 0.
fsync_errno() {
	python3 -c 'import errno, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
try: os.fsync(fd); print(0)
except OSError as e: print(errno.errorcode[e.errno])' "$1"
}

# mark: requests are counted from here on.
mark() {
	cat "$DIRS/requests" >"$ROOM/marked"
}

# asked [PATTERN]: the requests since, each as VERB:OP@MACHINE, that match the pattern of grep.
asked() {
	tail -n "+$(($(wc -l <"$ROOM/marked") + 1))" "$DIRS/requests" |
		awk '{ print $3 ":" $4 "@" $2 }' | grep "${1:-.}"
}

# cost N [PATTERN]: so many requests have come since mark. What keeps a machine alive is not
# counted, because it comes by the clock.
cost() {
	cost_asked=$(asked "${2:-^\(make\|unmake\|find\|put\|run\):}") || true
	same "$1" "$(printf '%s' "$cost_asked" | grep -c .)" || fail "$cost_asked"
}

# until_quiet NAME...: the sandboxes are made, what was changed is there, and nothing is under way:
# no request has come for longer than the two seconds after which a change is sent.
until_quiet() {
	for quiet_box; do
		ls "$MNT/$quiet_box" >/dev/null
		sync "$MNT/$quiet_box"
	done
	quiet_ticks=0
	quiet_had=
	while [ $quiet_ticks -lt 60 ]; do
		quiet_has=$(wc -l <"$DIRS/requests")
		quiet_ticks=$((quiet_ticks + 1))
		[ "$quiet_has" = "$quiet_had" ] || quiet_ticks=0
		quiet_had=$quiet_has
		tick
	done
}

# until_removed: no machine is left.
until_removed() {
	until [ -z "$(ls "$DIRS/machines")" ]; do tick; done
}

# The last claim of a case that mounts.
finish() {
	claim "teardown and unmounting leave nothing behind" tear_and_unmount
}

# And of one that commits.
finish_committed() {
	claim "teardown and unmounting leave nothing behind" tear_and_drop
}

if is_cloud; then
	. "$TESTS/lib/cloud.sh"
fi
