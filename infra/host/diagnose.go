package host

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// portTaken finds the ports in what programs say when they cannot listen:
// "listen tcp 0.0.0.0:6443: bind: address already in use" (Go) and "cannot
// bind socket (Address already in use) [0.0.0.0:6443]" (HAProxy).
var portTaken = regexp.MustCompile(`(?i):(\d{1,5}): bind: address already in use|address already in use\) \[[^\]]*:(\d{1,5})\]`)

// diskFull is ENOSPC and EDQUOT as strerror(3) and Go word them.
var diskFull = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded`)

//go:embed diagnose.sh
var causeFunctions string

// Causes looks in what a unit or command said for causes that the machine can
// tell more about, and asks it: who holds a port that is taken, how full the
// file systems are. It is meant for errors, so it has nothing to say rather
// than to fail; it looks even when ctx has just ended.
func Causes(ctx context.Context, r Runner, said string) []string {
	var ports []string
	for _, match := range portTaken.FindAllStringSubmatch(said, -1) {
		if port := match[1] + match[2]; !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	var script strings.Builder
	for _, port := range ports {
		fmt.Fprintf(&script, "holders %s\n", port)
	}
	if diskFull.MatchString(said) {
		script.WriteString("full\n")
	}
	if script.Len() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	out, err := r.Run(ctx, remote.Command{Sudo: true, Script: "LC_ALL=C\nexport LC_ALL\n" + causeFunctions + script.String()})
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(remote.Redact(string(out.Stdout))), "\n")
}
