package drift_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// notes is a pod that is not root, and whose volume is of the default StorageClass.
const notes = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: notes, namespace: default}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 10Mi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: notes, namespace: default}
spec:
  selector: {matchLabels: {app: notes}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: notes}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsUser: 1000, runAsNonRoot: true}
      containers:
      - name: notes
        image: k8s-lab/toolbox:1
        command: [sh, -c, "mkdir -p /data/mine && chmod 700 /data/mine && echo $HOSTNAME >> /data/mine/log && sleep infinity"]
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: notes}}]
`

// patterned is a StorageClass with which a claim could get any directory of its node.
const patterned = `{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "patterned"}, "provisioner": "rancher.io/local-path",
"parameters": {"pathPattern": "{{ .PVC.Annotations.path }}"}}`

// testVolumes: a claim gets a volume by itself, which outlives its pod and ends with the claim.
func (w *world) testVolumes(t *testing.T) {
	const dir = "/opt/local-path-provisioner"
	_, err := suite.Kubectl(t.Context(), w.Kubeconfig, strings.NewReader(patterned), "create", "-f", "-")
	harness.Refused(t, err, "any directory of its node")

	began := time.Now()
	w.Create(t, notes)
	w.Kubectl(t, "rollout", "status", "deployment/notes", "--timeout=3m")
	t.Logf("figures: a pod with a new volume ran after %.0f s", time.Since(began).Seconds())
	node := w.Kubectl(t, "get", "pods", "-l", "app=notes", "-o", "jsonpath={.items[0].spec.nodeName}")
	w.Kubectl(t, "delete", "pods", "-l", "app=notes")
	eventually(t, "the volume has a line of each of two pods", func() error {
		out, err := w.TrySh(t.Context(), node, "cat "+dir+"/*/mine/log")
		if lines := strings.Fields(out); err == nil && (len(lines) != 2 || lines[0] == lines[1]) {
			err = fmt.Errorf("it has lines of the pods %q", lines)
		}
		return err
	})
	w.Kubectl(t, "delete", "deployment/notes", "persistentvolumeclaim/notes", "--ignore-not-found", "--timeout=3m")
	eventually(t, "nothing of the volume is left", func() error {
		left, err := w.TrySh(t.Context(), node, "ls "+dir)
		pvs, failed := w.ask(t, "get", "persistentvolumes", "-o", "name")
		if err = errors.Join(err, failed); err == nil && left+pvs != "" {
			err = errors.Join(fmt.Errorf("in the directory: %s", left), fmt.Errorf("in the API: %s", pvs))
		}
		return err
	})
}
