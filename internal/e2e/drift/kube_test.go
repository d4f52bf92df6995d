package drift_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

const addon = "k8s_addon.coredns"

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, what, f)
}

func kubectl(args ...string) func(*testing.T, *world) {
	return func(t *testing.T, w *world) { w.Kubectl(t, args...) }
}

// get returns a look that formats an object with a template, or says that it does not exist.
func get(object, template string) func(*testing.T, *world) string {
	return func(t *testing.T, w *world) string {
		return w.Kubectl(t, append(strings.Fields("get --ignore-not-found "+object), "-o", "jsonpath="+template)...)
	}
}

func objects() []damage {
	const right = "system:kube-apiserver-to-kubelet"
	return []damage{
		{
			name: "RBAC binding deleted", resource: controlPlane, thing: "ClusterRoleBinding " + right,
			hurt: kubectl("delete", "clusterrolebinding", right), look: get("clusterrolebinding "+right, "{.subjects}"),
			says: []string{"missing"},
		},
		{
			name: "RBAC role edited", resource: controlPlane, thing: "ClusterRole " + right,
			hurt: kubectl("patch", "clusterrole", right, "--type=json", `-p=[{"op":"replace","path":"/rules/0/verbs","value":["get"]}]`), look: get("clusterrole "+right, "{.rules}"),
			says: []string{`rules\[0\]\.verbs\[0\]: found "get" \(set by kubectl-patch\), wanted "\*"`},
		},
		{
			name: "configuration of an addon edited", resource: addon, thing: "ConfigMap kube-system/coredns",
			hurt: kubectl("patch", "-n", "kube-system", "configmap", "coredns", "--type=merge", `-p={"data":{"Corefile":". {}"}}`), look: get("-n kube-system configmap coredns", "{.data}"),
			says: []string{`data\.Corefile: found "\. {}" \(set by kubectl-patch\), wanted .*`},
		},
		{
			name: "object of an addon deleted", resource: addon, thing: "Service kube-system/kube-dns",
			hurt: kubectl("delete", "-n", "kube-system", "service", "kube-dns"), look: get("-n kube-system service kube-dns", "{.spec.clusterIP} {.spec.ports}"),
			says: []string{"missing"},
		},
		{
			name: "deployment of an addon scaled", resource: addon, thing: "Deployment kube-system/coredns",
			hurt: kubectl("scale", "-n", "kube-system", "deployment", "coredns", "--replicas=1"), look: get("-n kube-system deployment coredns", "{.spec.replicas}"),
			says: []string{`spec\.replicas: found 1 \(set by kubectl\), wanted 2`},
		},
		{
			name: "node deleted", resource: workerPool, thing: "worker-1",
			hurt: kubectl("delete", "node", "worker-1"), look: get("node worker-1", "{.spec.podCIDR}"),
			says: []string{"node: not registered with the API server"}, restarts: []string{"worker-1/kubelet"},
		},
	}
}

// etcdctl runs etcdctl on a machine with its member's own certificate.
const etcdctl = "etcdctl --endpoints=https://127.0.0.1:2379 --cacert=/etc/etcd/pki/ca.crt --cert=/etc/etcd/pki/peer.crt --key=/etc/etcd/pki/peer.key "

// members returns a look that lists the names of the running voters, as another member reports
// them.
func members(from string) func(*testing.T, *world) string {
	return see(from, etcdctl+"member list | cut -d, -f2-6 | sort")
}

func lostData() damage {
	return damage{
		name: "data of an etcd member deleted", resource: etcdCluster, thing: "controller-0",
		hurt: on("controller-0", "systemctl stop etcd && rm -r /var/lib/etcd/member"),
		look: see("controller-0", "test -d /var/lib/etcd/member && systemctl is-active etcd; true"),
		says: []string{
			"unit etcd.service: stopped, wanted running",
			"etcd member: data in /var/lib/etcd/member missing, wanted a copy of the cluster's",
		},
		restarts: []string{"controller-0/etcd"},
	}
}

func removedMember() damage {
	return damage{
		name: "etcd member removed", resource: etcdCluster, thing: "controller-2",
		hurt: func(t *testing.T, w *world) {
			w.Sh(t, "controller-1", etcdctl+"member remove $("+etcdctl+"member list | grep ', controller-2,' | cut -d, -f1)")
			// The member notices and exits; systemd gives up restarting it after a while.
			eventually(t, "etcd of controller-2 ends", func() error {
				if out := w.Sh(t, "controller-2", "systemctl is-active etcd; true"); strings.TrimSpace(out) == "active" {
					return fmt.Errorf("it is %s", strings.TrimSpace(out))
				}
				return nil
			})
		},
		look: members("controller-1"),
		says: []string{"etcd member: missing from the cluster, wanted a voter", "unit etcd.service: (failed|failing again and again|waiting for its next start|stopped|stopping|starting).*, wanted running"}, restarts: []string{"controller-2/etcd"},
	}
}
