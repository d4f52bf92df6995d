package kube

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// FuzzAnswers checks the readers of texts of API servers and pods.
func FuzzAnswers(f *testing.F) {
	f.Add("[+]ping ok\n[-]etcd failed: reason withheld\n")
	f.Add(encryptionMetric + `apiserver_id_hash="sha256:1",hash="sha256:2"} 1`)
	f.Add(`{"gitVersion":"v1.36.4"}`)
	f.Add("controller-0_6b9f\x1b[31mred")
	f.Add("Waiting for deployment \"x\" rollout to finish: 0 of 2 updated replicas are available...")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = failingChecks(text), holder(text)
		_, _ = loadedIn(strings.NewReader(text))
		_, _ = parseVersion([]byte(text))
		_, _ = rolloutStatus(text), isRemoved([]byte(text))
		for _, line := range logEnd(text) {
			if strings.Contains(line, "\x1b") || len(line) > 4*logColumns+10 {
				t.Errorf("%q", line)
			}
		}
	})
}

// FuzzObjects checks what is made of pods, events and nodes.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a"},"status":{"phase":"Failed","reason":"OutOfcpu","containerStatuses":[{"name":"c","state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"exitCode":1}},"restartCount":3}]}}`),
		[]byte(`[{"reason":"FailedCreatePodSandBox","message":"x","count":2,"series":{"count":7}}]`),
		[]byte(`{"metadata":{"annotations":{"`+ownedAnnotation+`":"{\"labels\":[\"a\"]}"},"labels":{"a":"b"}},"spec":{"taints":[{"key":"k","effect":"NoSchedule"}]},"status":{"conditions":[{"type":"Ready","status":"False"}]}}`))
	f.Fuzz(func(t *testing.T, pod, events, node []byte) {
		var p corev1.Pod
		var e []corev1.Event
		if json.Unmarshal(pod, &p) == nil && json.Unmarshal(events, &e) == nil {
			if trouble := troubleOf(&p, e); trouble != nil {
				_ = trouble.String()
			}
		}
		var n corev1.Node
		if json.Unmarshal(node, &n) == nil {
			_ = OwnedLabels(&n)
			_ = finding.Words(NodeDrift(&n, NodeSpec{}))
		}
	})
}
