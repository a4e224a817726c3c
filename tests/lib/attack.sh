# Verbs for attacks. Sourced after mount.sh, which it needs.
#
# Each attack names the mitigations that stop it (include/sandboxfs/mitigations.h). With SBX_WEAK
# the daemon is sandboxfs-weak: every attack is then made once more without them, and must succeed.
# Attacks with another word in their place have no such counterpart:
#   -kernel   the kernel refuses it to everybody without rights, or has none of what was asked for
#   -daemon   the daemon just does not do it; without that code it would be another program
#   -danger   succeeding would harm the machine that the tests run on
# shellcheck shell=sh

# mount_victims [OPTIONS]: two sandboxes, a with the attacker's program
# in it, b with something to steal.
mount_victims() {
	mount_repo "${1:-}"
	box a b
	cp "$ROOM/bin/attack" "$MNT/a/attack"
	echo "of the other sandbox" >"$MNT/b/secret"
	put_victims
}

put_victims() {
	echo "of the host" >"$ROOM/home/secret"
	echo "of the host" >"$ROOM/home/victim"
	echo "of the host" >"$ROOM/tmp/secret"
}

# holds TEXT COMMAND...: a claim that is no attack; nothing to see without walls.
holds() {
	[ -n "${SBX_WEAK:-}" ] || claim "$@"
}

# attack WALLS TEXT COMMAND...: it is withstood; without WALLS it is not. "root:WALLS" and
# "user:WALLS" are seen to fall only in the run as root or as a user.
attack() {
	attack_walls=$1
	attack_text="attack: $2"
	shift 2
	if [ -z "${SBX_WEAK:-}" ]; then
		claim "$attack_text" "$@"
		return
	fi
	case $(id -u):$attack_walls in
	*:-* | 0:user:* | [1-9]*:root:*) return ;;
	esac
	attack_walls=${attack_walls#*:}
	# What is root's without its view is root's for nobody.
	case $(id -u):$attack_walls in
	0:*run_as*) ;;
	0:*view*) attack_walls="run_as $attack_walls" ;;
	esac
	attack_falls "$@"
}

# Says that it is not withstood, for a reason that it tells itself.
attack_falls() {
	if ! weaken "$attack_walls" >"$ROOM/weaken.log" 2>&1; then
		tail -n 12 "$ROOM/weaken.log" | sed 's/^/# /'
		echo "not ok - without $attack_walls there is a daemon to attack"
		return
	fi
	(
		set -e
		"$@"
	) >"$ROOM/claim.log" 2>&1 </dev/null
	if [ $? != 0 ] && grep -qE "have '?[^' ]|was not refused:|unsafe: " "$ROOM/claim.log"; then
		echo "ok - without $attack_walls: $attack_text"
	else
		tail -n 12 "$ROOM/claim.log" | sed 's/^/# /'
		echo "not ok - without $attack_walls: $attack_text"
	fi
}

# A daemon without WALLS, in the state that mount_victims left.
weaken() {
	if [ "$1" != "${weak_walls:-none}" ]; then
		! is_mounted || kill_daemon
		! is_mounted || fusermount3 -uz "$MNT" 2>/dev/null || umount -l "$MNT"
		SANDBOXFS_WITHOUT=$1
		export SANDBOXFS_WITHOUT
		remount
		weak_walls=$1
	fi
	put_victims
	[ -d "$MNT/a" ] && [ -d "$MNT/b" ] || return 1
	cp "$ROOM/bin/attack" "$MNT/a/attack"
	echo "of the other sandbox" >"$MNT/b/secret"
	run a true
}

# The last words of a case of attacks.
withstood() {
	if [ -n "${SBX_WEAK:-}" ]; then
		claim "all walls again" weaken ''
	else
		claim "the host is as it was" still_fine
	fi
	finish
}

# unsafe TEXT: what should not have been possible was.
unsafe() {
	fail "unsafe: $*"
}

# answers WANT ARGUMENT...: the attack from within a is answered so;
# WANT may list alternatives (A|B).
answers() {
	answers_want=$1
	shift
	answers_have=$(run a ./attack "$@")
	case "|$answers_want|" in
	*"|$answers_have|"*) ;;
	*) fail "$*: want $answers_want, have $answers_have" ;;
	esac
}

# daemon_answers WANT ATTACK [FILE]: on the daemon's process, or on that file of its /proc.
daemon_answers() {
	daemon=$(daemon_pid)
	answers "$1" "$2" "${3:+/proc/}$daemon${3:+/$3}"
}

# still_fine: the mount answers and the host's things are as they were.
still_fine() {
	same "of the host" "$(cat "$ROOM/home/secret")"
	same "of the host" "$(cat "$ROOM/home/victim")"
	same "of the other sandbox" "$(cat "$MNT/b/secret")"
	same fine "$(run b echo fine)"
}
