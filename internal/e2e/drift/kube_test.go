package drift_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

const addon = "k8s_addon.coredns"

// eventually is patient: a manager may first have to wait for a lease, and a machine that stops for its pods.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	harness.Eventually(t, 3*time.Minute, what, f)
}

// Kubectl is Patiently: here kubectl only prepares and looks.
func (w *world) Kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return w.Patiently(t, "", args...)
}

// Create is Cluster.Create by Patiently.
func (w *world) Create(t *testing.T, manifests string) {
	t.Helper()
	w.Patiently(t, manifests, "apply", "-f", "-")
}

// ask runs kubectl once.
func (w *world) ask(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return suite.Kubectl(t.Context(), w.Kubeconfig, nil, args...)
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
			hurt: kubectl("delete", "--ignore-not-found", "clusterrolebinding", right), look: get("clusterrolebinding "+right, "{.subjects}"),
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
			hurt: kubectl("delete", "--ignore-not-found", "-n", "kube-system", "service", "kube-dns"), look: get("-n kube-system service kube-dns", "{.spec.clusterIP} {.spec.ports}"),
			says: []string{"missing"},
		},
		{
			name: "deployment of an addon scaled", resource: addon, thing: "Deployment kube-system/coredns",
			hurt: kubectl("scale", "-n", "kube-system", "deployment", "coredns", "--replicas=1"), look: get("-n kube-system deployment coredns", "{.spec.replicas}"),
			says: []string{`spec\.replicas: found 1 \(set by kubectl\), wanted 2`},
		},
		{
			name: "node deleted", resource: workerPool, thing: "worker-1",
			hurt: kubectl("delete", "--ignore-not-found", "node", "worker-1"), look: get("node worker-1", "{.spec.podCIDR}"),
			says: []string{"node: not registered with the API server"}, restarts: []string{"worker-1/kubelet"},
		},
		{
			name: "node without an identity", resource: workerPool, thing: "worker-0", // as a node that was there before
			hurt: remade("worker-0", func(_, spec map[string]any) { delete(spec, "providerID") }),
			look: get("node worker-0", "{.spec.providerID}"),
			says: []string{`node spec\.providerID: missing, wanted aws:///us-east-1a/i-[0-9a-f]{17}`},
		},
	}
}

// strangeNode is a node with the identity of another instance, as a restored etcd may have it.
func strangeNode() damage {
	return damage{
		name: "node of another instance", resource: workerPool, thing: "worker-1",
		hurt: remade("worker-1", func(labels, spec map[string]any) {
			delete(labels, "topology.kubernetes.io/region")
			spec["providerID"] = "aws:///us-east-1a/i-0fedcba9876543210"
		}),
		look: get("node worker-1", `{.spec.providerID} {.metadata.labels.topology\.kubernetes\.io/region} {.metadata.labels.node\.kubernetes\.io/instance-type}`),
		says: []string{
			`node label topology\.kubernetes\.io/region: missing, wanted "us-east-1"`,
			`node spec\.providerID: found aws:///us-east-1a/i-0fedcba9876543210, wanted aws:///us-east-1a/i-[0-9a-f]{17}: an apply makes its Node object anew`,
		},
		restarts: []string{"worker-1/kubelet"},
	}
}

// remade makes a Node object again with other labels and fields. Its kubelet keeps running.
func remade(name string, change func(labels, spec map[string]any)) func(*testing.T, *world) {
	return func(t *testing.T, w *world) {
		var node struct {
			APIVersion string         `json:"apiVersion"`
			Kind       string         `json:"kind"`
			Spec       map[string]any `json:"spec"`
			Metadata   struct {
				Name        string         `json:"name"`
				Labels      map[string]any `json:"labels"`
				Annotations map[string]any `json:"annotations"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal([]byte(w.Kubectl(t, "get", "node", name, "-o", "json")), &node); err != nil {
			t.Fatal(err)
		}
		change(node.Metadata.Labels, node.Spec)
		text, err := json.Marshal(node)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.WS.WriteFile(name+".json", string(text)); err != nil {
			t.Fatal(err)
		}
		w.Kubectl(t, "delete", "--ignore-not-found", "node", name)
		harness.Eventually(t, time.Minute, "the Node "+name+" is made again", func() error {
			_, err := w.ask(t, "create", "-f", filepath.Join(w.WS.Dir, name+".json"))
			if err != nil && strings.Contains(err.Error(), "AlreadyExists") { // by a command whose answer was lost
				return nil
			}
			return err
		})
	}
}

// etcdctl is harness.Etcdctl with patience: by default a command may take 5 s.
const etcdctl = harness.Etcdctl + "--command-timeout=60s --dial-timeout=30s "

// etcd runs a script with etcdctl on a machine, for a minute again if it fails, as it does in an election.
func (w *world) etcd(t *testing.T, machine, script string) (out string) {
	t.Helper()
	harness.Eventually(t, time.Minute, "etcdctl", func() (err error) {
		out, err = w.TrySh(t.Context(), machine, script)
		return err
	})
	return out
}

// members returns a look that lists the names of the running voters, as another member reports
// them.
func members(from string) func(*testing.T, *world) string {
	return func(t *testing.T, w *world) string {
		return w.etcd(t, from, "list=$("+etcdctl+`member list) || { echo "$list"; exit 1; }; echo "$list" | cut -d, -f2-6 | sort`)
	}
}

// removeMember removes the member of controller-2 if it is listed. A member refuses while it takes the cluster for unhealthy, also for
// some seconds after a connection to another one was interrupted.
const removeMember = "list=$(" + etcdctl + `member list) || { echo "$list"; exit 1; }
id=$(echo "$list" | grep ', controller-2,' | cut -d, -f1)
[ -z "$id" ] || ` + etcdctl + "member remove $id"

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
			w.etcd(t, "controller-1", removeMember)
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
