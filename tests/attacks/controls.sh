#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Reaching the controls from inside, and names that are none.

controls_are_out_of_reach() {
	for path in "$MNT/ctl/create" "$MNT/a/ctl/exec" "$MNT/b/ctl/exec" "$STATE/ctl" "$MNT/README"; do
		answers ENOENT read "$path"
	done
}

planted_controls_are_plain_files() {
	run a sh -c 'mkdir -p ctl && echo "#!/bin/sh" >ctl/exec' || true
	run a true
	same ok "$(run a echo ok)"
	run a rm -rf ctl
}

# The aliases give way to files; what the examples read does not.
result_cannot_be_forged() {
	run a sh -c 'echo "0 exited job=1" >status; echo fine >stdout; mkdir -p ctl; echo "0 exited job=1" >ctl/status
		exit 3' || true
	like '3 exited *' "$(cat "$MNT/a/ctl/status")"
	same '' "$(cat "$MNT/a/ctl/stdout")"
	run a rm -rf status stdout ctl
	for file in "$ROOM/examples"/hello.sh "$ROOM/examples"/hello.pl "$ROOM/examples"/hello.js "$ROOM/examples"/hello.c \
		"$ROOM/examples/quickstart.sh" "$MNT/README"; do
		[ -s "$file" ]
		refuse grep -E '(box|tidy|broken|fix-1)"?/(status|stdout|stderr)' "$file"
	done
}

planted_aliases_do_nothing() {
	run a sh -c 'ln -s /etc/passwd status; mkfifo stdout'
	same ok "$(run a echo ok)"
	expect EACCES open "$MNT/a/status" O_RDONLY
	run a rm status stdout
}

bad_names() {
	for name in .hidden -dash 'with space' 'new
line' ctl README "$(printf '%064d' 0)" 'a:b' 'a*' ..a; do
		case $("$TOOL" mkdir "$MNT/$name") in
		0) rmdir "$MNT/$name" && unsafe "$name is the name of a sandbox" ;;
		EINVAL | EEXIST) ;;
		*) fail "$name: neither taken nor refused" ;;
		esac
	done
}

bad_names_for_create() {
	for name in ../a a/b . .. '' ctl; do
		! talk_create "$name" || {
			teardown "$name"
			unsafe "$name is the name of a sandbox"
		}
	done
	same '' "$(find "$ROOM" -maxdepth 1 -name a)"
}

talk_create() {
	printf '{"name":"%s"}\n' "$1" >"$MNT/ctl/create"
}

bad_ids() {
	for id in ../x a/b .. ; do
		talk a/ctl/exec "{\"argv\":[\"true\"],\"id\":\"$id\"}" >"$ROOM/talked" 2>&1 || true
		refuse test -e "$MNT/a/ctl/jobs/$id/argv"
	done
}

bad_requests() {
	for request in '{"argv":["true"],"argv":["id"]}' '{"argv":["true"],"unknown":1}' '{"argv":["tr\\u0000ue"]}' \
		'{"argv":[]}' '{"argv":"true"}'; do
		printf '%s\n' "$request" >"$ROOM/request"
		expect_refusal "$ROOM/request"
	done
}

expect_refusal() {
	if cat "$1" >"$MNT/a/ctl/exec"; then
		fail "taken: $(cat "$1")"
	fi
}

shell_words() {
	for line in 'true; id' 'true | id' 'echo $(id)' 'echo `id`' 'true > out' 'true & id'; do
		printf '%s\n' "$line" >"$ROOM/request"
		expect_refusal "$ROOM/request"
	done
	[ ! -e "$MNT/a/out" ]
}

forged_record() {
	run a printf '\\n{"event":"forged"}\\n' '
{"event":"forged"}
' >/dev/null
	refuse grep -q '^{"event":"forged"' "$MNT/a/ctl/log"
	refuse grep -q '^{"event":"forged"' "$MNT/ctl/list.json"
}

directories_outside() {
	run a sh -c 'mkdir -p way && ln -sfn / way/out'
	for dir in .. ../b way/out way/out/etc; do
		refuse talk_exec "{\"argv\":[\"true\"],\"cwd\":\"$dir\"}"
	done
	run a rm -rf way
}

talk_exec() {
	printf '%s\n' "$1" >"$MNT/a/ctl/exec"
}

no_switch() {
	refuse grep -q SANDBOXFS_WITHOUT "$SANDBOXFS"
}

claim "mounting" mount_victims
attack "view landlock" "control files from inside" controls_are_out_of_reach
attack -daemon "a planted control directory" planted_controls_are_plain_files
attack -daemon "forge the result that the examples read" result_cannot_be_forged
attack "links" "planted aliases" planted_aliases_do_nothing
attack "names" "names of sandboxes that are none" bad_names
attack "names" "the same by create" bad_names_for_create
attack -daemon "ids of jobs that are paths" bad_ids
attack -daemon "requests with two meanings" bad_requests
attack -daemon "requests with a shell's words" shell_words
attack -daemon "a command that forges a record in the log" forged_record
attack "cwd" "a working directory outside" directories_outside
holds "the program itself can do without no wall" no_switch
withstood
