#!/bin/sh
. "$TESTS/lib/mount.sh"
# Tools in a home that PATH leads to work inside, and nothing secret comes along with them.

H=$ROOM/home
SITE=$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')

# script FILE LINE...: an executable one of sh.
script() {
	mkdir -p "$(dirname "$1")"
	printf '%s\n' '#!/bin/sh' >"$1"
	script_file=$1
	shift
	printf '%s\n' "$@" >>"$script_file"
	chmod 755 "$script_file"
}

# As rustup's: one program that asks RUSTUP_HOME which of them it is to be.
make_rustup() {
	script "$H/.rustup/toolchains/stable/bin/cargo" 'echo "cargo of the toolchain"'
	script "$ROOM/other/bin/rustc" 'echo "rustc of a linked toolchain"'
	mkdir -p "$ROOM/other/lib"
	ln -s "$ROOM/other" "$H/.rustup/toolchains/mine"
	echo 'default_toolchain = "stable"' >"$H/.rustup/settings.toml"
	echo token-of-host >"$H/.rustup/notes"
	mkdir "$H/.rustup/update-hashes"
	# shellcheck disable=SC2016
	script "$H/.cargo/bin/cargo" \
		'[ -n "$RUSTUP_HOME" ] || { echo "no toolchain is installed"; exit 1; }' \
		'grep -q default_toolchain "$RUSTUP_HOME/settings.toml" || exit 2' \
		'mkdir -p "$RUSTUP_HOME/update-hashes" || exit 3' \
		'exec "$RUSTUP_HOME/toolchains/stable/bin/cargo" "$@"'
	printf '[registry]\ntoken = "token-of-host"\n' >"$H/.cargo/credentials.toml"
	cat >"$H/.cargo/config.toml" <<'END'
[registries.mine]
index = "sparse+https://me:token-of-host@crates.example/index/"
token = "token-of-host"
[source.crates-io]
replace-with = "mine"
[env]
KEY = "token-of-host"
END
}

# As pipx and uv lay it out: a link to a virtual environment, whose
# python is a link to a link to another.
make_venv() {
	script "$H/.local/share/uv/python/cpython-3.99.1/bin/python3.99" \
		'shift; echo "python of uv: $1"'
	mkdir -p "$H/.local/share/uv/python/cpython-3.99.1/lib" "$H/.local/bin"
	ln -s cpython-3.99.1 "$H/.local/share/uv/python/cpython-3.99"
	venv=$H/.local/share/uv/tools/black
	mkdir -p "$venv/bin" "$venv/lib"
	echo module >"$venv/lib/module"
	echo "home = $H/.local/share/uv/python/cpython-3.99/bin" >"$venv/pyvenv.cfg"
	ln -s "$H/.local/share/uv/python/cpython-3.99/bin/python3.99" "$venv/bin/python"
	printf '%s\n' "#!$venv/bin/python" >"$venv/bin/black"
	printf '%s\n' '#!/bin/sh' \
		"cat '$venv/lib/module' '$venv/pyvenv.cfg' && '$venv/bin/python' -m black" >"$venv/bin/reads"
	chmod 755 "$venv/bin/black" "$venv/bin/reads"
	ln -s ../share/uv/tools/black/bin/reads "$H/.local/bin/reads"
	echo 'KEY=token-of-host' >"$H/.local/share/uv/tools/.env"
	echo 'KEY=token-of-host' >"$venv/.env"
	script "$H/.local/share/agent/versions/1.2.3" 'echo agent'
	ln -s "$H/.local/share/agent/versions/1.2.3" "$H/.local/bin/agent"
}

make_user_packages() {
	mkdir -p "$H/.local/lib/$SITE/site-packages"
	echo 'name = "of the user"' >"$H/.local/lib/$SITE/site-packages/mine.py"
}

# As nvm, npm -g with a prefix, and a project that has its bin in PATH.
make_node() {
	script "$H/.nvm/versions/node/v20/lib/node_modules/npm/cli" 'echo npm'
	mkdir -p "$H/.nvm/versions/node/v20/bin" "$H/.nvm/versions/node/v20/etc"
	ln -s ../lib/node_modules/npm/cli "$H/.nvm/versions/node/v20/bin/npm"
	echo '//host/:_authToken=token-of-host' >"$H/.nvm/versions/node/v20/etc/npmrc"
	ln -s v20 "$H/.nvm/versions/node/current"
	script "$H/work/bin/build-it" "cat '$H/work/lib/part'"
	mkdir -p "$H/work/lib" "$H/work/.git" "$H/work/tools"
	echo part >"$H/work/lib/part"
	echo 'KEY=token-of-host' | tee "$H/work/.env" "$H/work/bin/.env" "$H/work/tools/key" >/dev/null
	echo 'KEY=token-of-host' >"$H/.env"
	script "$H/.pyenv/shims/py" 'cat "$PYENV_ROOT/version"'
	mkdir -p "$H/.pyenv/versions"
	echo 3.99 >"$H/.pyenv/version"
	cat >"$H/.npmrc" <<'END'
registry=https://me:token-of-host@npm.example/path/
@mine:registry=https://npm.mine.example/
//npm.example/:_authToken=token-of-host
//npm.example/:_password=token-of-host
email=token-of-host@example.org
END
	mkdir -p "$H/.config/pip" "$H/.ssh"
	printf '%s\n' '[global]' 'index-url = https://me:token-of-host@pypi.example/simple' \
		'extra-index-url =' '    https://two.example/simple' \
		'    https://u:token-of-host@three.example/simple' \
		'client-cert = /token-of-host' >"$H/.config/pip/pip.conf"
	echo token-of-host | tee "$H/.netrc" "$H/.ssh/id_rsa" >/dev/null
}

make_certificates() {
	mkdir -p "$H/certs"
	printf '%s\n' '-----BEGIN CERTIFICATE-----' ca-of-user \
		'-----END CERTIFICATE-----' >"$H/certs/ca.pem"
	{ cat "$H/certs/ca.pem"; printf '%s\n' '-----BEGIN PRIVATE KEY-----' \
		token-of-host; } >"$H/certs/own.pem"
}

# Secrets further down, a project that is itself in PATH, and what only looks like a secret.
make_projects() {
	mkdir -p "$H/work/lib/deep/.aws" "$H/work/lib/python/google" "$H/proj/src" \
		"$H/proj/node_modules/.bin" \
		"$H/proj/node_modules/tool" "$H/proj/.venv/bin" "$H/proj/.venv/lib" "$H/.npm-global/bin" \
		"$H/.npm-global/lib" "$H/.npm-global/etc" "$H/.cabal/bin" "$H/.cabal/lib" "$H/gobin"
	for file in work/lib/deep/.aws/credentials work/lib/deep/.env work/lib/secrets.yml \
		work/lib/deep/.netrc \
		work/lib/deep/id_rsa work/lib/deep/application_default_credentials.json proj/.env proj/src/code \
		proj/node_modules/tool/.npmrc proj/.venv/.env .npm-global/etc/npmrc .cabal/config \
		gobin/credentials.toml gobin/id_ed25519 gobin/server.pem; do
		echo token-of-host >"$H/$file"
	done
	echo 'secrets of python' >"$H/work/lib/python/secrets.py"
	echo 'credentials of google' >"$H/work/lib/python/google/credentials.py"
	echo 'certificates' >"$H/work/lib/python/cacert.pem"
	script "$H/proj/run-it" 'echo run-it'
	script "$H/proj/node_modules/tool/cli" 'echo tool'
	ln -s ../tool/cli "$H/proj/node_modules/.bin/tool"
	script "$H/proj/.venv/bin/in-venv" 'echo in-venv'
	script "$H/.npm-global/bin/global" 'echo global'
	script "$H/.cabal/bin/cabal-tool" 'echo cabal-tool'
	script "$H/gobin/gh" 'echo gh'
	script "$H/gobin/gcloud" 'echo gcloud'
}

make_home() {
	make_projects
	make_rustup
	make_venv
	make_user_packages
	make_node
	make_certificates
}

in_path() {
	PATH=$H/.npm-global/bin:$H/.cabal/bin:$H/gobin:/:$PATH
	PATH=$H/proj:$H/proj/node_modules/.bin:$H/proj/.venv/bin:$PATH
	PATH=$H/.nvm/versions/node/current/bin:$H/work/bin:$H/.pyenv/shims:$H:$PATH
	PATH=$H/.cargo/bin:$H/.local/bin:$PATH
	NODE_EXTRA_CA_CERTS=$H/certs/ca.pem SSL_CERT_FILE=$H/certs/own.pem
	GOPROXY=https://me:token-of-host@goproxy.example,direct \
		PIP_EXTRA_INDEX_URL=https://x.example/token-of-host
	export NODE_EXTRA_CA_CERTS SSL_CERT_FILE GOPROXY PIP_EXTRA_INDEX_URL
	mount_repo
	box a
}

rustup() {
	same 'cargo of the toolchain' "$(run a cargo --version)"
	same 'rustc of a linked toolchain' "$(run a sh -c '"$RUSTUP_HOME"/toolchains/mine/bin/rustc')"
}

cargo_has_a_home_to_write_to() {
	run a sh -c 'mkdir -p "${CARGO_HOME:-$HOME/.cargo}/registry/cache"'
}

a_link_to_a_virtual_environment() {
	like 'module*python of uv: black' "$(run a reads)"
	same agent "$(run a agent)"
	run a sh -c "[ -x '$H/.local/share/uv/python/cpython-3.99/bin/python3.99' ]"
}

packages_of_the_user() {
	same 'of the user' "$(run a /usr/bin/python3 -c 'import mine; print(mine.name)')"
	run a /usr/bin/python3 -c 'import os, site; os.makedirs(site.getusersitepackages(), exist_ok=True);
open(site.getusersitepackages() + "/new.py", "w").close(); import new'
	expect ENOENT stat "$H/.local/lib/$SITE/site-packages/new.py"
}

node_and_others() {
	same npm "$(run a npm)"
	same part "$(run a build-it)"
	same 3.99 "$(run a py)"
}

projects_and_names() {
	for tool in run-it tool in-venv global cabal-tool gh gcloud; do
		same "$tool" "$(run a "$tool")"
	done
	same 'secrets of python' "$(run a cat "$H/work/lib/python/secrets.py")"
	same 'credentials of google' "$(run a cat "$H/work/lib/python/google/credentials.py")"
	same certificates "$(run a cat "$H/work/lib/python/cacert.pem")"
}

registries_come_along() {
	run a sh -c 'cat ~/.npmrc ~/.config/pip/pip.conf ~/.cargo/config.toml; env' >"$ROOM/told"
	for line in 'registry = https://npm.example/path/' '@mine:registry = https://npm.mine.example/' \
		'index-url = https://pypi.example/simple' '    https://three.example/simple' \
		'index = "sparse+https://crates.example/index/"' 'replace-with = "mine"' \
		'GOPROXY=https://goproxy.example,direct' "NODE_EXTRA_CA_CERTS=$H/certs/ca.pem"; do
		grep -qxF -- "$line" "$ROOM/told" || fail "not there: $line"
	done
	like '*ca-of-user*' "$(run a sh -c 'cat "$NODE_EXTRA_CA_CERTS"')"
}

# Every file that can be read below the home, and all variables.
no_secret_comes_along() {
	refuse run a grep -rlsF token-of-host "$H"
	run a sh -c 'grep -rsF token-of-host "$HOME"; env' >"$ROOM/told" || true
	refuse grep -F token-of-host "$ROOM/told"
	refuse grep -F SSL_CERT_FILE "$ROOM/told"
	for file in .env .netrc .ssh .cargo/credentials.toml .rustup/notes work/.git work/tools work/.env \
		.nvm/versions/node/v20/etc .local/share/uv/tools/.env .local/share/uv/tools/black/.env; do
		refuse run a test -e "$H/$file"
	done
	same '' "$(run a cat "$H/work/bin/.env")"
	for file in proj/.env proj/src proj/.venv/.env .npm-global/etc .cabal/config; do
		refuse run a test -e "$H/$file"
	done
	for file in work/lib/deep/.env work/lib/secrets.yml work/lib/deep/id_rsa gobin/server.pem \
		gobin/id_ed25519 gobin/credentials.toml work/lib/deep/application_default_credentials.json; do
		same '' "$(run a cat "$H/$file")"
	done
	same '' "$(run a ls "$H/work/lib/deep/.aws")"
}

nothing_can_be_written() {
	refuse run a sh -c "echo x >>'$H/.local/bin/reads'"
	refuse run a touch "$H/.rustup/toolchains/x" "$H/work/lib/part"
}

# policy names each place with its reason, and each mount below the home is one of them.
policy_lists_them() {
	"$TOOL" json paths.shown <"$MNT/a/ctl/policy" | tr -d '\\' >"$ROOM/tools"
	like '*"'"$H/.cargo/bin"'":"PATH"*' "$(cat "$ROOM/tools")"
	run a cat /proc/self/mountinfo | awk -v h="$H/" 'index($5, h) == 1 { print $5 }' >"$ROOM/mounts"
	[ -s "$ROOM/mounts" ]
	while read -r place; do
		grep -qF "\"$place\":" "$ROOM/tools" || fail "not in policy: $place"
	done <"$ROOM/mounts"
	refuse grep -F "\"$H\":" "$ROOM/tools"
}

doctor_tells_what_stays_out() {
	"$SANDBOXFS" --doctor >"$ROOM/doctor" || true
	grep -F "$H/.npmrc: 3 lines are not carried" "$ROOM/doctor"
	grep -F 'SSL_CERT_FILE is not carried' "$ROOM/doctor"
	grep -F "$H/.rustup/toolchains" "$ROOM/doctor"
	refuse grep -F token-of-host "$ROOM/doctor"
}

# A program in the home itself, which is never shown, and one that only has a path.
hidden_ones_are_named() {
	script "$H/loose" 'echo loose'
	script "$H/out/of/way" 'echo out'
	refuse run a loose
	hint="is there, but not shown to commands: mount with -o ro_paths=$H/loose"
	error_says a "loose: program not found: $H/loose $hint"
	refuse run a "$H/out/of/way"
	error_says a "$H/out/of/way is there, but not shown to commands: mount with -o ro_paths=$H/out/of"
	grep -F '"event":"denied"' "$MNT/a/ctl/log" | grep -F '"kind":"program"' |
		grep -F "ro_paths=$H/out/of"
	refuse run a nowhere-at-all
	error_says a 'nowhere-at-all: program not found'
	refuse grep -F ro_paths "$MNT/a/ctl/error"
}

# As a shell finds it missing, which only its stderr says.
hidden_ones_are_named_by_shells() {
	refuse run a sh -c 'true && loose'
	error_says a \
		"sh: $H/loose: it is there, but not shown to commands: mount with -o ro_paths=$H/loose"
	grep -F '"event":"denied"' "$MNT/a/ctl/log" | grep -F '"kind":"program"' |
		grep -F "\"what\":\"$H/loose\""
	before=$(grep -cF '"event":"denied"' "$MNT/a/ctl/log")
	refuse run a sh -c 'nowhere-at-all'
	run a sh -c 'loose; true'
	same "$before" "$(grep -cF '"event":"denied"' "$MNT/a/ctl/log")"
}

what_is_changed_inside_stays() {
	run a sh -c 'echo "registry=https://else.example/" >~/.npmrc'
	unmount
	remount
	like 'registry=https://else.example/*' "$(run a sh -c 'cat ~/.npmrc')"
}

claim "a home with tools" make_home
in_path
claim "rustup's programs find their toolchains" rustup
claim "cargo has a home of its own to write to" cargo_has_a_home_to_write_to
claim "links of PATH lead to their virtual environments and pythons" a_link_to_a_virtual_environment
claim "packages of pip install --user" packages_of_the_user
claim "a node behind a link, a project's programs, pyenv's" node_and_others
claim "programs of projects, and files that are but called like secrets" projects_and_names
claim "settings of registries and certificates come along" registries_come_along
claim "no secret does" no_secret_comes_along
claim "nothing of it can be written to" nothing_can_be_written
claim "policy lists each place and the reason" policy_lists_them
claim "--doctor says what stays out" doctor_tells_what_stays_out
claim "a program that is not shown is told from one that is not there" hidden_ones_are_named
claim "also when a shell misses it" hidden_ones_are_named_by_shells
claim "what a sandbox changed of its settings stays" what_is_changed_inside_stays
finish
