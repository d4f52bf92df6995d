package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// trafficLabel marks what the traffic has written.
const trafficLabel = "e2e-traffic"

// Web is an application that must not be interrupted: two pods of a
// Deployment, one of which a PodDisruptionBudget wants at any time.
const Web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: web
        image: k8s-lab/toolbox:1
        command: ["sh", "-c", "mkdir -p /www && echo hello > /www/index.html && exec httpd -f -p 8080 -h /www"]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: default}
spec:
  minAvailable: 1
  selector: {matchLabels: {app: web}}
`

// Client returns an unchanged client-go client, which waits 20 s for an answer
// and is not limited in its rate.
func Client(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.Timeout = 20 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Traffic is what clients see of the API through the Elastic IP: one writes,
// one reads, each without a pause, and another looks at the nodes and at the
// pods of Web. Nothing is tried again but by client-go itself. What it has seen
// is to be read only after Unbroken or Answering has ended it.
type Traffic struct {
	Cordoned []string // sets of closed nodes, joined by "+", as they followed one another
	Fewest   int      // the fewest ready pods of Web at one time

	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	requests int
	failed   []string
	lastOK   time.Time
	gap      time.Duration // longest time without a success
}

// StartTraffic starts the clients.
func StartTraffic(t *testing.T, kubeconfig string) *Traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	x := &Traffic{cancel: cancel, lastOK: time.Now(), Fewest: 1 << 30}
	run := fmt.Sprintf("run-%d", time.Now().UnixNano())
	writer, reader, looker := Client(t, kubeconfig), Client(t, kubeconfig), Client(t, kubeconfig)
	x.loop(ctx, func(ctx context.Context, i int) error {
		maps := writer.CoreV1().ConfigMaps("default")
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", run, i), Labels: map[string]string{trafficLabel: run}}, Data: map[string]string{"n": fmt.Sprint(i)}}
		m, err := maps.Create(ctx, m, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		m.Data["updated"] = "yes"
		_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
		return err
	})
	x.loop(ctx, func(ctx context.Context, _ int) error {
		_, err := reader.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err
	})
	x.loop(ctx, func(ctx context.Context, _ int) error {
		nodes, err := looker.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		pods, err := looker.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err == nil {
			x.look(nodes.Items, pods.Items)
		}
		return err
	})
	return x
}

func (x *Traffic) loop(ctx context.Context, request func(context.Context, int) error) {
	x.wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			began := time.Now()
			err := request(ctx, i)
			if ctx.Err() != nil {
				return
			}
			x.mu.Lock()
			x.requests++
			if err != nil {
				x.failed = append(x.failed, fmt.Sprintf("%s after %s: %v", began.Format(time.TimeOnly), time.Since(began).Round(time.Millisecond), err))
			} else {
				x.gap = max(x.gap, time.Since(x.lastOK))
				x.lastOK = time.Now()
			}
			x.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
}

// look notes which nodes are closed to new pods and how many pods are ready.
func (x *Traffic) look(nodes []corev1.Node, pods []corev1.Pod) {
	var closed []string
	for _, n := range nodes {
		if n.Spec.Unschedulable {
			closed = append(closed, n.Name)
		}
	}
	ready := 0
	for _, p := range pods {
		if p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			ready++
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.Fewest = min(x.Fewest, ready)
	if set := strings.Join(closed, "+"); len(x.Cordoned) == 0 || x.Cordoned[len(x.Cordoned)-1] != set {
		x.Cordoned = append(x.Cordoned, set)
	}
}

// end stops the clients and says what they saw.
func (x *Traffic) end(t *testing.T) {
	t.Helper()
	x.cancel()
	x.wg.Wait()
	x.gap = max(x.gap, time.Since(x.lastOK))
	t.Logf("%d requests, %d failed, never longer than %s without an answer", x.requests, len(x.failed), x.gap.Round(10*time.Millisecond))
	if x.requests < 20 {
		t.Errorf("only %d requests: they prove nothing", x.requests)
	}
}

// Unbroken wants that no request failed.
func (x *Traffic) Unbroken(t *testing.T) {
	t.Helper()
	x.end(t)
	x.none(t)
}

// UnbrokenByEtcd is Unbroken while etcd's members stop one after another: it may
// lose a write that is on its way while the leadership changes, which happens
// once or twice. etcd gives no guarantee for such a write, and API servers do
// not try it again.
func (x *Traffic) UnbrokenByEtcd(t *testing.T) {
	t.Helper()
	x.end(t)
	lost := func(failure string) bool {
		return slices.ContainsFunc(lostInElection, func(words string) bool { return strings.Contains(failure, words) })
	}
	if len(x.failed) > 2 || slices.ContainsFunc(x.failed, func(f string) bool { return !lost(f) }) {
		x.none(t)
	} else if len(x.failed) > 0 {
		t.Logf("lost while etcd's leadership changed: %s", x.failed)
	}
}

// lostInElection is what etcd says of a write that came while its leadership changed.
var lostInElection = []string{"etcdserver: request timed out", "raft proposal dropped", "etcdserver: leader changed"}

func (x *Traffic) none(t *testing.T) {
	t.Helper()
	if len(x.failed) > 0 {
		t.Errorf("%d of %d requests failed:\n%s", len(x.failed), x.requests, strings.Join(x.failed, "\n"))
	}
}

// Answering wants that no request after the loss of a machine had to wait long:
// those under way on it are lost with it, and the load balancer takes a moment
// to notice.
func (x *Traffic) Answering(t *testing.T) {
	t.Helper()
	x.end(t)
	if x.gap > 15*time.Second || len(x.failed) > 6 {
		t.Errorf("%s without an answer, %d of %d requests failed:\n%s", x.gap, len(x.failed), x.requests, strings.Join(x.failed, "\n"))
	} else if len(x.failed) > 0 {
		t.Logf("failed:\n%s", strings.Join(x.failed, "\n"))
	}
}
