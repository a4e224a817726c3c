#!/bin/sh
BACKEND=daytona
. "$TESTS/lib/mount.sh"
# Sandboxes at Daytona, which the loopback server stands in for: each criterion that a sandbox of it
# has to meet, AC-1 to AC-25, by the mount. What else may become of a pull request is in push.sh,
# because the host asks for it whatever the backend is.

# there NAME: its name at Daytona
there() {
	echo "sbx-$("$TOOL" json id <"$MNT/$1/ctl/info")"
}

# refused_mount PATTERN SOURCE: the daemon says so, and does not mount.
refused_mount() {
	! "$SANDBOXFS" "$2" "$MNT" -o "state_dir=$STATE.refused,backend=daytona,net=host" -f \
		>"$ROOM/refused" 2>&1
	like "*$1*" "$(cat "$ROOM/refused")"
	refuse is_mounted
}

needs_a_key() {
	(
		unset DAYTONA_API_KEY
		refused_mount 'Daytona API key required' acme/widgets
	)
}

takes_no_local_path() {
	refused_mount 'requires a GitHub repo URL (e.g. org/repo), not a local path' "$REPO"
	refused_mount 'not a local path' ./acme
	# What is here by that name is not what is meant.
	mkdir -p "$ROOM/acme/widgets"
	(
		cd "$ROOM" || exit
		unset DAYTONA_API_KEY
		refused_mount 'Daytona API key required' acme/widgets
	)
	rmdir "$ROOM/acme/widgets" "$ROOM/acme"
}

knows_no_token_option() {
	! "$SANDBOXFS" --github-token x acme/widgets "$MNT" >"$ROOM/refused" 2>&1
	! "$SANDBOXFS" acme/widgets "$MNT" -o github_token=x,backend=daytona >"$ROOM/refused" 2>&1
}

is_made() {
	box a
	cat "$MNT/a/README.md" >/dev/null
	same "$(there a)" "$(cloud_control living)"
	same daytona "$("$TOOL" json backend <"$MNT/a/ctl/info")"
}

has_its_workdir() {
	same "$("$TOOL" json workdir <"$MNT/a/ctl/info")" "$(exec_in a '{"argv":["pwd"]}')"
	exec_in a '{"argv":["test","-d",".git"]}'
	same 0 "$(cut -d ' ' -f 1 "$MNT/a/status")"
}

executes() {
	same main.c "$(exec_in a '{"argv":["sh","-c","ls; echo err >&2; exit 3"],"cwd":"src"}')"
	same err "$(cat "$MNT/a/stderr")"
	same 3 "$(cut -d ' ' -f 1 "$MNT/a/status")"
}

confines_cwd() {
	refuse exec_in a '{"argv":["pwd"],"cwd":"../.."}'
	exec_in a '{"argv":["ln","-s","/","out"]}'
	refuse exec_in a '{"argv":["pwd"],"cwd":"out/tmp"}'
	error_says a 'path confinement violation'
}

times_out() {
	same '' "$(exec_in a '{"argv":["sleep","60"],"timeout_ms":300}')"
	like '124 timeout*' "$(cat "$MNT/a/status")"
}

uploads() {
	mkdir -p "$MNT/a/made/here"
	printf 'any\000\377bytes\n' >"$MNT/a/made/here/file"
	same 755 "$(exec_in a '{"argv":["stat","-c","%a","made/here"]}')"
	same '0000000 a n y \0 377 b y t e s \n' \
		"$(exec_in a '{"argv":["od","-c","made/here/file"]}' | head -n 1 | tr -s ' ')"
}

confines_uploads() {
	refuse cp "$MNT/a/README.md" "$MNT/a/out/tmp/sandboxfs-$$"
	[ ! -e "/tmp/sandboxfs-$$" ]
	rm "$MNT/a/out"
}

is_compared() {
	echo one >"$MNT/a/compared"
	echo one >"$MNT/a/ctl/snapshot"
	one=$(cat "$MNT/a/ctl/snapshot")
	echo two >"$MNT/a/compared"
	same 'M	compared' "$(cat "$MNT/a/ctl/diffs/$one.changes")"
	echo two >"$MNT/a/ctl/snapshot"
	two=$(cat "$MNT/a/ctl/snapshot")
	same '-one +two' "$(grep '^[-+][a-z]' "$MNT/a/ctl/diffs/$one..$two" | xargs)"
	like '*compared*' "$(cat "$MNT/a/ctl/diffs/base..$one.changes")"
	expect ENOENT stat "$MNT/a/ctl/diffs/abcdabcd"
	expect EOPNOTSUPP stat "$MNT/a/ctl/snapshots/$one"
	like "EOPNOTSUPP: snapshots/$one: *" "$(cat "$MNT/a/ctl/error")"
	expect ENOENT stat "$MNT/a/ctl/snapshots/abcdabcd"
}

previous_comes_back() {
	box k
	run k sh -ec 'git config user.name n; git config user.email e@f; echo own >own; git add own
		git commit -qm own; echo staged >staged; git add staged; echo more >staged; echo loose >loose'
	was=$(run k git rev-parse HEAD)
	echo 1 >"$MNT/k/ctl/reset"
	refuse test -e "$MNT/k/own"
	refuse run k git merge-base --is-ancestor "$was" HEAD
	echo previous >"$MNT/k/ctl/restore"
	same "$was" "$(run k git rev-parse HEAD)"
	same sandbox/k "$(run k git symbolic-ref --short HEAD)"
	same 'own more loose' "$(cat "$MNT/k/own" "$MNT/k/staged" "$MNT/k/loose" | xargs)"
	same staged "$(run k git show :staged)"
	same 'AM staged ?? loose' "$(run k git status --porcelain | xargs)"
	echo previous >"$MNT/k/ctl/restore"
	echo base >"$MNT/k/ctl/restore"
	run k sh -ec 'git reflog expire --expire=now --all; git gc -q --prune=now'
	run k git cat-file -e "$was"
	teardown k
}

is_committed() {
	echo 'a first' >"$MNT/a/ctl/snapshot"
	first=$(cat "$MNT/a/ctl/snapshot")
	[ -n "$first" ]
	echo 'nothing new' >"$MNT/a/ctl/snapshot"
	[ -n "$(cat "$MNT/a/ctl/snapshot")" ]
	like '*a first*' "$(exec_in a '{"argv":["git","log","--format=%s"]}')"
}

quotes() {
	printf '["printf","<%%s>","it'"'"'s","a b","\\"x\\"","`id`","$HOME","a;b&c|d","*",""]\n' \
		>"$MNT/a/ctl/exec"
	# shellcheck disable=SC2016
	same '<it'"'"'s><a b><"x"><`id`><$HOME><a;b&c|d><*><>' "$(cat "$MNT/a/stdout")"
}

# What a command makes of the remote is nobody's business: neither commits nor token go there.
is_pushed_to_its_source() {
	mkdir -p "$ROOM/elsewhere/git/acme"
	git clone -q --bare "$CLOUD_BARE" "$ROOM/elsewhere/git/acme/widgets.git"
	source_port=$cloud_port
	cloud_server 9 git_http.py "$ROOM/elsewhere" "$CLOUD_TOKEN"
	elsewhere=http://127.0.0.1:$cloud_port/acme/widgets.git cloud_port=$source_port
	for line in "git remote set-url origin $elsewhere" "git config remote.origin.pushurl $elsewhere" \
		"git config url.$elsewhere.insteadOf http" 'git commit -q --allow-empty -m hostile'; do
		exec_in a "{\"argv\":[\"sh\",\"-c\",\"$line\"]}"
	done
	echo >"$MNT/a/ctl/push"
	exec 9>&-
	same '{"pushed":true}' "$(cat "$MNT/a/ctl/push")"
	same hostile "$(git -C "$CLOUD_BARE" log -1 --format=%s sandbox/a)"
	refuse test -e "$ROOM/elsewhere/git.log"
	same work "$(git -C "$ROOM/elsewhere/git/acme/widgets.git" log -1 --format=%s sandbox/a)"
}

# More than fits into an answer.
is_pushed_in_pieces() {
	exec_in a '{"argv":["sh","-c","head -c 9000000 /dev/urandom >random; git add random"]}'
	exec_in a '{"argv":["sh","-c","git commit -qm random; git rm -q random; git commit -qm less"]}'
	echo >"$MNT/a/ctl/push"
	same '{"pushed":true}' "$(cat "$MNT/a/ctl/push")"
	git -C "$CLOUD_BARE" fsck --strict --no-progress
	same '' "$(exec_in a '{"argv":["sh","-c","ls ~/.sandboxfs | grep ^push"]}')"
}

may_fail_to_push() {
	exec_in a '{"argv":["sh","-c","echo more >work; git commit -qam more"]}'
	echo drop >"$ROOM/git.mode"
	echo >"$MNT/a/ctl/push"
	echo serve >"$ROOM/git.mode"
	like '{"pushed":false,"error":"*"}' "$(cat "$MNT/a/ctl/push")"
	same on "$(exec_in a '{"argv":["echo","on"]}')"
}

limits_output() {
	same 100 "$(exec_in a \
		'{"argv":["sh","-c","head -c 100000 /dev/zero"],"limits":{"output_bytes":100}}' | wc -c)"
}

is_ephemeral() {
	like '*"autoDeleteInterval": 0*' "$(cloud_control "box/$(there a)")"
}

checks_names_of_variables() {
	refuse exec_in a '{"argv":["true"],"env":{"A;id":"x"}}'
	refuse exec_in a '{"argv":["true"],"env":{"1A":"x"}}'
	same x "$(exec_in a '{"argv":["sh","-c","echo $_a1"],"env":{"_a1":"x"}}')"
}

has_its_branch() {
	same sandbox/a "$(exec_in a '{"argv":["git","symbolic-ref","--short","HEAD"]}')"
	like '*main*' "$(exec_in a '{"argv":["git","branch","-r"]}')"
	same '' "$(exec_in a '{"argv":["git","rev-parse","-q","--verify","origin/sandbox/new"]}')"
}

needs_the_token() {
	grep -q Basic "$ROOM/git.log"
	shows_no_secret
}

looks_at_no_branches() {
	for word in new refuse continue; do
		expect EOPNOTSUPP write "$MNT/ctl/create" O_WRONLY \
			"{\"name\":\"c\",\"branch_exists\":\"$word\"}"
	done
	like "*branch_exists=continue is not for the daytona backend*" "$(cat "$MNT/ctl/error")"
}

leaves_nothing_when_it_fails() {
	cloud_control fault '{"op": "clone", "fault": "status", "status": 400, "times": 9}'
	box failing
	refuse cat "$MNT/failing/README.md"
	until [ "$(cloud_control living)" = "$(there a)" ]; do tick; done
	cloud_control reset '{}'
	rmdir "$MNT/failing"
}

is_made_and_listed() {
	took 5 lists b
	teardown b
}

lists() {
	box "$1"
	cat "$MNT/$1/README.md"
}

echoes() {
	same hello "$(exec_in a '{"argv":["echo","hello"]}')"
}

goes_on_after_a_kill() {
	echo unsent >"$MNT/a/unsent"
	kill_daemon
	mount_fs acme/widgets
	same unsent "$(exec_in a '{"argv":["cat","unsent"]}')"
}

mount_without_token() {
	token=$GITHUB_TOKEN
	unset GITHUB_TOKEN
	mount_fs acme/widgets
	export GITHUB_TOKEN="$token"
}

needs_the_token_to_push() {
	same '{"pushed":false,"error":"GITHUB_TOKEN required for push"}' "$(pushed)"
}

# At the next mount.
merges_streams() {
	unmount
	export DAYTONA_SIMPLE_EXEC=1
	mount_without_token
	unset DAYTONA_SIMPLE_EXEC
	same out "$(exec_in a '{"argv":["echo","out"]}')"
	took_once 1 fails_with_both
	expect EOPNOTSUPP result "$MNT/a/ctl/spawn" sleep "$LONG"
	error_says a 'nothing goes on here behind the request'
}

fails_with_both() {
	same 'x y' "$(exec_in a '{"argv":["sh","-c","echo x; echo y >&2; exit 3"]}' | xargs)"
	same 'x y' "$(xargs <"$MNT/a/stderr")"
	same 3 "$(cut -d ' ' -f 1 "$MNT/a/status")"
}

is_removed() {
	teardown a
	until [ -z "$(cloud_control living)" ]; do tick; done
	teardown a
}

new_repo
claim 'AC-11: without a key nothing is mounted' needs_a_key
claim 'AC-19: a local path is no source' takes_no_local_path
claim 'AC-21: the token comes from the environment alone' knows_no_token_option
claim 'mounting' mount_repo
claim 'AC-1: mkdir makes a sandbox there' is_made
claim 'AC-2: the working directory is where it was cloned' has_its_workdir
claim 'AC-3: a command has its directory, and streams apart' executes
claim 'AC-4: a directory outside is refused' confines_cwd
claim 'AC-5: a command times out' times_out
claim 'AC-6: files are written below it, in directories of mode 755' uploads
claim 'AC-7: a path that leads out is refused' confines_uploads
claim 'AC-8: a snapshot has a message and an id, also of nothing new' is_committed
claim 'AC-12: a private repository is cloned with the token, which nothing shows' needs_the_token
claim 'AC-13, AC-14: arguments arrive as they are, empty ones as well' quotes
claim 'AC-15, AC-22: the branch is pushed, and the result says so' is_pushed
claim 'AC-15, AC-22: a pull request is opened, and the result has its URL' opens_a_pull_request
claim 'AC-23: it is against the default branch, which the API is asked for once' \
	is_against_the_default_branch
claim 'AC-16, AC-22: one that fails is told, and the push stands' may_fail_to_open_one
claim 'a push goes to the source, wherever the remotes in the sandbox lead' is_pushed_to_its_source
claim 'a push is of any size' is_pushed_in_pieces
claim 'AC-16: a push that fails is told, and the sandbox goes on' may_fail_to_push
claim 'AC-17: output is cut where it is told to be' limits_output
claim 'a command that is not answered holds no file up, and no other sandbox' \
	stalls_nobody execute
claim 'and it ends, as it was killed with its client' runs_nothing
claim 'AC-18: a sandbox is ephemeral' is_ephemeral
claim 'AC-24: names of variables are names' checks_names_of_variables
claim 'AC-25: the branch is made there, of the default one' has_its_branch
claim 'what to do with a branch that is there is refused, not passed over' looks_at_no_branches
claim 'it is made and cloned in four requests, and listed in one' is_made_and_listed
claim 'what was read takes none' took_once 0 is_read_again
claim 'a command takes one' took_once 1 echoes
claim 'a command behind a change takes two' took_once 2 writes_and_executes
claim 'a thousand files take two' a_thousand_take_two
claim 'what was written is there after a kill' goes_on_after_a_kill
claim 'what two snapshots differ in is in diffs/; and neither is browsed' is_compared
claim 'what a reset throws away comes back, with its commits, and stays' previous_comes_back
claim 'DAYTONA_SIMPLE_EXEC=1 has a command in one request, its streams merged' merges_streams
claim 'AC-16, AC-22: without the token nothing is pushed, and the result says so' \
	needs_the_token_to_push
claim 'AC-20: a clone that fails leaves no sandbox' leaves_nothing_when_it_fails
claim 'AC-9, AC-10: teardown removes it, once and again' is_removed
finish
