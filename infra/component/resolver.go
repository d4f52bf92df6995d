package component

import (
	_ "embed"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

//go:embed resolver.sh
var podResolverScript []byte

// resolvConfs are where a machine's DNS servers may be written, the first that
// is fit for pods wins: what the machine itself uses, and, where that is
// systemd-resolved's stub, the servers systemd-resolved asks
// (https://www.freedesktop.org/software/systemd/man/latest/systemd-resolved.service.html#/etc/resolv.conf).
// The second outlives a stop of systemd-resolved, so it must not come first.
var resolvConfs = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// resolverCommand calls the script on the machine: "link" or "check".
func resolverCommand(action string) string {
	return strings.Join(append([]string{podResolverPath, action, PodResolvConf}, resolvConfs...), " ")
}

// addPodResolver lets the kubelet's unit, the last one added, watch over the
// link that it makes before each start. The kubelet reads it anew for each pod.
func (w *worker) addPodResolver() {
	w.addFiles(desired.File{Path: podResolverPath, Mode: 0o755, Content: podResolverScript})
	u := &w.m.State.Units[len(w.m.State.Units)-1]
	u.RestartOn = append(u.RestartOn, podResolverPath)
	u.Check = resolverCommand("check")
}
