package component

import (
	_ "embed"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

//go:embed pod_resolver.sh
var podResolverScript []byte

// resolvConfs are where a machine's DNS servers may be listed; the first file that is fit for pods
// wins. It is the machine's own resolv.conf or, if that is systemd-resolved's stub, the servers
// that systemd-resolved asks
// (https://www.freedesktop.org/software/systemd/man/latest/systemd-resolved.service.html#/etc/resolv.conf).
// The second file remains after systemd-resolved stops, so it must not come first.
var resolvConfs = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// resolverCommand returns the command that runs the script: "link" or "check".
func resolverCommand(action string) string {
	return strings.Join(append([]string{podResolverPath, action, PodResolvConf}, resolvConfs...), " ")
}

// addPodResolver makes the kubelet's unit, the last one added, create the link before each start
// and check it. The kubelet reads the link for each new pod.
func (w *worker) addPodResolver() {
	w.addFiles(desired.File{Path: podResolverPath, Mode: 0o755, Content: podResolverScript})
	u := &w.m.State.Units[len(w.m.State.Units)-1]
	u.RestartOn = append(u.RestartOn, podResolverPath)
	u.Check = resolverCommand("check")
}
