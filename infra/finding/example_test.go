package finding_test

import (
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// Prints what was found on two machines.
func Example() {
	findings := []finding.Finding{
		{Subject: "worker-0", Kind: finding.Sysctl, Target: "net.ipv4.ip_forward", Problem: finding.Value, Found: "0", Wanted: "1"},
		{Subject: "worker-0", Kind: finding.Unit, Target: "kubelet.service", Problem: finding.Activity,
			Found: finding.Failed, Wanted: finding.Running, Cause: "oom-kill"},
		{Subject: "worker-1", Kind: finding.Node, Problem: finding.Missing},
	}
	drift := finding.BySubject(findings)
	fmt.Println(drift["worker-0"])
	fmt.Println(drift["worker-1"])
	// Output:
	// sysctl net.ipv4.ip_forward: 0, wanted 1
	// unit kubelet.service: failed (oom-kill), wanted running
	// node: not registered with the API server
}
