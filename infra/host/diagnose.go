package host

import (
	"context"
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

// causeFunctions need neither ss nor lsof: which socket listens is in
// proc_net_tcp(5), whose it is among the file descriptors in proc(5).
const causeFunctions = `
holders() {
	hex=$(printf '%04X' "$1")
	for inode in $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | while read -r _ local _ state _ _ _ _ _ inode _; do
		[ "$state" = 0A ] && case $local in *:"$hex") echo "$inode" ;; esac
	done); do
		ls -l /proc/[0-9]*/fd 2>/dev/null | while read -r line; do
			case $line in
			/proc/*) pid=${line#/proc/} pid=${pid%%/*} ;;
			*"socket:[$inode]")
				unit=$(tail -n 1 "/proc/$pid/cgroup")
				printf 'port %s is taken by %s (process %s of %s): end it, then apply again\n' "$1" "$(cat "/proc/$pid/comm")" "$pid" "${unit##*/}"
				break
				;;
			esac
		done
	done
}
full() {
	df -P -k | while read -r device blocks _ free _ mount; do
		case $free in *[!0-9]*) continue ;; esac
		[ "$blocks" -gt 0 ] && [ "$free" -lt 1024 ] &&
			printf 'the file system on %s (%s) is full: %s of %s KiB are free; make room, then apply again\n' "$mount" "$device" "$free" "$blocks"
	done
	:
}
`
