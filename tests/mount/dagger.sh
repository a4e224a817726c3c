#!/bin/sh
BACKEND=dagger CLOUD_ERA=0.21
. "$TESTS/lib/mount.sh"
# Sandboxes at an engine of Dagger, which the loopback server stands in for: the operations of an
# executor of commands by the mount, their requests, what an engine cannot do, what it forgets, and
# a daemon that is killed. What the two kinds of ids may tell apart is there for each of them.

# --- claims ------------------------------------------------------------------------------

# Three to make it, one to list it.
is_made_in_three_requests() {
	cloud_control reset '{}'
	box a
	same hello "$(cat "$MNT/a/README.md")"
	same 'int main(void)' "$(head -n 1 "$MNT/a/src/main.c")"
	same 'probe upload create run' "$(cloud_control log | cut -d ' ' -f 1 | xargs)"
}

has_any_code() {
	for code in 1 127 128 137 191 192 255; do
		exec_in a "{\"argv\":[\"sh\",\"-c\",\"echo $code >>codes; exit $code\"]}"
		same "$code" "$(cut -d ' ' -f 1 "$MNT/a/status")"
	done
	same 7 "$(grep -c . "$MNT/a/codes")"
	rm "$MNT/a/codes"
}

has_its_options() {
	same /work/src "$(exec_in a '{"argv":["pwd"],"cwd":"src"}')"
	same y "$(exec_in a '{"argv":["sh","-c","echo $X"],"env":{"X":"y"}}')"
	same kept "$(exec_in a '{"argv":["cat"],"stdin":"kept"}')"
	same '' "$(exec_in a '{"argv":["sleep","60"],"timeout_ms":1000}')"
	like '124 timeout*' "$(cat "$MNT/a/status")"
}

has_any_bytes() {
	exec_in a '{"argv":["printf","a\\000\\377\\r\\nb"]}' | od -An -tx1 >"$ROOM/bytes"
	same ' 61 00 ff 0d 0a 62' "$(cat "$ROOM/bytes")"
}

runs_again() {
	exec_in a '{"argv":["sh","-c","echo x >>again"]}'
	exec_in a '{"argv":["sh","-c","echo x >>again"]}'
	same 2 "$(grep -c x "$MNT/a/again")"
	rm "$MNT/a/again"
}

# In the container behind it the file has another inode, as those of an engine have that is stacked.
keeps_what_is_open() {
	echo 0 >"$MNT/a/log"
	exec_in a '{"argv":["true"]}'
	exec 6>>"$MNT/a/log"
	exec_in a '{"argv":["sh","-c","echo 1 >>log"]}'
	same '0 1' "$(xargs <"$MNT/a/log")"
	exec_in a '{"argv":["touch","beside"]}'
	ls "$MNT/a" >/dev/null
	echo 2 >&6
	exec 6>&-
	same '0 1 2' "$(exec_in a '{"argv":["cat","log"]}' | xargs)"
	same '0 1 2' "$(xargs <"$MNT/a/log")"
	rm "$MNT/a/log" "$MNT/a/beside"
}

# An overlay copies the one name that is changed of a file of the layers below.
keeps_names_together() {
	cat >"$MNT/a/links" <<-'END'
		mkdir u
		for f in p q r s t; do
			echo $f >$f
			ln $f $f.2
		done
		ln p "u/ a  b "
		ln q u/q.3
	END
	exec_in a '{"argv":["sh","links"]}'
	(
		cd "$MNT/a" && chmod 600 p && touch -d @1 q && mv r r.3 && ln s s.3 && echo new >t
		same new "$(exec_in a '{"argv":["cat","t.2"]}')"
		mv r.3 r
		rm s.3
		echo 'for f in p q r s t; do [ $f -ef $f.2 ] && echo $f; done' >together
		echo '[ p -ef "u/ a  b " ] && [ u/q.3 -ef q ] && echo u' >>together
		same 'p q r s t u' "$(exec_in a '{"argv":["sh","together"]}' | xargs)"
		drop_caches
		same '600 1 r s new' "$(stat -c %a p.2) $(stat -c %Y q.2) $(cat r.2 s.2 t.2 | xargs)"
		rm -r links together u [p-t] [p-t].2
	)
}

has_its_branch() {
	same sandbox/a "$(exec_in a '{"argv":["git","symbolic-ref","--short","HEAD"]}')"
	same '' "$(exec_in a '{"argv":["git","status","--short"]}')"
}

writes_files() {
	for i in 1 2 3; do
		echo "$i" >"$MNT/a/many$i"
	done
	same "$(printf '1\n2\n3')" "$(exec_in a '{"argv":["cat","many1","many2","many3"]}')"
}

deletes() {
	echo gone >"$MNT/a/gone"
	sync "$MNT/a/gone"
	rm "$MNT/a/gone"
	same none "$(exec_in a '{"argv":["sh","-c","cat gone || echo none"]}')"
	refuse rm "$MNT/a/gone"
}

# Its commits come to the branch of the repository of this host that it was made of.
is_pushed() {
	exec_in a '{"argv":["sh","-c","git config user.name a; git config user.email a@b"]}'
	exec_in a '{"argv":["sh","-c","echo work >work; git add work; git commit -qm work"]}'
	echo >"$MNT/a/ctl/push"
	same '{"pushed":true}' "$(cat "$MNT/a/ctl/push")"
	same work "$(git -C "$REPO" log -1 --format=%s sandbox/a)"
	git -C "$REPO" branch -q -D sandbox/a
}

lists() {
	mkdir "$MNT/a/list"
	touch "$MNT/a/list/b" "$MNT/a/list/a"
	same "$(printf 'a\nb')" "$(ls "$MNT/a/list")"
	same "$(printf 'a\nb')" "$(exec_in a '{"argv":["ls","list"]}')"
}

changes_directory() {
	echo src >"$MNT/a/ctl/cwd"
	same /work/src "$(exec_in a '{"argv":["pwd"]}')"
	echo . >"$MNT/a/ctl/cwd"
	refuse exec_in a '{"argv":["pwd"],"cwd":"../.."}'
}

exports_a_directory() {
	exec_in a '{"argv":["sh","-c","mkdir out; printf a\\\\000b >out/file; ln -s file out/link"]}'
	cp -R "$MNT/a/out" "$ROOM/exported"
	same 3 "$(wc -c <"$ROOM/exported/file" | tr -d ' ')"
	same file "$(readlink "$ROOM/exported/link")"
}

refreshes_from_this_host() {
	echo changed >"$ROOM/exported/file"
	cp -R "$ROOM/exported/." "$MNT/a/out/"
	same changed "$(exec_in a '{"argv":["cat","out/file"]}')"
}

cannot_go_on() {
	cat >"$MNT/a/look.sh" <<'END'
for file in /proc/[0-9]*/cmdline; do
	tr '\000' ' ' <"$file"
	echo
done | grep -c "^sleep $1 \$"
END
	exec_in a '{"argv":["sh","-c","sleep $0 & until sh look.sh $0; do :; done","'"$LONG"'"]}' \
		>"$ROOM/processes"
	same 1 "$(tail -n 1 "$ROOM/processes")"
	exec_in a '{"argv":["sh","look.sh","'"$LONG"'"]}' >"$ROOM/processes" || :
	same 0 "$(cat "$ROOM/processes")"
}

# Signals are for a command that somebody waits for.
lives_with_its_query() {
	expect EOPNOTSUPP result "$MNT/a/ctl/spawn" sleep "$LONG"
	error_says a 'nothing goes on here behind the request'
	mkdir "$MNT/a/ctl/jobs/j"
	"$TOOL" result "$MNT/a/ctl/jobs/j/exec" sleep "$LONG" &
	waits=$!
	until [ "$("$TOOL" write "$MNT/a/ctl/jobs/j/kill" O_WRONLY STOP)" = EOPNOTSUPP ]; do tick; done
	error_says a 'takes no signal but those that end it'
	for file in exec run; do
		expect EOPNOTSUPP result "$MNT/a/ctl/$file" true
		error_says a 'one at a time: wait for it or kill it'
	done
	echo TERM >"$MNT/a/ctl/jobs/j/kill"
	wait $waits || :
	like '143 *' "$(cat "$MNT/a/ctl/jobs/j/status")"
	rmdir "$MNT/a/ctl/jobs/j"
}

# It may have run, so that it is not run again; and what it has done is in no container.
is_lost_with_its_changes() {
	cloud_control fault '{"op": "run", "fault": "lost"}'
	exec_in a '{"argv":["sh","-c","echo lost >lost"]}' || :
	cat "$MNT/a/status"
	refuse same 0 "$(cut -d ' ' -f 1 "$MNT/a/status")"
	same none "$(exec_in a '{"argv":["sh","-c","cat lost || echo none"]}')"
	[ ! -e "$MNT/a/lost" ]
}

goes_on_after_a_kill() {
	echo unsent >"$MNT/a/unsent"
	kill_daemon
	cloud_control end_session '{}'
	mount_repo
	same unsent "$(exec_in a '{"argv":["cat","unsent"]}')"
	same theirs "$(cat "$MNT/a/d/e/f")"
}

# branch_of NAME: what git says there.
branch_of() {
	exec_in "$1" '{"argv":["git","symbolic-ref","--short","HEAD"]}'
}

# What is asked for is its list alone: nothing is brought or made.
forks() {
	echo both >"$MNT/a/both"
	sync "$MNT/a/both"
	cloud_control reset '{}'
	echo b >"$MNT/a/ctl/fork"
	same both "$(cat "$MNT/b/both")"
	refuse grep 'create\|upload' <<-END
		$(cloud_control log)
	END
	echo b >"$MNT/b/its"
	same 'sandbox/b sandbox/a' "$(branch_of b) $(branch_of a)"
	same 'b none' "$(exec_in b '{"argv":["cat","its"]}') $(
		exec_in a '{"argv":["sh","-c","cat its || echo none"]}')"
	[ ! -e "$MNT/a/its" ]
}

# A daemon that is killed behind the fork leaves one, of which it may know nothing yet.
forks_stay() {
	echo c >"$MNT/b/ctl/fork"
	kill_daemon
	mount_repo
	same b "$(cat "$MNT/c/its")"
	echo kept >"$MNT/c/ctl/snapshot"
	id=$(cat "$MNT/c/ctl/snapshot")
	rm "$MNT/c/its"
	sync "$MNT/c"
	teardown b
	echo "{\"name\":\"d\",\"rev\":\"$id\"}" >"$MNT/c/ctl/fork"
	teardown c
	same b "$(exec_in d '{"argv":["cat","its"]}')"
	same sandbox/d "$(branch_of d)"
	teardown d
}

# restore REV: in the sandbox a.
restore() {
	echo "$1" >"$MNT/a/ctl/restore"
}

# By git where it has the commit, so that what came since stays; else by what the engine has.
restores() {
	exec_in a '{"argv":["sh","-c","echo one >state; echo one >/tmp/state"]}'
	echo one >"$MNT/a/ctl/snapshot"
	one=$(cat "$MNT/a/ctl/snapshot")
	exec_in a '{"argv":["sh","-c","echo two >state; echo two >/tmp/state; git branch since"]}'
	took 1 restore "$one"
	same 'one two since' "$(
		exec_in a '{"argv":["sh","-c","cat state /tmp/state; git branch --list since"]}' | xargs
	)"
	exec_in a '{"argv":["sh","-c","echo three >state; rm -rf .git"]}'
	restore "$one"
	same one "$(cat "$MNT/a/state")"
	same "one $one" "$(exec_in a '{"argv":["sh","-c","cat /tmp/state; git rev-parse HEAD"]}' | xargs)"
	restore previous
	same three "$(cat "$MNT/a/state")"
	restore "${one%????????}"
	same one "$(cat "$MNT/a/state")"
	exec_in a '{"argv":["rm","state"]}'
}

# A tree that is no repository has states of an engine, whole.
begins_plain() {
	rm -rf "$STATE"
	mount_dir
	mkdir "$MNT/a"
	exec_in a '{"argv":["sh","-c","mkdir d; echo one >d/f; chmod 750 d/f; echo one >/tmp/f"]}'
	took 1 snapshot one
	exec_in a '{"argv":["sh","-c","rm -r d; mkdir e; echo two >/tmp/f"]}'
	echo unsent >"$MNT/a/unsent"
}

# snapshot MESSAGE
snapshot() {
	echo "$1" >"$MNT/a/ctl/snapshot"
}

restores_plain() {
	one=$(cat "$MNT/a/ctl/snapshot")
	restore "$one"
	same 'd file sub' "$(ls "$MNT/a" | xargs)"
	same 'one one 750' "$(exec_in a '{"argv":["sh","-c","cat d/f /tmp/f; stat -c %a d/f"]}' | xargs)"
	same one "$(cat "$MNT/a/d/f")"
	restore previous
	same 'e file sub unsent' "$(ls "$MNT/a" | xargs)"
	same 'unsent two' "$(exec_in a '{"argv":["cat","unsent","/tmp/f"]}' | xargs)"
	echo 1 >"$MNT/a/ctl/reset"
	same 'file sub' "$(ls "$MNT/a" | xargs)"
	expect ENOENT write "$MNT/a/ctl/restore" O_WRONLY 0123456789
	error_says a 'there is no snapshot 0123456789'
	refuse cat "$MNT/a/ctl/diff"
}

# Also where nothing has run in it since.
restores_plain_after_a_kill() {
	one=$(cat "$MNT/a/ctl/snapshot")
	restore "$one"
	kill_daemon
	remount
	same one "$(cat "$MNT/a/d/f")"
	restore previous
	same 'file sub' "$(ls "$MNT/a" | xargs)"
	same "$one" "$(cat "$MNT/a/ctl/snapshot")"
	restore "$one"
	same 'd file sub' "$(exec_in a '{"argv":["ls"]}' | xargs)"
}

# Nothing of the sandbox itself is lost with it.
says_that_a_state_is_forgotten() {
	if [ "$CLOUD_ERA" != 0.20 ]; then
		one=$(cat "$MNT/a/ctl/snapshot")
		exec_in a '{"argv":["touch","now"]}'
		unmount
		remount durable
		unmount
		cloud_control forget '{}'
		remount
		expect ESTALE write "$MNT/a/ctl/restore" O_WRONLY "$one"
		error_says a 'has forgotten that state'
		same 'd file now sub' "$(exec_in a '{"argv":["ls"]}' | xargs)"
	fi
	teardown a
	until [ -z "$(ls "$STATE/dagger")" ]; do tick; done
	unmount
}

refuses_what_an_engine_lacks() {
	mkdir -p "$ROOM/other"
	for net in none allow:example.org; do
		refused=0
		"$SANDBOXFS" "$REPO" "$ROOM/other" -o "backend=dagger,net=$net,state_dir=$STATE.other" \
			>"$ROOM/refused" 2>&1 || refused=1
		same 1 $refused
		like '*mount with -o net=host*' "$(cat "$ROOM/refused")"
	done
}

# What only reads leaves it as it was kept, also at the mount that has it from there.
comes_back_when_kept() {
	echo kept >"$MNT/a/kept"
	unmount
	mount_repo durable
	unmount
	for options in durable ''; do
		cloud_control forget '{}'
		mount_repo $options
		same kept "$(exec_in a '{"argv":["cat","kept"]}')"
		same theirs "$(cat "$MNT/a/d/e/f")"
		[ -z "$options" ] || unmount
	done
}

# What has changed since it was saved is not made anew from what was saved.
is_gone_when_forgotten() {
	exec_in a '{"argv":["touch","since"]}'
	same theirs "$(cat "$MNT/a/d/e/f")"
	cloud_control forget '{}'
	if [ "$CLOUD_ERA" = 0.20 ]; then
		same theirs "$(exec_in a '{"argv":["cat","d/e/f"]}')"
		return
	fi
	refuse exec_in a '{"argv":["true"]}'
	same theirs "$(cat "$MNT/a/d/e/f")"
	grep -q 'forgotten\|gone' "$MNT/a/ctl/error"
}

# Who waits in rmdir keeps everybody from the top of the mount.
removes_what_is_restored() {
	box r
	echo one >"$MNT/r/ctl/snapshot"
	one=$(cat "$MNT/r/ctl/snapshot")
	exec_in r '{"argv":["sh","-c","echo two >file"]}'
	sync "$MNT/a" "$MNT/r"
	cloud_control reset '{}'
	cloud_control fault '{"op": "run", "fault": "stall", "skip": 1}'
	"$TOOL" write "$MNT/r/ctl/restore" O_WRONLY "$one" >"$ROOM/outcome" &
	writer=$!
	until [ "$(cloud_control count/run)" -ge 2 ]; do tick; done
	rmdir "$MNT/r"
	wait $writer
	same EBUSY "$(cat "$ROOM/outcome")"
	cloud_control reset '{}'
}

is_removed() {
	teardown a
	until [ -z "$(ls "$STATE/dagger")" ]; do tick; done
}

# --- both eras ---------------------------------------------------------------------------

begins() {
	claim "$1: it is mounted" mount_repo
	claim "$1: a sandbox is made in three requests, and listed in one" is_made_in_three_requests
	claim "$1: what was read takes none" took_once 0 is_read_again
	claim "$1: Exec: streams apart, and a code, in one request" took 1 has_streams_and_a_status
	claim "$1: Exec: the same command runs again" runs_again
	claim "$1: its branch is checked out" has_its_branch
	claim "$1: WriteFile, and Exec: two requests" took_once 2 writes_and_executes
	claim "$1: ReadFile: what is made there is here" reads_what_is_made_there
	claim "$1: a restore is git's, and by id where git cannot" restores
}

ends() {
	claim "$1: the branch is pushed to the source" is_pushed
	claim "$1: a command whose answer is lost has changed nothing" is_lost_with_its_changes
	claim "$1: what was written is there after a kill" goes_on_after_a_kill
	claim "$1: a fork is an id: nothing is made, and neither sees the other" forks
	claim "$1: it outlives a kill, and its origin; so does one of a snapshot" forks_stay
	claim "$1: no token is shown" shows_no_secret
	[ "$1" = 0.20 ] || claim "$1: with durable it comes back" comes_back_when_kept
	claim "$1: one that is forgotten is gone, and what is here can be read" is_gone_when_forgotten
	claim "$1: Close" is_removed
	claim "$1: nothing was asked that Dagger does not know" asks_for_nothing_unknown
	claim "$1: the mount ends" unmount
	claim "$1: a plain directory has snapshots, whole" begins_plain
	claim "$1: restore, previous and reset go to what it was" restores_plain
	claim "$1: they outlive a kill" restores_plain_after_a_kill
	claim "$1: rmdir waits for no listing behind a restore" removes_what_is_restored
	claim "$1: a state that is forgotten is said, and what is stays" says_that_a_state_is_forgotten
}

begins 0.21
claim "Exec: every code, and its changes are there" has_any_code
claim "Exec: a directory, variables, standard input, a timeout" has_its_options
claim "Exec: any bytes" has_any_bytes
claim "WriteFiles, and Exec: two requests" took_once 2 writes_files
# The containers of a server that is not root are copies.
[ "$(id -u)" != 0 ] || claim "WriteFile: to what is open, whatever came between" keeps_what_is_open
claim "a change by one name of a file is there by its others" keeps_names_together
claim "DeleteFile" deletes
claim "ListDirectory" lists
claim "SetWorkdir" changes_directory
claim "ExportDirectory" exports_a_directory
claim "RefreshFromHost" refreshes_from_this_host
claim "what a command starts ends with it" cannot_go_on
claim "a thousand files take two requests" a_thousand_take_two
claim "nothing is spawned, nothing runs beside another, signals only end" lives_with_its_query
claim "one that is not answered holds no file up, and no other sandbox" stalls_nobody run
claim "networks that an engine cannot close are refused" refuses_what_an_engine_lacks
ends 0.21
cloud_end
# The ids of an older engine are the same to every user.
[ "$(id -u)" = 0 ] || exit 0
rm -rf "$ROOM/exported" "$STATE" "$REPO"
CLOUD_ERA=0.20
cloud_begin
begins 0.20
ends 0.20
