#!/bin/sh
. "$TESTS/lib/mount.sh"
# Names of sandboxes: what is allowed, what is EINVAL, by mkdir, by ctl/create and by mv.
long63=$(printf 'n%062d' 1)

good_names() {
	for name in a A 0 a.b a_b a-b 9lives "$long63"; do
		expect 0 mkdir "$MNT/$name"
		same hello "$(cat "$MNT/$name/README.md")"
		expect 0 rmdir "$MNT/$name"
	done
}

bad_by_mkdir() {
	for name in -a .a _a 'a b' 'a:b' 'a\b' "$(printf 'a\tb')" "$(printf 'a\001')" 'ü' "${long63}x" \
		'a*' '~a'; do
		expect EINVAL mkdir "$MNT/$name"
		grep -q . "$MNT/ctl/error"
	done
	expect EEXIST\|EINVAL mkdir "$MNT/ctl"
	expect EEXIST mkdir "$MNT/README"
	expect EEXIST mkdir "$MNT/SKILL.md"
	expect EEXIST mkdir "$MNT/."
}

bad_by_create() {
	for name in '' . .. -a a/b ../x ctl README SKILL.md "${long63}x" 'a b'; do
		expect EINVAL write "$MNT/ctl/create" O_WRONLY "{\"name\":\"$name\"}"
	done
	expect EINVAL write "$MNT/ctl/create" O_WRONLY '{"name":"a\\u0000b"}'
	expect EINVAL write "$MNT/ctl/create" O_WRONLY '{"nam":"a"}'
	expect EINVAL write "$MNT/ctl/create" O_WRONLY '{"name":"a","name":"b"}'
	expect EINVAL write "$MNT/ctl/create" O_WRONLY '{"name":1}'
	same 'README SKILL.md ctl' "$(ls "$MNT" | tr '\n' ' ' | sed 's/ $//')"
}

bad_by_rename() {
	box fine
	for name in -a .a 'a b' "${long63}x"; do
		expect EINVAL rename "$MNT/fine" "$MNT/$name"
	done
	expect EEXIST\|EINVAL\|EPERM\|ENOTEMPTY\|EBUSY\|ENOTDIR rename "$MNT/fine" "$MNT/ctl"
	same hello "$(cat "$MNT/fine/README.md")"
}

taken() {
	expect EEXIST mkdir "$MNT/fine"
	expect EEXIST write "$MNT/ctl/create" O_WRONLY '{"name":"fine"}'
	grep -q fine "$MNT/ctl/error"
}

claim "mounting" mount_repo
claim "letters, digits, dot, underscore, dash; 63 characters" good_names
claim "mkdir refuses others with EINVAL and a sentence" bad_by_mkdir
claim "ctl/create refuses them, and keys it does not know" bad_by_create
claim "mv refuses them" bad_by_rename
claim "a taken name is EEXIST" taken
finish
