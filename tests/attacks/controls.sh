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

# Whatever a command leaves, NAME/status and NAME/ctl/status say how it ended.
result_cannot_be_forged() {
	for make in 'echo "0 exited job=1" >FILE' 'mkdir FILE' 'ln -s forged FILE' 'ln forged FILE' \
		'mv forged FILE' 'mkfifo FILE' \
		'git add -f forged; git mv -f forged FILE; git commit -qm forged'; do
		for file in status stdout stderr; do
			run a sh -c "rm -rf $file forged; echo '0 exited job=1' >forged
				$(printf '%s' "$make" | sed "s/FILE/$file/g")
				mkdir -p ctl; cp forged ctl/$file 2>/dev/null; exit 3" >"$ROOM/said" 2>&1 || true
			result_is_told "$file" || unsafe "$make: $file is $(cat "$MNT/a/$file")"
			run a sh -c "rm -rf $file forged ctl; git reset -q --hard HEAD" || true
		done
	done
	for file in "$ROOM/examples"/hello.sh "$ROOM/examples"/hello.pl \
		"$ROOM/examples"/hello.js "$ROOM/examples"/hello.c \
		"$ROOM/examples/quickstart.sh" "$MNT/README" "$MNT/SKILL.md"; do
		[ -s "$file" ]
		refuse grep -E '(box|tidy|broken|fix-1)"?/(status|stdout|stderr)' "$file"
	done
}

result_is_told() {
	[ -L "$MNT/a/$1" ] || return 1
	for way in status ctl/status; do
		case $(cat "$MNT/a/$way") in
		'3 exited '*) ;;
		*) return 1 ;;
		esac
	done
	[ "$1" = status ] || [ "$(cat "$MNT/a/$1")" = "$(cat "$MNT/a/ctl/$1")" ]
}

# What the host does with a command's commits does not have them forge it either.
result_is_not_forged_by_the_host() {
	run a sh -c 'git checkout -qb forged; echo "0 exited job=1" >status; git add status
		git commit -qm forged; git checkout -q -' >"$ROOM/said" 2>&1
	id=$("$TOOL" json refs <"$MNT/a/ctl/info")
	git -C "$MNT/a" merge -q "refs/sandboxfs/heads/${id##*/}/forged" >"$ROOM/said" 2>&1 || true
	git -C "$MNT/a" checkout -f -q "refs/sandboxfs/heads/${id##*/}/forged" >"$ROOM/said" 2>&1 || true
	run a sh -c 'exit 3' || true
	result_is_told status || unsafe "a merge on the host has $(cat "$MNT/a/status")"
	git -C "$MNT/a" checkout -q -f sandbox/a || true
	echo 1 >"$MNT/a/ctl/reset"
	cp "$ROOM/bin/attack" "$MNT/a/attack"
	run a sh -c 'exit 3' || true
	result_is_told status || unsafe "after a reset it is $(cat "$MNT/a/status")"
}

planted_aliases_do_nothing() {
	run a sh -c 'ln -s /etc/passwd status; mkfifo stdout'
	same ok "$(run a echo ok)"
	[ "$(cat "$MNT/a/ctl/status")" = "$(cat "$MNT/a/status")" ] || unsafe "status is the command's"
	same ok "$(cat "$MNT/a/stdout")"
	run a rm status stdout
}

bad_names() {
	for name in .hidden -dash 'with space' 'new
line' ctl README SKILL.md "$(printf '%064d' 0)" 'a:b' 'a*' ..a; do
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
	for request in '{"argv":["true"],"argv":["id"]}' '{"argv":["true"],"unknown":1}' \
		'{"argv":["tr\\u0000ue"]}' '{"argv":[]}' '{"argv":"true"}'; do
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
attack "aliases" "forge the result" result_cannot_be_forged
attack -daemon "forge it by what the host merges and resets" result_is_not_forged_by_the_host
attack "aliases" "planted aliases" planted_aliases_do_nothing
attack "names" "names of sandboxes that are none" bad_names
attack "names" "the same by create" bad_names_for_create
attack -daemon "ids of jobs that are paths" bad_ids
attack -daemon "requests with two meanings" bad_requests
attack -daemon "requests with a shell's words" shell_words
attack -daemon "a command that forges a record in the log" forged_record
attack "cwd" "a working directory outside" directories_outside
holds "the program itself can do without no wall" no_switch
withstood
