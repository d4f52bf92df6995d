# Functions that print what is on the machine, as NUL-terminated pairs: a path
# and what was found there. They change nothing; what is not there is left out.

# read_files pattern...: the content of files.
read_files() {
	for pattern; do
		for path in $pattern; do
			[ ! -f "$path" ] || { printf '%s\0' "$path"; cat -- "$path"; printf '\0'; }
		done
	done
}

# read_versions path...: what programs say of themselves.
read_versions() {
	for path; do
		[ ! -x "$path" ] || { printf '%s\0' "$path"; "$path" --version 2>&1 </dev/null || :; printf '\0'; }
	done
}
