# The runner's git: snapshots, restores and diffs of the tree, by the git of the machine. Nothing of
# a repository's configuration is run: hooks, fsmonitor and signing are off.
r_git() {
	git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c commit.gpgSign=false \
		-c core.quotePath=true -c gc.auto=0 -c advice.detachedHead=false -C "$R_TREE" "$@"
}

# Whether there is a repository, and git; else it has failed.
r_has_git() {
	if ! command -v git; then
		r_fail 95 "the machine has no git, which keeps the history"
	elif ! r_git rev-parse --git-dir; then
		r_fail 95 "the tree is no git repository, which would keep its history"
	else
		return 0
	fi
	return 1
}

# r_tree_now IGNORED STAGE: prints the tree object of what the tree holds now. Its index is one of
# our own, and with STAGE becomes the repository's.
r_tree_now() {
	r_index=$R_ROOM/index.$$
	# With its time: git looks into files that are as old as the index, or younger.
	cp -p "$(r_git rev-parse --absolute-git-dir)/index" "$r_index"
	GIT_INDEX_FILE=$r_index r_git add -A ${1:+-f} -- . && GIT_INDEX_FILE=$r_index r_git write-tree
	r_code=$?
	[ -z "$2" ] || [ $r_code != 0 ] || cp -p "$r_index" "$(r_git rev-parse --absolute-git-dir)/index"
	rm -f "$r_index"
	return $r_code
}

# r_apart: what git writes from here on goes to a directory of the room, until r_apart_end: there is
# nobody to remove it from the repository. One that was killed leaves its own to the next.
r_apart() {
	for r_dir in "$R_ROOM"/objects.*; do
		kill -0 "${r_dir##*.}" || rm -rf "$r_dir"
	done
	r_dir=$(r_git rev-parse --git-path objects) || return
	case $r_dir in
	/*) ;;
	*) r_dir=$R_TREE/$r_dir ;;
	esac
	GIT_OBJECT_DIRECTORY=$R_ROOM/objects.$$
	rm -rf "$GIT_OBJECT_DIRECTORY"
	trap 'r_apart_end; exit 1' HUP INT TERM
	mkdir -p "$GIT_OBJECT_DIRECTORY/info" &&
		printf '%s\n' "$r_dir" >"$GIT_OBJECT_DIRECTORY/info/alternates" &&
		export GIT_OBJECT_DIRECTORY
}

r_apart_end() {
	trap - HUP INT TERM
	rm -rf "$R_ROOM/objects.$$"
	unset GIT_OBJECT_DIRECTORY
}

# r_busy_git: whether git is at something that a commit would end wrongly.
r_busy_git() {
	r_dir=$(r_git rev-parse --absolute-git-dir)
	for r_name in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD rebase-merge rebase-apply index.lock; do
		if [ -e "$r_dir/$r_name" ]; then
			r_fail 16 "git has not finished what it began ($r_name)"
			return 0
		fi
	done
	return 1
}

# r_commit TREE MESSAGE NAME MAIL: prints a commit of TREE upon HEAD.
r_commit() {
	r_parent=$(r_git rev-parse -q --verify HEAD) && set -- "$@" -p "$r_parent"
	r_tree=$1 r_text=$2
	GIT_AUTHOR_NAME=$3 GIT_AUTHOR_EMAIL=$4 GIT_COMMITTER_NAME=$3 GIT_COMMITTER_EMAIL=$4
	export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
	shift 4
	printf '%s\n' "$r_text" | r_git commit-tree "$r_tree" "$@"
}

# r_mark NAME TREE: a ref that nobody sees, of a commit of TREE, beside which is what HEAD names and
# what is staged: nothing of either is lost.
r_mark() {
	r_at=$(r_git symbolic-ref -q HEAD)
	r_head=$(r_git rev-parse -q --verify HEAD)
	r_staged=$(r_git write-tree) &&
		r_staged=$(r_commit "$r_staged" staged sandboxfs sandboxfs@localhost) || r_staged=
	GIT_AUTHOR_NAME=sandboxfs GIT_AUTHOR_EMAIL=sandboxfs@localhost
	GIT_COMMITTER_NAME=sandboxfs GIT_COMMITTER_EMAIL=sandboxfs@localhost
	export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
	r_id=$(printf 'mark\nbranch %s\nhead %s\nstaged %s\n' "$r_at" "$r_head" "$r_staged" |
		r_git commit-tree "$2" ${r_head:+-p "$r_head"} ${r_staged:+-p "$r_staged"}) &&
		r_git update-ref "refs/sandboxfs/mark/$1" "$r_id"
}

# r_keep REF COMMIT: what REF names stays, though it is to name COMMIT.
r_keep() {
	r_was=$(r_git rev-parse -q --verify "$1^{commit}") || return 0
	r_git merge-base --is-ancestor "$r_was" "$2" ||
		r_git update-ref "refs/sandboxfs/kept/$r_was" "$r_was"
}

# r_snapshot MARK MESSAGE NAME MAIL IGNORED: a commit on what HEAD names, or with MARK a ref that
# nobody sees. Answers I frames id and message.
r_snapshot() {
	r_has_git || return
	[ -n "$1" ] || ! r_busy_git || return
	r_made=$(r_tree_now "$5" "${1:+}") || {
		r_fail 28 "git could not record the tree"
		return
	}
	r_said=$2
	[ -n "$r_said" ] ||
		r_said=snapshot-$(printf '%s %s' "$r_made" "$(date +%s)" | r_git hash-object --stdin |
			cut -c 1-12)
	[ -n "$1" ] || r_id=$(r_commit "$r_made" "$r_said" "$3" "$4") || {
		r_fail 5 "git could not make the commit"
		return
	}
	if [ -n "$1" ]; then
		r_mark "$1" "$r_made"
	else
		r_git update-ref -m "sandboxfs: snapshot" HEAD "$r_id" &&
			r_git update-ref "refs/sandboxfs/snapshot/$r_id" "$r_id" && r_git read-tree "$r_id" &&
			r_git update-index -q --refresh
	fi || {
		r_fail 5 "git could not move its ref"
		return
	}
	r_say I id 0 0 0 "$r_id"
	r_say I message 0 0 0 "$r_said"
}

r_forget() {
	r_has_git || return
	r_git update-ref -d "refs/sandboxfs/mark/$1"
}

# r_commit_of REV: prints the commit that REV (as include/sandboxfs/history.h has it) names.
r_commit_of() {
	case $1 in
	base) r_git rev-parse -q --verify refs/sandboxfs/base ;;
	mark:*) r_git rev-parse -q --verify "refs/sandboxfs/mark/${1#mark:}" ;;
	*) r_git rev-parse -q --verify "$1^{commit}" ;;
	esac
}

# r_base: what the tree is now is what it was at creation. Answers an I frame base, if there is any
# commit.
r_base() {
	r_git rev-parse -q --verify refs/sandboxfs/base ||
		r_git update-ref refs/sandboxfs/base HEAD
	r_id=$(r_git rev-parse -q --verify refs/sandboxfs/base) && r_say I base 0 0 0 "$r_id"
}

# r_restore REV BRANCH: the tree as it was; what it is now stays in the mark restore.
r_restore() {
	r_has_git || return
	r_back=$(r_commit_of "$1") || {
		r_fail 2 "there is no snapshot $1"
		return
	}
	r_made=$(r_tree_now) && r_mark restore "$r_made" || {
		r_fail 28 "what is there now could not be kept"
		return
	}
	case $1 in
	mark:*) r_git read-tree --reset -u "$r_back" && r_git clean -qffd && r_back_as "$r_back" ;;
	base) r_back_on "$2" "$r_back" && r_git clean -qffdx ;;
	*) r_back_on "$2" "$r_back" && r_git clean -qffd ;;
	esac || r_fail 5 "git could not restore the tree"
}

# r_back_as MARK: HEAD, its branch and what is staged, as the mark has them.
r_back_as() {
	r_at= r_head= r_staged= r_known=
	while read -r r_key r_value; do
		case $r_key in
		branch) r_at=$r_value ;;
		head) r_head=$r_value r_known=1 ;;
		staged) r_staged=$r_value ;;
		esac
	done <<-END
		$(r_git log -1 --format=%B "$1")
	END
	if [ -n "$r_known" ]; then
		r_drop_begun
		r_keep HEAD "$r_head" && { [ -z "$r_at" ] || r_keep "$r_at" "$r_head"; } || return
		if [ -z "$r_at" ]; then
			r_git update-ref --no-deref HEAD "$r_head"
		elif [ -n "$r_head" ]; then
			r_git symbolic-ref HEAD "$r_at" &&
				r_git update-ref -m "sandboxfs: restored" "$r_at" "$r_head"
		else
			r_git symbolic-ref HEAD "$r_at" && r_git update-ref -d "$r_at"
		fi || return
	fi
	if [ -n "$r_staged" ]; then
		r_git read-tree "$r_staged"
	else
		r_git read-tree HEAD || r_git read-tree --empty
	fi
}

# What git had begun is over.
r_drop_begun() {
	r_dir=$(r_git rev-parse --absolute-git-dir)
	rm -rf "$r_dir/MERGE_HEAD" "$r_dir/CHERRY_PICK_HEAD" "$r_dir/REVERT_HEAD" \
		"$r_dir/rebase-merge" "$r_dir/rebase-apply"
}

# r_back_on BRANCH COMMIT: HEAD is the branch, which stands there, and nothing is begun.
r_back_on() {
	r_drop_begun
	r_keep HEAD "$2" && { [ -z "$1" ] || r_keep "refs/heads/$1" "$2"; } || return
	{ [ -z "$1" ] || r_git symbolic-ref HEAD "refs/heads/$1"; } && r_git reset -q --hard "$2"
}

# r_fork BRANCH REV: the tree, a copy of another's, becomes what it was at REV (empty: stays as it
# is), and the branch begins there. Without git it has none. It may be done twice.
r_fork() {
	[ -n "$2" ] || r_git rev-parse --git-dir || return 0
	r_has_git || return
	r_drop_begun
	if [ -n "$2" ]; then
		r_back=$(r_commit_of "$2") || {
			r_fail 2 "there is no snapshot $2"
			return
		}
		case $2 in
		mark:*) r_git read-tree --reset -u "$r_back" && r_git clean -qffdx && r_back_as "$r_back" ;;
		*)
			r_git update-ref --no-deref HEAD "$r_back" && r_git reset -q --hard "$r_back" &&
				r_git clean -qffdx
			;;
		esac || {
			r_fail 5 "git could not restore the tree"
			return
		}
	fi
	r_head=$(r_git rev-parse -q --verify HEAD)
	r_was=$(r_git rev-parse -q --verify "refs/heads/$1")
	if [ -n "$r_was" ] && [ "$r_was" != "$r_head" ]; then
		r_fail 17 "there is a branch $1 already"
		return
	fi
	{ [ -z "$r_head" ] || r_git update-ref "refs/heads/$1" "$r_head"; } &&
		r_git symbolic-ref HEAD "refs/heads/$1" || r_fail 5 "git could not begin the branch $1"
}

# r_diff FROM TO FORMAT: a D frame diff; an empty REV is the tree as it is.
r_diff() {
	r_has_git || return
	r_old=$(r_commit_of "$1") || {
		r_fail 2 "there is no snapshot $1"
		return
	}
	if [ -n "$2" ]; then
		r_new=$(r_commit_of "$2") || {
			r_fail 2 "there is no snapshot $2"
			return
		}
	else
		r_apart && r_new=$(r_tree_now) || {
			r_apart_end
			r_fail 28 "git could not record the tree"
			return
		}
	fi
	if [ "$3" = names ]; then
		r_git diff --no-color --no-ext-diff --no-textconv --name-status -M "$r_old" "$r_new"
	else
		r_git diff --no-color --no-ext-diff --no-textconv --binary -M "$r_old" "$r_new"
	fi | r_pack D diff
	[ -n "$2" ] || r_apart_end
}

# r_objects BRANCH NAME: a pack of all objects of the branch, kept as NAME until it is dropped
# or another is made. Frames I commit, and I size, in bytes.
r_objects() {
	r_has_git || return
	rm -f "$R_ROOM"/push.*
	r_id=$(r_git rev-parse -q --verify "refs/heads/$1^{commit}") || {
		r_fail 2 "there is no branch $1"
		return
	}
	# It may be done twice at once, where the answer was lost.
	r_file=$R_ROOM/push.$2
	printf '%s\n' "$r_id" | r_git pack-objects -q --revs --stdout >"$r_file.$$" &&
		mv -f "$r_file.$$" "$r_file" || {
		rm -f "$r_file.$$"
		r_fail 5 "git could not pack the branch, or there is no room for the pack"
		return
	}
	r_say I commit 0 0 0 "$r_id"
	r_say I size 0 0 0 "$(($(wc -c <"$r_file")))"
}

# r_objects_piece NAME BYTES NUMBER: a D frame piece, the part NUMBER of the pack in parts of BYTES.
r_objects_piece() {
	if [ -f "$R_ROOM/push.$1" ]; then
		dd if="$R_ROOM/push.$1" bs="$2" skip="$3" count=1 | r_frame D piece "$3"
	else
		r_fail 2 "the pack of the branch is no more there"
	fi
}

r_objects_drop() {
	rm -f "$R_ROOM/push.$1"
}
