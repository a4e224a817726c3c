# Verbs for attacks. Sourced after mount.sh, which it needs.
# shellcheck shell=sh

# mount_victims [OPTIONS]: two sandboxes, a with the attacker's program in it, b with something to steal.
mount_victims() {
	mount_repo "${1:-}"
	box a b
	cp "$ROOM/bin/attack" "$MNT/a/attack"
	echo "of the other sandbox" >"$MNT/b/secret"
	echo "of the host" >"$ROOM/home/secret"
	echo "of the host" >"$ROOM/tmp/secret"
}

# answers WANT ARGUMENT...: the attack from within a is answered so; WANT may list alternatives (A|B).
answers() {
	answers_want=$1
	shift
	answers_have=$(run a ./attack "$@")
	case "|$answers_want|" in
	*"|$answers_have|"*) ;;
	*) fail "$*: want $answers_want, have $answers_have" ;;
	esac
}

# still_fine: the mount answers and the host's things are as they were.
still_fine() {
	same "of the host" "$(cat "$ROOM/home/secret")"
	same "of the other sandbox" "$(cat "$MNT/b/secret")"
	same fine "$(run b echo fine)"
}
