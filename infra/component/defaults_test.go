package component

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	audit "k8s.io/apiserver/pkg/apis/audit/v1"
)

// TestReservationsFit checks that the reservations, with the kubelet's own threshold of eviction,
// leave three quarters of a machine with 2 GiB to pods.
func TestReservationsFit(t *testing.T) {
	total := resource.MustParse("100Mi") // evictionHard memory.available
	for _, reserved := range []map[string]string{kubeReserved, systemReserved} {
		total.Add(resource.MustParse(reserved["memory"]))
	}
	if most := resource.MustParse("512Mi"); total.Cmp(most) > 0 {
		t.Errorf("%s are reserved, at most %s fit", total.String(), most.String())
	}
	if shutdownGraceCritical >= shutdownGrace {
		t.Error("the pods that are not critical have no time to end")
	}
}

// TestDefaultAuditPolicy checks that no body of a request is logged.
func TestDefaultAuditPolicy(t *testing.T) {
	for _, rule := range defaultAuditPolicy().Rules {
		if rule.Level != audit.LevelNone && rule.Level != audit.LevelMetadata {
			t.Errorf("%v logs more than metadata", rule)
		}
	}
}
