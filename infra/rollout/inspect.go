package rollout

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// inspectScript prints the files and what programs say of themselves, as
// NUL-terminated pairs.
const inspectScript = `
for f in FILES; do [ ! -f "$f" ] || { printf '%s\0' "$f"; cat -- "$f"; printf '\0'; }; done
for p in PROGRAMS; do [ ! -x "$p" ] || { printf '%s\0' "$p"; "$p" --version 2>&1 </dev/null || :; printf '\0'; }; done
`

// Inspect reads files of a machine, by path or pattern, and the releases of
// programs, by path, as they tell them with --version. What is not there is
// left out. It changes nothing.
func (e *Engine) Inspect(ctx context.Context, t Target, files, programs []string) (component.Found, map[string]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, observeBudget, fmt.Errorf("no answer within %s", observeBudget))
	defer cancel()
	script := strings.NewReplacer("FILES", strings.Join(files, " "), "PROGRAMS", strings.Join(programs, " ")).Replace(inspectScript)
	out, err := e.Pool.Machine(t.Host).Run(ctx, remote.Command{Script: script, Sudo: true})
	if err != nil {
		return nil, nil, fmt.Errorf("inspecting %s: %w", t.Node.Name, err)
	}
	found, releases := component.Found{}, map[string]string{}
	fields := bytes.Split(out.Stdout, []byte{0})
	for ; len(fields) >= 2; fields = fields[2:] {
		found[string(fields[0])] = fields[1]
	}
	for _, p := range programs {
		if m := releasePattern.FindSubmatch(found[p]); m != nil {
			releases[p] = string(m[1])
		}
		delete(found, p)
	}
	return found, releases, nil
}

// releasePattern finds the release in what a program says of itself:
// "Kubernetes v1.36.1", "etcd Version: 3.6.16", "runc version 1.3.0".
var releasePattern = regexp.MustCompile(`\bv?(\d+\.\d+\.\d+(?:[-+~][0-9A-Za-z.+~-]+)?)`)
