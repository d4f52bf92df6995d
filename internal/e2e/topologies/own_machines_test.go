package topologies_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// ownState lists what roles leave on a machine: files, addresses, routes and packet filters of this project. Packages stay,
// and with keepalived the link that starts its own service. Debian's own upgrades may change those of apt-listchanges.
const ownState = `cd / && find etc/systemd etc/kubernetes etc/etcd etc/cni etc/containerd usr/local opt var/lib/etcd ! -type d 2>/dev/null | grep -v -e keepalived.service -e apt-listchanges.timer | sort
ip -4 -o address show | while read -r _ name _ address _; do echo $name $address; done
ip -4 route | sed 's/ *$//'; nft list tables 2>/dev/null | grep -E 'pod-egress|firewall'; true`

// onOwnMachines returns the cluster of an example on machines of the LAN, in an environment without AWS.
func onOwnMachines(t *testing.T, example string, machines map[string]lanMachine, vars map[string]any) *harness.Cluster {
	t.Helper()
	ws := suite.Workspace(t, example, suite.CLI, filepath.Join(suite.Root, "examples", example))
	withoutAWS(ws)
	for _, kind := range []string{"controllers", "load_balancers", "workers"} {
		if list, ok := vars[kind].([]lanMachine); ok {
			vars[kind] = named(machines, list)
		}
	}
	writeOwn(t, ws, vars)
	c := suite.Cluster(ws)
	c.Addresses, c.HostKeys = map[string]string{}, map[string]string{}
	for name, m := range machines {
		c.Addresses[name], c.HostKeys[name] = m.Address, m.HostKey
	}
	for name := range machines {
		booted(t, c, name)
	}
	return c
}

// ownMachine is a machine as the variables of the example describe it.
type ownMachine struct {
	lanMachine
	Index int `json:"index"` // only of workers
}

// named returns machines by their names. The index of each is its position.
func named(machines map[string]lanMachine, list []lanMachine) map[string]ownMachine {
	out := map[string]ownMachine{}
	for name, m := range machines {
		if i := slices.Index(list, m); i >= 0 {
			out[name] = ownMachine{m, i}
		}
	}
	return out
}

// writeOwn writes the variables of the example.
func writeOwn(t *testing.T, ws *workspace.Workspace, vars map[string]any) {
	t.Helper()
	text, err := json.Marshal(vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.WriteFile("own.auto.tfvars.json", string(text)); err != nil {
		t.Fatal(err)
	}
}

// booted waits until a machine of the LAN lets us in, and cloud-init has ended there.
func booted(t *testing.T, c *harness.Cluster, name string) {
	t.Helper()
	harness.Eventually(t, 2*time.Minute, name+" lets us in", func() error {
		_, err := c.TrySh(t.Context(), name, "cloud-init status --wait >/dev/null; true")
		return err
	})
}

// withoutAWS takes all that AWS clients read from the environment of a workspace. There is no home
// directory with configuration files either.
func withoutAWS(ws *workspace.Workspace) {
	ws.Env = slices.DeleteFunc(ws.Env, func(kv string) bool { return strings.HasPrefix(kv, "AWS_") || strings.HasPrefix(kv, "HOME=") })
}

// learnOwn reads the kubeconfig from the state.
func learnOwn(t *testing.T, c *harness.Cluster) {
	t.Helper()
	var kubeconfig string
	if err := c.WS.Output(t.Context(), "kubeconfig", &kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.Kubeconfig = filepath.Join(c.WS.Dir, "kubeconfig")
	if err := os.WriteFile(c.Kubeconfig, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOwnMachines makes a cluster of machines without EC2, and without anything of AWS in the environment:
// any call of AWS would fail for want of a region and credentials.
func TestOwnMachines(t *testing.T) {
	inSoak(t)
	l := newLAN(t)
	debian := map[string]string{"controller-0": "13", "worker-0": "13", "worker-1": "12"}
	machines := map[string]lanMachine{"controller-0": l.startDebian(debian["controller-0"], 1, "controller-0", 2560)}
	machines["worker-0"], machines["worker-1"] = l.startDebian(debian["worker-0"], 2, "worker-0", 2048), l.startDebian(debian["worker-1"], 3, "worker-1", 2048)
	vars := map[string]any{
		"network": lanNetwork, "controllers": []lanMachine{machines["controller-0"]}, "workers": []lanMachine{machines["worker-0"], machines["worker-1"]},
	}
	c := onOwnMachines(t, "own-machines", machines, vars)
	names := slices.Sorted(maps.Keys(machines))
	step := harness.Steps(t)
	before := map[string]string{}
	step("a machine has the network of Debian's installer", func(t *testing.T) { l.ifupdown(t, c, "worker-1") })
	step("what is on the machines", func(t *testing.T) {
		for _, name := range names {
			before[name] = c.Sh(t, name, ownState)
		}
	})
	step("apply", func(t *testing.T) {
		c.Apply(t)
		learnOwn(t, c)
	})
	step("second plan is empty", c.NoChanges)
	step("the releases are those that were asked for", func(t *testing.T) {
		for node := range strings.FieldsSeq(c.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.nodeInfo.kubeletVersion} {end}`)) {
			if _, got, _ := strings.Cut(node, "="); got != "v"+ownKubernetesVersion {
				t.Errorf("node %s, wanted %s", node, ownKubernetesVersion)
			}
		}
		for name, want := range debian {
			if got := strings.TrimSpace(c.Sh(t, name, `. /etc/os-release && echo "$ID $VERSION_ID"`)); got != "debian "+want {
				t.Errorf("%s has %s, wanted Debian %s", name, got, want)
			}
		}
	})
	step("pods reach one another, and everybody reaches them", func(t *testing.T) {
		c.Create(t, harness.Web)
		c.Create(t, webService)
		c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
		podsReached(t, c, time.Minute, names...)
	})
	step("API servers reach an aggregated API at its pod", func(t *testing.T) { testOwnAggregated(t, c) })
	step("removed and foreign routes are found and repaired", func(t *testing.T) {
		c.Sh(t, "worker-0", "ip route del 10.200.1.0/24")
		c.Sh(t, "controller-0", "ip route add 10.200.7.0/24 via 192.168.77.12 proto 115")
		changes, text, err := c.WS.Plan(t.Context())
		if err != nil || !changes {
			t.Fatalf("changes %t, %v", changes, err)
		}
		harness.Says(t, text, "k8s_worker_pool.this", "unit k8s-pod-routes.service: no route to 10.200.1.0/24 via 192.168.77.13")
		harness.Says(t, text, "k8s_control_plane.this", "unit k8s-controller-pod-routes.service: unwanted route to 10.200.7.0/24 via 192.168.77.12")
		c.Apply(t)
		c.NoChanges(t)
		podsReached(t, c, time.Minute, names...)
	})
	step("ports are open to the allowed networks only", func(t *testing.T) { testAllowed(t, c) })
	step("routes stay when the network's service restarts", func(t *testing.T) {
		for name, service := range map[string]string{"controller-0": "systemd-networkd", "worker-0": "systemd-networkd", "worker-1": "networking"} {
			c.Sh(t, name, "systemctl restart "+service)
		}
		time.Sleep(5 * time.Second) // in which it would remove them
		c.NoChanges(t)
	})
	step("routes are there after a reboot", func(t *testing.T) {
		l.reboot(t, "worker-1")
		harness.Eventually(t, 2*time.Minute, "worker-1 has its routes", func() error {
			out, err := c.TrySh(t.Context(), "worker-1", "ip -4 route show proto 114")
			if err == nil && !strings.Contains(out, "10.200.0.0/24 via 192.168.77.12") {
				err = errors.New("routes: " + out)
			}
			return err
		})
		podsReached(t, c, 3*time.Minute, names...)
		c.NoChanges(t)
	})
	step("the first node less", func(t *testing.T) {
		vars["workers"] = map[string]ownMachine{"worker-0": {machines["worker-1"], 0}}
		writeOwn(t, c.WS, vars)
		_, _, err := c.WS.Plan(t.Context())
		harness.Refused(t, err, "Machines would get other names", "worker-1 at 192.168.77.13 would become worker-0", "here worker-0 (192.168.77.12)")
		vars["workers"] = map[string]ownMachine{"worker-1": {machines["worker-1"], 1}}
		writeOwn(t, c.WS, vars)
		c.Apply(t)
		c.NoChanges(t)
		onlyNode(t, c, "worker-1", machines["worker-1"].Address)
		if after := c.Sh(t, "worker-0", ownState); after != before["worker-0"] {
			t.Errorf("worker-0 had\n%s\nand has\n%s", before["worker-0"], after)
		}
		if out := c.Sh(t, "controller-0", "ip -4 route show proto 115"); strings.Count(out, " via ") != 1 || !strings.Contains(out, "10.200.1.0/24 via 192.168.77.13") {
			t.Errorf("routes of the controller: %s", out)
		}
		if out := c.Sh(t, "worker-0", "ip -4 route show proto 114") + c.Sh(t, "worker-1", "ip -4 route show proto 114"); strings.TrimSpace(out) != "" {
			t.Errorf("routes of the workers: %s", out)
		}
	})
	step("another machine gets its name", func(t *testing.T) {
		vars["workers"] = map[string]ownMachine{"worker-1": {machines["worker-0"], 1}}
		writeOwn(t, c.WS, vars)
		c.Apply(t)
		c.NoChanges(t)
		onlyNode(t, c, "worker-1", machines["worker-0"].Address)
		if after := c.Sh(t, "worker-1", ownState); after != before["worker-1"] {
			t.Errorf("the former worker-1 had\n%s\nand has\n%s", before["worker-1"], after)
		}
		if out := c.Sh(t, "worker-1", "pgrep -l kubelet || true"); out != "" {
			t.Errorf("on the former worker-1 runs %s", out)
		}
	})
	step("destroy leaves nothing", func(t *testing.T) {
		c.Destroy(t)
		for _, name := range names {
			if after := c.Sh(t, name, ownState); after != before[name] {
				t.Errorf("%s had\n%s\nand has\n%s", name, before[name], after)
			}
		}
	})
}

// onlyNode checks that the cluster has one node, which is at an address.
func onlyNode(t *testing.T, c *harness.Cluster, name, address string) {
	t.Helper()
	const form = `jsonpath={range .items[*]}{.metadata.name} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}`
	if out := strings.TrimSpace(c.Kubectl(t, "get", "nodes", "-o", form)); out != name+" "+address {
		t.Errorf("nodes: %s", out)
	}
}

// podsReached waits until both pods of harness.Web, which are on different nodes, answer at their addresses to
// machines and to each other, and as a service by its name.
func podsReached(t *testing.T, c *harness.Cluster, within time.Duration, machines ...string) {
	t.Helper()
	harness.Eventually(t, within, "pods are reached", func() error {
		out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "pods", "-l", "app=web", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.podIP}{"\n"}{end}`)
		if err != nil {
			return err
		}
		pods := strings.Fields(out)
		if len(pods) != 2 {
			return fmt.Errorf("pods %v", pods)
		}
		var gets strings.Builder
		for _, p := range pods {
			_, ip, _ := strings.Cut(p, "=")
			fmt.Fprintf(&gets, "get http://%s:8080/; ", ip)
		}
		for _, machine := range machines {
			out, err := c.TrySh(t.Context(), machine, `get() { curl -sSf -m 5 "$1"; }; `+gets.String())
			if err != nil || strings.Count(out, "served by web-") != 2 {
				return fmt.Errorf("%s got %s (%w)", machine, out, err)
			}
		}
		for _, p := range pods {
			name, _, _ := strings.Cut(p, "=")
			out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "exec", name, "--", "sh", "-c",
				`get() { timeout 5 wget -q -O - "$1"; }; `+gets.String()+"get http://web.default.svc.cluster.local/")
			if err != nil || strings.Count(out, "served by web-") != 3 {
				return fmt.Errorf("%s got %s (%w)", name, out, err)
			}
		}
		return nil
	})
}

// testOwnAggregated runs metrics-server on a worker. The API server is on a machine that is no node.
func testOwnAggregated(t *testing.T, c *harness.Cluster) {
	t.Helper()
	createMetricsServer(t, c)
	c.Kubectl(t, "--namespace=kube-system", "rollout", "status", "deployment/metrics-server", "--timeout=180s")
	harness.Eventually(t, 2*time.Minute, "metrics of all nodes", func() error {
		out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "top", "nodes", "--no-headers")
		if err == nil && (strings.Count(out, "worker-") != 2 || strings.Contains(out, "unknown")) {
			err = fmt.Errorf("got %s", out)
		}
		return err
	})
}

// testAllowed lets only the controller reach etcd and kubelets, removes a rule, and then lets everybody in again.
func testAllowed(t *testing.T, c *harness.Cluster) {
	t.Helper()
	ports := map[string]string{"etcd": net.JoinHostPort(c.Addresses["controller-0"], "2379"), "a kubelet": net.JoinHostPort(c.Addresses["worker-0"], "10250")}
	open := func() (out []string) {
		for what, port := range ports {
			if conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(t.Context(), "tcp", port); err == nil {
				_ = conn.Close()
				out = append(out, what)
			}
		}
		return out
	}
	if got := open(); len(got) != 2 {
		t.Fatalf("only %v is open", got)
	}
	main, err := os.ReadFile(filepath.Join(c.WS.Dir, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	allowed := fmt.Sprintf("  allowed_cidrs = [%q]\n", c.Addresses["controller-0"]+"/32")
	closed := string(main)
	for _, line := range []string{"  version = \"3.6.16\"\n", "  hosts             = local.workers\n"} {
		if !strings.Contains(closed, line) {
			t.Fatalf("main.tf lacks %s", line)
		}
		closed = strings.Replace(closed, line, line+allowed, 1)
	}
	if err := c.WS.WriteFile("main.tf", closed); err != nil {
		t.Fatal(err)
	}
	c.Apply(t)
	c.NoChanges(t)
	if got := open(); len(got) > 0 {
		t.Errorf("%v is open to all", got)
	}
	podsReached(t, c, time.Minute, "controller-0", "worker-1")
	c.Kubectl(t, "top", "nodes") // metrics-server is a pod, and the API server asks it
	c.Sh(t, "worker-0", "nft flush table inet k8s-node-firewall")
	changes, text, err := c.WS.Plan(t.Context())
	if err != nil || !changes {
		t.Fatalf("changes %t, %v", changes, err)
	}
	harness.Says(t, text, "k8s_worker_pool.this", "worker-0", "unit k8s-node-firewall.service: nftables lacks rules of table inet k8s-node-firewall")
	c.Apply(t)
	c.NoChanges(t)
	if got := open(); len(got) > 0 {
		t.Errorf("%v is open to all after the repair", got)
	}
	if err := c.WS.WriteFile("main.tf", string(main)); err != nil {
		t.Fatal(err)
	}
	c.Apply(t)
	c.NoChanges(t)
	if got := open(); len(got) != 2 {
		t.Errorf("only %v is open without allowed_cidrs", got)
	}
}
