package workspace

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// ShellFile returns a script for a person's shell, to be read with ".". It exports the environment of the workspace's
// commands and more, and defines terraform, which runs the workspace's CLI in its directory. The directories
// come first on the PATH.
func (w *Workspace) ShellFile(path []string, more map[string]string) string {
	env := maps.Clone(more)
	if env == nil {
		env = map[string]string{}
	}
	for _, kv := range w.Env {
		k, v, _ := strings.Cut(kv, "=")
		if k != "PATH" && k != "TF_INPUT" && k != "TF_IN_AUTOMATION" && !strings.HasPrefix(k, "TF_LOG") {
			env[k] = v
		}
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(&b, "export %s=%s\n", k, quoted(env[k]))
	}
	fmt.Fprintf(&b, "export PATH=%s:$PATH\n", quoted(strings.Join(path, string(filepath.ListSeparator))))
	fmt.Fprintf(&b, "terraform() { %s -chdir=%s \"$@\"; }\n", quoted(w.CLI), quoted(w.Dir))
	return b.String()
}

// quoted is a word of a POSIX shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
