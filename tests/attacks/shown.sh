#!/bin/sh
. "$TESTS/lib/mount.sh"
. "$TESTS/lib/attack.sh"
# The table of what is visible inside, as a command finds it and as policy has it.

# Prints each mount point, and of the directories that only lead to such ones each entry.
cat >"$ROOM/look.py" <<'END'
import json, os, re
def name(text):
    return re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), text)
mounts = {name(line.split()[4]) for line in open("/proc/self/mountinfo")} - {"/"}
entries = set()
def walk(top):
    for entry in os.listdir(top):
        path = os.path.join(top, entry)
        entries.add(path)
        if path not in mounts and os.path.isdir(path) and not os.path.islink(path):
            walk(path)
walk("/")
missing = [path for path in json.load(open("policy.json"))["paths"]["shown"]
           if not os.path.lexists(path)]
print(json.dumps({"mounts": sorted(mounts), "entries": sorted(entries), "missing": missing}))
END

# Of each path that is there the reason, by policy's longest path; complains of what has
# none, and of reasons for nothing.
cat >"$ROOM/compare.py" <<'END'
import json, sys
seen = json.load(open(sys.argv[1]))
shown = json.load(open(sys.argv[2]))["paths"]["shown"]
def within(path, top):
    return path == top or path.startswith(top + "/")
bad = []
for path in seen["mounts"] + seen["entries"]:
    reasons = [top for top in shown if within(path, top)]
    leads = any(within(top, path) for top in shown)
    if reasons:
        print(f"{path}\t{shown[max(reasons, key=len)]}")
    elif not leads:
        bad.append(f"not in policy: {path}")
# What is mounted is there by itself; of what the system has mounted within its directories
# it has the reason.
for path in seen["mounts"]:
    if path not in shown and not any(within(path, top) and "system" in shown[top] for top in shown):
        bad.append(f"a mount that is not in policy: {path}")
bad += [f"in policy, but not there: {path}" for path in seen["missing"]]
print("\n".join(bad), file=sys.stderr)
sys.exit(bool(bad))
END

# equal BOX: both say the same.
equal() {
	cp "$ROOM/look.py" "$MNT/$1/look.py"
	run "$1" true # what git needs is there from the first command on
	cat "$MNT/$1/ctl/policy" >"$ROOM/policy"
	cp "$ROOM/policy" "$MNT/$1/policy.json"
	run "$1" /usr/bin/python3 look.py >"$ROOM/seen"
	/usr/bin/python3 "$ROOM/compare.py" "$ROOM/seen" "$ROOM/policy" >"$ROOM/table"
	grep -q "^/usr	the system" "$ROOM/table"
}

# listed PATH REASON
listed() {
	grep -qF "$1	$2" "$ROOM/table" || fail "not in the table: $1 $2"
}

of_all_kinds() {
	equal a
	listed "$H/tools/bin" PATH
	listed "$H/tools/lib" PATH
	listed "$H/tools/bin/.env" covered
	listed "$ROOM/ro" ro_paths
	listed "$ROOM/rw" rw_paths
	listed "$MNT/a" "the sandbox's files"
	listed "$REPO/.git/objects" "git: objects"
	listed /tmp "the sandbox's own"
	refuse grep -F "$H/tools/.env" "$ROOM/table"
	refuse grep -F "$H/secret" "$ROOM/table"
}

with_a_repository_of_the_host() {
	git init -q "$MNT/a/inner"
	equal a
	listed "$MNT/a/inner/.git" "a repository that you made"
}

under_another_name() {
	mv "$MNT/b" "$MNT/c"
	equal c
	listed "$MNT/c" "the sandbox's files"
	mv "$MNT/c" "$MNT/b"
}

# The state, and the cache, of which nothing is seen, below what is.
around_what_is_ours() {
	unmount
	remount "ro_paths=$ROOM/ro,hide_paths=$ROOM/ro/hidden"
	equal a
	listed "$ROOM/ro/hidden" hide_paths
}

H=$ROOM/home
mkdir -p "$H/tools/bin" "$H/tools/lib" "$ROOM/ro/hidden" "$ROOM/rw"
printf '#!/bin/sh\n' >"$H/tools/bin/a-tool"
chmod 755 "$H/tools/bin/a-tool"
echo KEY=secret | tee "$H/tools/.env" >"$H/tools/bin/.env"
PATH=$PATH:$H/tools/bin
claim "mounting" mount_victims "ro_paths=$ROOM/ro,rw_paths=$ROOM/rw"
claim "policy lists what is seen, and nothing else" of_all_kinds
claim "with a repository that the host made" with_a_repository_of_the_host
claim "after a rename" under_another_name
claim "with what is hidden" around_what_is_ours
withstood
