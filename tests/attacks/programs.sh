#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# Settings of the source's and of the user's that name a program in the tree,
# where a command can put what it likes.

# On the host, so that nothing inside can make it.
CANARY=$ROOM/tmp/canary

no_canary() {
	[ ! -e "$CANARY" ] || {
		rm -f "$CANARY"
		unsafe "git ran what a command planted"
	}
}

ran() {
	[ -e "$CANARY" ] || fail "it did not run"
	rm -f "$CANARY"
}

# A program under many names that leaves a canary and passes its input on; what a hook, driver or
# editor would be. tools/ssh ends at once, because git waits for its greeting.
plant_programs() {
	mount_victims "$@"
	run a sh -c "mkdir -p tools .husky node_modules/.bin
		printf '#!/bin/sh\ntouch $CANARY\nexec cat\n' >tools/run; chmod +x tools/run
		for name in pre-commit post-index-change commit-msg prepare-commit-msg \
			reference-transaction post-checkout; do
			printf '#!/bin/sh\ntouch $CANARY\n' >.husky/\$name; chmod +x .husky/\$name; done
		printf '#!/bin/sh\ntouch $CANARY\n' >tools/ssh; chmod +x tools/ssh
		cp tools/run node_modules/.bin/fmt; cp tools/run Makefile; cp tools/run git-credential-x
		echo '*.x filter=evil diff=evil merge=evil' >.gitattributes; echo x >f.x"
	git -C "$MNT/a" add .gitattributes
	git -C "$MNT/a" commit -qm attributes
}

source_git() {
	git -C "$REPO" "$@"
}

# As whoever looks at the work; no terminal, no input.
look() {
	timeout 60 git -C "$MNT/a" "$@" >"$ROOM/said" 2>&1 </dev/null || true
}

look_at_it() {
	echo "$(date +%s%N)" >"$MNT/a/f.x"
	look status
	look diff
	look add -A
	look diff --cached
	look commit -qm "from the host" --allow-empty
	look log -p -1
	look checkout -q HEAD~0
	look checkout -q -
	look st
	no_canary
}

# set_and_look KEY VALUE [WORDS...]: a setting of the source's, then git.
set_and_look() {
	key=$1
	git config --file "$REPO/.git/config" "$key" "$2"
	shift 2
	came=0
	if [ $# = 0 ]; then
		came=0
	(look_at_it) || came=$?
	else
		look "$@"
		(no_canary) || came=$?
	fi
	git config --file "$REPO/.git/config" --unset-all "$key"
	return $came
}

hooks_path() {
	set_and_look core.hooksPath .husky
}

hooks_path_without_a_slash() {
	run a cp -r .husky hooks
	set_and_look core.hooksPath hooks
}

hooks_path_in_the_mount() {
	set_and_look core.hooksPath "$MNT/a/.husky"
	set_and_look core.hooksPath "$MNT/./b/../a/.husky"
}

monitor() {
	set_and_look core.fsmonitor ./tools/run status
}

filters() {
	for way in './tools/run %f' 'sh ./tools/run %f' 'tools/run' 'sh -c "./tools/run"' \
		'cat | tools/run' 'node_modules/.bin/fmt' \
		'env X=1 ./tools/run' 'true && tools/run' '$(echo ./tools/run)' 'make -f Makefile'; do
		set_and_look filter.evil.clean "$way" || return 1
	done
	echo x >"$MNT/a/f.x"
	look add f.x
	git config --file "$REPO/.git/config" filter.evil.smudge ./tools/run
	rm "$MNT/a/f.x"
	set_and_look filter.evil.smudge ./tools/run checkout f.x
}

process_filter() {
	set_and_look filter.evil.process ./tools/run
}

textconv() {
	echo one >"$MNT/a/f.x"
	look add f.x
	echo two >"$MNT/a/f.x"
	set_and_look diff.evil.textconv ./tools/run diff
	set_and_look diff.evil.command ./tools/run diff
	set_and_look diff.external ./tools/run diff
}

merge_driver() {
	echo base >"$MNT/a/f.x"
	look add f.x
	look commit -qm base
	for side in one two; do
		look checkout -qB "$side" sandbox/a
		echo "$side" >"$MNT/a/f.x"
		look commit -qam "$side"
	done
	set_and_look merge.evil.driver './tools/run %A' merge one
	look merge --abort
	look checkout -q sandbox/a
	look branch -D one two
}

aliases() {
	set_and_look alias.st '!./tools/run' st
	set_and_look alias.st '!f() { cd tools && ../tools/run; }; f' st
}

# Pagers are for terminals.
pagers() {
	set_and_look core.pager ./tools/run -p log
	git config --file "$REPO/.git/config" core.pager ./tools/run
	timeout 60 script -qec "git -C $MNT/a log" /dev/null >"$ROOM/said" 2>&1 </dev/null || true
	git config --file "$REPO/.git/config" --unset-all core.pager
	no_canary
	git config --file "$REPO/.git/config" pager.log tools/run
	timeout 60 script -qec "git -C $MNT/a log" /dev/null >"$ROOM/said" 2>&1 </dev/null || true
	git config --file "$REPO/.git/config" --unset-all pager.log
	no_canary
}

editors() {
	set_and_look core.editor ./tools/run commit --allow-empty
	set_and_look sequence.editor ./tools/run rebase -i HEAD~1
	look rebase --abort
}

remotes() {
	source_git remote add evil ssh://127.0.0.1:1/x
	set_and_look core.sshCommand ./tools/ssh fetch evil
	source_git remote set-url evil "$REPO"
	set_and_look remote.evil.uploadpack ./tools/run fetch evil
	set_and_look remote.evil.receivepack ./tools/run push evil HEAD:refs/heads/pushed
	source_git remote remove evil
	git config --file "$REPO/.git/config" protocol.ext.allow always
	git config --file "$REPO/.git/config" remote.ext.fetch "+refs/*:refs/x/*"
	set_and_look remote.ext.url 'ext::./tools/run' fetch ext
	git config --file "$REPO/.git/config" --remove-section remote.ext
	git config --file "$REPO/.git/config" --remove-section protocol.ext
}

helpers() {
	for helper in '!./tools/run' './tools/run' '!sh tools/run'; do
		git config --file "$REPO/.git/config" credential.helper "$helper"
		printf 'protocol=https\nhost=x.invalid\n\n' |
			GIT_TERMINAL_PROMPT=0 timeout 60 git -C "$MNT/a" credential fill >"$ROOM/said" 2>&1 || true
		git config --file "$REPO/.git/config" --unset-all credential.helper
		no_canary
	done
}

signing() {
	set_and_look gpg.program ./tools/run commit -S --allow-empty -m signed
	set_and_look gpg.openpgp.program tools/run commit -S --allow-empty -m signed
}

others() {
	set_and_look trailer.x.cmd ./tools/run interpret-trailers --trailer x=y README.md
	set_and_look tar.x.command ./tools/run archive --format=x HEAD
	set_and_look interactive.diffFilter ./tools/run add -p
	set_and_look browser.x.cmd ./tools/run -c web.browser=x web--browse -t x http://127.0.0.1:1/
	set_and_look mergetool.x.cmd ./tools/run mergetool -t x
	set_and_look difftool.x.cmd ./tools/run difftool -y -t x HEAD~1
}

of_the_user() {
	git config --global core.hooksPath .husky
	came=0
	(look_at_it) || came=$?
	git config --global --unset core.hooksPath
	return $came
}

included() {
	printf '[core]\n\thooksPath = .husky\n' >"$ROOM/home/more"
	set_and_look include.path "$ROOM/home/more"
	set_and_look "includeIf.gitdir:**/worktrees/*.path" "$ROOM/home/more"
	set_and_look "includeIf.onbranch:**.path" "$ROOM/home/more"
	cp "$ROOM/home/more" "$MNT/a/more"
	set_and_look include.path "$MNT/a/more"
}

# What the user sets by himself for this worktree comes after all else.
of_the_worktree() {
	source_git config extensions.worktreeConfig true
	entry=$(sed 's/^gitdir: //' "$MNT/a/.git")
	git config --file "$entry/config.worktree" core.hooksPath .husky
	came=0
	(look_at_it) || came=$?
	rm "$entry/config.worktree"
	source_git config --unset extensions.worktreeConfig
	return $came
}

# Whoever sets something later finds the place where it counts taken.
set_later() {
	git config --file "$REPO/.git/config" core.fsmonitor ./tools/run
	look status
	git config --file "$REPO/.git/config" --unset core.fsmonitor
	printf '[core]\n\tfsmonitor = tools/run\n' >>"$REPO/.git/config"
	came=0
	(look_at_it) || came=$?
	git config --file "$REPO/.git/config" --unset core.fsmonitor
	return $came
}

# Programs of the host's, by their names or paths, run as ever.
harmless() {
	printf '#!/bin/sh\ntouch %s\nexec cat\n' "$CANARY" >"$ROOM/bin/sbx-filter"
	chmod +x "$ROOM/bin/sbx-filter"
	for way in "sbx-filter smudge -- %f" "$ROOM/bin/sbx-filter %f" "sh -c 'sbx-filter'" \
		"cat | sed -e s/a/b/ | sbx-filter"; do
		git config --file "$REPO/.git/config" filter.evil.clean "$way"
		echo "$(date +%s%N)" >"$MNT/a/f.x"
		PATH=$ROOM/bin:$PATH git -C "$MNT/a" add f.x
		ran
	done
	git config --file "$REPO/.git/config" --remove-section filter.evil
	mkdir "$ROOM/hooks"
	printf '#!/bin/sh\ntouch %s\n' "$CANARY" >"$ROOM/hooks/pre-commit"
	chmod +x "$ROOM/hooks/pre-commit"
	source_git config core.hooksPath "$ROOM/hooks"
	git -C "$MNT/a" commit -q --allow-empty -m hooked
	ran
	source_git config --unset core.hooksPath
	git -C "$MNT/a" reset -q
	refuse grep -q sandboxfs "$REPO/.git/config"
}

# Nothing of ours is in the source's config longer than something leads in, or a sandbox is there.
comes_and_goes() {
	cp "$REPO/.git/config" "$ROOM/config.was"
	source_git config core.hooksPath .husky
	same .husky "$(source_git config core.hooksPath)"
	same /dev/null "$(git -C "$MNT/a" config core.hooksPath)"
	grep -q 'includeIf' "$REPO/.git/config"
	like '*core.hookspath*no hooks*git_programs=tree*' \
		"$("$TOOL" json git_programs <"$MNT/a/ctl/info")"
	same none "$("$TOOL" json git_programs <"$MNT/a/ctl/policy")"
	git -C "$REPO" worktree add -q "$ROOM/own" -b own
	same .husky "$(git -C "$ROOM/own" config core.hooksPath)"
	git -C "$REPO" worktree remove "$ROOM/own"
	git -C "$REPO" branch -qD own
	same .husky "$(git -C "$MNT/a" -c core.hooksPath=.husky config core.hooksPath)"
	source_git config --unset core.hooksPath
	git -C "$MNT/a" status >/dev/null
	cmp "$ROOM/config.was" "$REPO/.git/config"
	same '' "$(ls "$REPO/.git" | grep sandboxfs.programs)"
}

# Where nothing else helps git does not get there, and says so.
refused() {
	source_git config core.gitProxy ./tools/run
	refuse git -C "$MNT/a" status
	error_says a 'core.gitproxy leads into the tree'
	source_git config --unset core.gitProxy
	git -C "$MNT/a" status >/dev/null
	source_git config core.hooksPath .husky
	: >"$REPO/.git/config.lock"
	refuse git -C "$MNT/a" status
	error_says a 'config cannot be changed'
	rm "$REPO/.git/config.lock"
	git -C "$MNT/a" status >/dev/null
	source_git config --unset core.hooksPath
	git -C "$MNT/a" status >/dev/null
}

allowed() {
	source_git config core.hooksPath .husky
	git -C "$MNT/a" status >/dev/null
	unmount
	mount_repo git_programs=tree
	same tree "$("$TOOL" json git_programs <"$MNT/a/ctl/policy")"
	git -C "$MNT/a" commit -q --allow-empty -m hooked
	ran
	source_git config --unset core.hooksPath
	unmount
	mount_repo
}

gone() {
	source_git config core.hooksPath .husky
	git -C "$MNT/a" status >/dev/null
	grep -q includeIf "$REPO/.git/config"
	teardown a b
	refuse grep -q includeIf "$REPO/.git/config"
	source_git config --unset core.hooksPath
	box a b
	echo "of the other sandbox" >"$MNT/b/secret"
}

end_branches() {
	unmount
	mount_repo
	teardown a b
	for branch in $(git -C "$REPO" for-each-ref --format='%(refname:short)' refs/heads |
		grep -vx main); do
		git -C "$REPO" branch -qD "$branch"
	done
}

# --- every key of git's documentation --------------------------------------------------------

# Lines KEY VALUE, and what it is in MNT/NAME then: the table.
KEYS=$TESTS/attacks/git_programs.txt
HARMLESS=$TESTS/attacks/git_harmless.txt

# As shell patterns; those of both lists, or keys of git's.
as_pattern() {
	sed 's/<[^>]*>/*/g' | tr '[:upper:]' '[:lower:]'
}

reviewed() {
	{
		grep -v '^#' "$KEYS" | cut -f 1
		grep -v '^#' "$HARMLESS"
	} | as_pattern >"$ROOM/reviewed"
	git help --config | grep '\.' | grep -v ' ' | as_pattern | sort -u >"$ROOM/keys"
	[ "$(wc -l <"$ROOM/keys")" -gt 500 ] || fail "git tells no keys"
	python3 - "$ROOM/reviewed" "$ROOM/keys" >"$ROOM/unknown" <<-'END'
		import fnmatch, sys
		patterns = open(sys.argv[1]).read().split()
		for key in open(sys.argv[2]).read().split():
		    if not any(fnmatch.fnmatchcase(key, p) for p in patterns): print(key)
	END
	[ ! -s "$ROOM/unknown" ] ||
		fail "git has keys that nobody has looked at: $(tr '\n' ' ' <"$ROOM/unknown")"
}

# What each attribute of git's that names a program names is a setting, of these.
attributes() {
	grep -v '^#' "$TESTS/attacks/git_attributes.txt" | while IFS='	' read -r attribute keys; do
		for key in $keys; do
			[ "$key" = - ] || cut -f 1 "$KEYS" | grep -qxF "$key" ||
				fail "$attribute: $key is not in the table"
		done
	done
	if man -w gitattributes >/dev/null 2>&1; then
		MANWIDTH=200 man -P cat gitattributes | col -b |
			sed -n '/^EFFECTS/,/^USING MACRO/s/^       \([a-z-]*\)$/\1/p' >"$ROOM/attributes"
		[ "$(wc -l <"$ROOM/attributes")" -gt 10 ] || fail "git tells no attributes"
		while read -r attribute; do
			grep -q "^$attribute	" "$TESTS/attacks/git_attributes.txt" ||
				fail "attribute $attribute was not looked at"
		done <"$ROOM/attributes"
	fi
}

table() {
	echo "# setting	is set to	in MNT/NAME	which means"
	grep -v '^#' "$KEYS" | while IFS='	' read -r name value want; do
		key=$(echo "$name" | sed 's/<[^>]*>/x/g; s/\*$/x/')
		[ "$key" = alias.x ] || key=$(echo "$key" | sed 's/^alias\..*/alias.x/')
		git config --file "$REPO/.git/config" "$key" "$value"
		if have=$(git -C "$MNT/a" config --get "$key" 2>/dev/null); then
			have="'$have'"
		else
			have=refused
			git -C "$MNT/a" rev-parse --git-dir >/dev/null 2>&1 && have=missing
		fi
		git config --file "$REPO/.git/config" --unset-all "$key"
		printf '# %s\t%s\t%s\n' "$name" "$value" "$have"
		[ "$have" = "$want" ] || unsafe "$name = $value: $have, not $want"
	done
	git -C "$MNT/a" status >/dev/null
}

claim "mounting" plant_programs
attack git_programs "core.hooksPath=.husky" hooks_path
attack git_programs "core.hooksPath=hooks" hooks_path_without_a_slash
attack git_programs "core.hooksPath in the mount" hooks_path_in_the_mount
attack git_programs "core.fsmonitor" monitor
attack git_programs "filters" filters
attack git_programs "a filter that stays" process_filter
attack git_programs "drivers of diff" textconv
attack git_programs "a driver of merge" merge_driver
attack git_programs "aliases" aliases
attack git_programs "pagers" pagers
attack git_programs "editors" editors
attack git_programs "what talks to remotes" remotes
attack git_programs "credential helpers" helpers
attack git_programs "signing" signing
attack git_programs "trailers, archives, tools" others
attack git_programs "settings of the user's" of_the_user
attack git_programs "what a setting includes" included
attack git_programs "settings of the worktree's" of_the_worktree
attack git_programs "settings made later" set_later
attack git_programs "every setting of git's that names a program" table
holds "git has no key that was not looked at" reviewed
holds "nor an attribute" attributes
holds "programs of the host's run" harmless
holds "the source's config is as it was as soon as nothing leads in" comes_and_goes
holds "where a setting cannot be undone git is kept out" refused
holds "git_programs=tree goes by them" allowed
holds "with the last sandbox it is as it was" gone
holds "the host is as it was" still_fine
[ -z "${SBX_WEAK:-}" ] || claim "all walls again" weaken ''
claim "branches with commits are removed" end_branches
finish
