package cluster_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// webService exposes harness.Web under a name and on a port of every node.
const webService = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
`

// testNodes checks the number of API servers and of Ready nodes.
func (c *cluster) testNodes(t *testing.T, controllers, workers int) {
	out := c.Kubectl(t, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.nodeInfo.kubeletVersion} {.status.conditions[?(@.type=="Ready")].status} {.status.addresses[?(@.type=="InternalIP")].address} {.spec.podCIDR}{"\n"}{end}`)
	want := ""
	for i, node := range harness.Numbered("worker", workers) {
		want += fmt.Sprintf("%s v%s True 10.240.0.%d 10.200.%d.0/24\n", node, harness.KubernetesVersion, 20+i, i)
	}
	if out != want {
		t.Errorf("nodes:\n%s\nwanted:\n%s", out, want)
	}
	backends := c.Sh(t, "lb-0", `for s in /run/haproxy/*.sock; do printf 'show stat\n' | socat - "$s"; done | grep -E ',controller-[0-9]+|^[^,]*,controller' | cut -d, -f2,18`)
	for _, m := range harness.Numbered("controller", controllers) {
		if out := c.Sh(t, m, "curl -s --cacert /etc/kubernetes/pki/ca.crt https://127.0.0.1:6443/readyz"); out != "ok" {
			t.Errorf("%s: /readyz says %q", m, out)
		}
		if !strings.Contains(backends, m+",UP") {
			t.Errorf("HAProxy: %s is not UP:\n%s", m, backends)
		}
		for _, program := range []string{"kube-scheduler", "kube-controller"} { // ss shows 15 characters
			peers := strings.Fields(c.Sh(t, m, `ss -Htnp state established dport = :6443 | awk '/"`+program+`/ {print $4}' | sort -u`))
			if !slices.Equal(peers, []string{"127.0.0.1:6443"}) {
				t.Errorf("%s on %s has connections to the API servers at %q", program, m, peers)
			}
		}
	}
}

// testKeepalives: HAProxy's connections send packets before EC2 forgets them.
func (c *cluster) testKeepalives(t *testing.T) {
	// The kernel's timers: "timer:(keepalive,52sec,0)".
	connections := c.Sh(t, "lb-0", `ss -Htno state established '( sport = :6443 or dport = :6443 )'`)
	if !strings.Contains(connections, "timer:(keepalive,") {
		t.Errorf("HAProxy has no connections with keepalives:\n%s", connections)
	}
	for line := range strings.Lines(connections) {
		_, timer, found := strings.Cut(line, "timer:(keepalive,")
		if left, _, _ := strings.Cut(timer, ","); found && strings.Contains(left, "min") && !strings.HasPrefix(left, "1min") {
			t.Errorf("EC2 may forget a connection before its first keepalive: %s", line)
		}
	}
}

func (c *cluster) testWorkload(t *testing.T) {
	c.Create(t, harness.Web+"---"+webService)
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")
	pods := strings.Fields(c.Kubectl(t, "get", "pods", "-l", "app=web", "-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.nodeName}={.status.podIP}{"\n"}{end}`))
	if len(pods) != 2 {
		t.Fatalf("pods: %v", pods)
	}
	a, b := strings.Split(pods[0], "="), strings.Split(pods[1], "=")
	if a[1] == b[1] {
		t.Errorf("both pods run on %s", a[1])
	}
	exec := func(pod string, cmd ...string) string {
		return c.Kubectl(t, append([]string{"exec", pod, "--"}, cmd...)...)
	}
	if out := exec(a[0], "timeout", "5", "wget", "-q", "-O", "-", "http://"+b[2]+":8080/"); !strings.Contains(out, b[0]) {
		t.Errorf("pod to pod across nodes: %q", out)
	}
	harness.Eventually(t, 30*time.Second, "a service by name from a pod", func() error { // kube-proxy follows the pods
		out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "exec", a[0], "--", "timeout", "5", "wget", "-q", "-O", "-", "http://web.default.svc.cluster.local/")
		if err == nil && !strings.Contains(out, "served by web-") {
			err = errors.New(out)
		}
		return err
	})
	if out := exec(b[0], "nslookup", "kubernetes.default.svc.cluster.local"); !strings.Contains(out, "10.32.0.1") {
		t.Errorf("cluster DNS: %q", out)
	}
	if out := c.Kubectl(t, "logs", a[0]); !strings.Contains(out, "started") {
		t.Errorf("logs: %q", out)
	}
	for _, m := range []string{"worker-0", "worker-1"} {
		if conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", c.Addresses[m]+":30080"); err == nil {
			_ = conn.Close()
			t.Errorf("the NodePort of %s answers from outside although nodeport_cidrs is empty", m)
		}
		if out := c.Sh(t, "controller-0", "curl -s -m 5 http://"+c.privateIP(t, m)+":30080/"); !strings.Contains(out, "served by") {
			t.Errorf("NodePort of %s from controller-0: %q", m, out)
		}
		if out := c.Sh(t, m, "curl -s -m 5 http://"+c.privateIP(t, m)+":30080/"); !strings.Contains(out, "served by") {
			t.Errorf("NodePort of %s: %q", m, out)
		}
	}
	c.testPortForward(t, a[0])
}

func (c *cluster) privateIP(t *testing.T, machine string) string {
	t.Helper()
	return strings.TrimSpace(c.Sh(t, machine, "ip -4 -o addr show ens5 | awk '{print $4}' | cut -d/ -f1"))
}

func (c *cluster) testPortForward(t *testing.T, pod string) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if body, err := harness.Fetch(ctx, c.forward(ctx, t, pod)); err != nil || !strings.Contains(body, pod) {
		t.Errorf("port-forward: %q %v", body, err)
	}
}

// forward forwards a port to a pod's port 8080 until the context or the test ends, and returns its URL.
func (c *cluster) forward(ctx context.Context, t *testing.T, pod string) string {
	t.Helper()
	s := c.begin(ctx, t, "port-forward", "pod/"+pod, ":8080", "--address", "127.0.0.1")
	line, err := s.next()
	var port int
	if _, scanned := fmt.Sscanf(line, "Forwarding from 127.0.0.1:%d", &port); err != nil || scanned != nil {
		t.Fatalf("port-forward: %q %v", line, err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d/", port)
}

// spoken is what a kubectl that runs has to say.
type spoken struct {
	out   *os.File
	lines *bufio.Reader
}

// begin starts kubectl, which ends with the context or with the test.
func (c *cluster) begin(ctx context.Context, t *testing.T, args ...string) *spoken {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, suite.KubectlPath(), append([]string{"--kubeconfig", c.Kubeconfig}, args...)...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	t.Cleanup(func() { cancel(); _ = cmd.Wait(); _ = r.Close() })
	return &spoken{r, bufio.NewReader(r)}
}

// next returns the next line, if it comes soon.
func (s *spoken) next() (string, error) {
	if err := s.out.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	return s.lines.ReadString('\n')
}

func (c *cluster) testSecurity(t *testing.T) {
	c.Kubectl(t, "create", "secret", "generic", "canary", "--from-literal=value=tweet-tweet-tweet")
	raw := c.Sh(t, "controller-0", harness.Etcdctl+`get /registry/secrets/default/canary --print-value-only | head -c 200 | tr -c '[:print:]' .`)
	if !strings.HasPrefix(raw, "k8s:enc:secretbox:v1:") || strings.Contains(raw, "tweet") {
		t.Errorf("the secret in etcd is not encrypted: %q", raw)
	}
	ip := c.privateIP(t, "controller-0")
	health := func(flags, scheme string) string {
		return c.Sh(t, "controller-1", "curl -s -m 5 "+flags+" "+scheme+"://"+ip+":2379/health || echo refused")
	}
	const client = "--cacert /etc/etcd/pki/ca.crt --cert /etc/etcd/pki/server.crt --key /etc/etcd/pki/server.key"
	if out := health(client, "https"); !strings.Contains(out, `"health":"true"`) {
		t.Errorf("etcd does not answer a client with a certificate: %q", out)
	}
	if out := health("--cacert /etc/etcd/pki/ca.crt", "https"); out != "refused\n" {
		t.Errorf("etcd answered a client without certificate: %q", out)
	}
	if out := health("", "http"); strings.Contains(out, "health") {
		t.Errorf("etcd answered plain HTTP: %q", out)
	}
	old := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11, InsecureSkipVerify: true}} //nolint:gosec // that is what is refused
	if connection, err := old.DialContext(t.Context(), "tcp", strings.TrimPrefix(c.Endpoint, "https://")); err == nil {
		_ = connection.Close()
		t.Error("an API server speaks TLS 1.1")
	} else if !strings.Contains(err.Error(), "protocol version not supported") {
		t.Error(err)
	}
	worker := c.privateIP(t, "worker-0")
	if out := c.Sh(t, "controller-0", "curl -s -k -m 5 -o /dev/null -w '%{http_code}' https://"+worker+":10250/pods"); out != "401" {
		t.Errorf("the kubelet answered an anonymous request with %s", out)
	}
	c.Create(t, `
apiVersion: v1
kind: Pod
metadata: {name: uses-canary, namespace: default}
spec:
  nodeName: worker-1
  containers:
  - {name: c, image: "k8s-lab/toolbox:1", command: ["sleep", "3600"], env: [{name: V, valueFrom: {secretKeyRef: {name: canary, key: value}}}]}
`)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/uses-canary", "--timeout=60s")
	get := func(machine string) string {
		return c.Sh(t, machine, "curl -s -m 5 -o /dev/null -w '%{http_code}' --cacert /etc/kubernetes/pki/node-ca.crt --cert /etc/kubernetes/pki/kubelet.crt --key /etc/kubernetes/pki/kubelet.key https://10.240.0.4:6443/api/v1/namespaces/default/secrets/canary")
	}
	if code := get("worker-0"); code != "403" {
		t.Errorf("worker-0 reads a secret of worker-1's pod: %s", code)
	}
	if code := get("worker-1"); code != "200" {
		t.Errorf("worker-1 cannot read the secret of its own pod: %s", code)
	}
	audit := c.Sh(t, "controller-0", "cat /var/log/kubernetes/audit/audit.log") + c.Sh(t, "controller-1", "cat /var/log/kubernetes/audit/audit.log") + c.Sh(t, "controller-2", "cat /var/log/kubernetes/audit/audit.log")
	if !strings.Contains(audit, `"name":"canary"`) || strings.Contains(audit, "tweet-tweet") {
		t.Errorf("audit log: records the secret's creation: %v, contains its value: %v", strings.Contains(audit, `"name":"canary"`), strings.Contains(audit, "tweet-tweet"))
	}
}

// testFailures stops one program after the other while requests continue.
func (c *cluster) testFailures(t *testing.T) {
	// One API server: requests through the Elastic IP still succeed.
	c.Sh(t, "controller-0", "systemctl stop kube-apiserver")
	for i := range 30 {
		if _, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "--raw", "/api/v1/namespaces/default"); err != nil {
			t.Errorf("request %d with controller-0's API server stopped: %v", i, err)
			break
		}
	}
	c.Sh(t, "controller-0", "systemctl start kube-apiserver")

	// The lease holder: another one takes over and keeps the lease.
	holder := func() string {
		h := c.Kubectl(t, "get", "lease", "-n", "kube-system", "kube-controller-manager", "-o", "jsonpath={.spec.holderIdentity}")
		name, _, _ := strings.Cut(h, "_")
		return name
	}
	first := holder()
	c.Sh(t, first, "systemctl stop kube-controller-manager")
	var second string
	harness.Eventually(t, 90*time.Second, "another controller-manager takes the lease", func() error {
		if second = holder(); second == first || second == "" {
			return fmt.Errorf("holder is %q", second)
		}
		return nil
	})
	c.Sh(t, first, "systemctl start kube-controller-manager")
	for range 5 {
		time.Sleep(time.Second)
		if now := holder(); now == first {
			t.Errorf("the lease went from %s to %s when that returned", second, now)
			break
		}
	}

	// One etcd member: writes still succeed.
	c.Sh(t, "controller-1", "systemctl stop etcd")
	for i := range 10 {
		c.Kubectl(t, "create", "configmap", fmt.Sprintf("written-%d", i), "--from-literal=a=b")
	}
	c.Sh(t, "controller-1", "systemctl start etcd")
}
