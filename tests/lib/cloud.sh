# Sandboxes at a provider that a loopback server stands in for: BACKEND is daytona, vercel or
# dagger. Sourced by mount.sh, in the shell of the case: its descriptors 7 and 8 keep the servers
# running until the case ends.
# shellcheck shell=sh
CLOUD_KEY=key_$$doNotShow0123456789
CLOUD_TOKEN=ghp_$$doNotShow0123456789
CLOUD_BARE=$ROOM/git/acme/widgets.git

# cloud_server DESCRIPTOR SCRIPT ARGUMENT...: starts it, and reads its port into cloud_port. It does
# not have the descriptors of the others.
cloud_server() {
	cloud_fd=$1 cloud_script=$2
	shift 2
	mkfifo "$ROOM/cloud.in" "$ROOM/cloud.out"
	python3 "$TESTS/lib/$cloud_script" "$@" <"$ROOM/cloud.in" >"$ROOM/cloud.out" 7>&- 8>&- &
	eval "exec $cloud_fd>\"\$ROOM/cloud.in\""
	read -r cloud_port <"$ROOM/cloud.out"
	rm "$ROOM/cloud.in" "$ROOM/cloud.out"
}

cloud_begin() {
	mkdir -p "$CLOUD_BARE" "$ROOM/boxes"
	git init -q --bare "$CLOUD_BARE"
	cloud_server 8 git_http.py "$ROOM" "$CLOUD_TOKEN"
	cloud_git=http://127.0.0.1:$cloud_port
	cloud_server 7 "${BACKEND}_server.py" "$ROOM/boxes" "$CLOUD_KEY"
	export GITHUB_API_URL="$cloud_git" GITHUB_TOKEN="$CLOUD_TOKEN"
	case $BACKEND in
	daytona) export DAYTONA_API_URL="http://127.0.0.1:$cloud_port/api" DAYTONA_API_KEY="$CLOUD_KEY" ;;
	vercel)
		export VERCEL_API_URL="http://127.0.0.1:$cloud_port/api" VERCEL_TOKEN="$CLOUD_KEY"
		export VERCEL_TEAM_ID=team_test VERCEL_PROJECT_ID=prj_test
		;;
	dagger)
		export DAGGER_SESSION_PORT="$cloud_port" DAGGER_SESSION_TOKEN="$CLOUD_KEY"
		export DAGGER_IMAGE=busybox:1.37
		;;
	esac
}

# cloud_control WORD [JSON]
cloud_control() {
	python3 -c 'import sys, urllib.request as u
data = sys.argv[2].encode() or None
print(u.urlopen(sys.argv[1], data).read().decode(), end="")' \
		"http://127.0.0.1:$cloud_port/control/$1" "${2:-}"
}

# cloud_source DIR: what is to be mounted for the repository DIR. An engine of Dagger reads it here.
cloud_source() {
	if [ "$BACKEND" = dagger ]; then
		echo "$1"
	else
		git -C "$1" push -q "$CLOUD_BARE" HEAD:main && echo acme/widgets
	fi
}

# None of the requests was one that the provider does not know, and it has no sandbox any more.
cloud_is_clean() {
	same '' "$(cloud_control violations)"
	[ "$BACKEND" = dagger ] || until [ -z "$(cloud_control living)" ]; do tick; done
}

cloud_end() {
	exec 7>&- 8>&-
	wait
}

trap cloud_end EXIT
cloud_begin
