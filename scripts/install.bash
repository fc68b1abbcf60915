# Functions that the setup scripts share: to say things, and to install packages.
# shellcheck shell=bash

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
fail() {
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# Whether a password can be typed.
at_a_terminal() { [[ -t 0 && -t 2 ]]; }

# Runs a command as root, and asks for a password only where somebody can type it.
as_root() {
	if [[ $(id -u) == 0 ]]; then
		"$@"
	elif at_a_terminal; then
		sudo -- "$@"
	else
		sudo --non-interactive -- "$@"
	fi
}

can_be_root() {
	[[ $(id -u) == 0 ]] && return
	command -v sudo >/dev/null || return 1
	at_a_terminal || sudo --non-interactive true 2>/dev/null
}

# install_with_apt WHAT PACKAGE...
install_with_apt() {
	local what=$1
	shift
	can_be_root ||
		fail "$what is missing, and installing it takes root or sudo without a password: run \"apt-get install $*\" as root"
	say "installing $what with apt-get"
	local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300) log
	log=$(mktemp)
	# A list that can't be refreshed may still name a package that can be had.
	as_root "${apt[@]}" update </dev/null >"$log" 2>&1 || say "apt-get update failed; trying with the list at hand"
	if ! as_root "${apt[@]}" install --yes --no-install-recommends "$@" </dev/null >>"$log" 2>&1; then
		cat "$log" >&2
		rm -f "$log"
		fail "apt-get could not install $what: run \"apt-get install $*\" as root"
	fi
	rm -f "$log"
}
