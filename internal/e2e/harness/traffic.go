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

// trafficLabel is the label of the objects that the traffic writes.
const trafficLabel = "e2e-traffic"

// Client returns an unchanged client-go client without a rate limit. It waits 20 s for an answer. protocols are what it
// offers in TLS (ALPN), and by default those of client-go.
func Client(t *testing.T, kubeconfig string, protocols ...string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.Timeout = 20 * time.Second
	config.NextProtos = protocols
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Traffic is the API as clients see it through the Elastic IP. One client writes and one reads,
// each up to ten times a second; another one reads the nodes and the pods of Web four times a
// second. Only client-go itself retries. Read the results only after Unbroken or Answering has
// ended the traffic.
type Traffic struct {
	Cordoned []string // sets of cordoned nodes, joined by "+", in order
	Fewest   int      // the smallest number of ready pods of Web at any time

	cluster *Cluster
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	requests int
	failed   []failure
	excused  int
	lastOK   time.Time
	gap      time.Duration // longest time without a successful request
}

// failure is a request that failed.
type failure struct {
	began time.Time
	took  time.Duration
	err   error
}

func (f failure) String() string {
	return fmt.Sprintf("%s after %s: %v", f.began.Format(time.TimeOnly), f.took.Round(time.Millisecond), f.err)
}

// Requests repeats a request, with a pause in between, until it is ended.
func (c *Cluster) Requests(t *testing.T, rest time.Duration, request func(ctx context.Context, n int) error) *Traffic {
	t.Helper()
	x, ctx := c.newTraffic(t)
	x.loop(ctx, rest, request)
	return x
}

// newTraffic returns a Traffic without clients, and the context that ends its clients.
func (c *Cluster) newTraffic(t *testing.T) (*Traffic, context.Context) {
	ctx, cancel := context.WithCancel(t.Context())
	return &Traffic{cluster: c, cancel: cancel, lastOK: time.Now(), Fewest: 1 << 30}, ctx
}

// Traffic starts the clients with a kubeconfig.
func (c *Cluster) Traffic(t *testing.T, kubeconfig string) *Traffic {
	t.Helper()
	x, ctx := c.newTraffic(t)
	run := fmt.Sprintf("run-%d", time.Now().UnixNano())
	writer, reader, looker := Client(t, kubeconfig), Client(t, kubeconfig), Client(t, kubeconfig)
	x.loop(ctx, pause, func(ctx context.Context, i int) error {
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
	x.loop(ctx, pause, func(ctx context.Context, _ int) error {
		_, err := reader.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err
	})
	x.loop(ctx, 250*time.Millisecond, func(ctx context.Context, _ int) error {
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

// pause is the time between two requests, which leaves the processors to what is tested.
const pause = 100 * time.Millisecond

func (x *Traffic) loop(ctx context.Context, rest time.Duration, request func(context.Context, int) error) {
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
				x.failed = append(x.failed, failure{began, time.Since(began), err})
			} else {
				x.gap = max(x.gap, time.Since(x.lastOK))
				x.lastOK = time.Now()
			}
			x.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(rest):
			}
		}
	})
}

// look records which nodes are cordoned and how many pods are ready.
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

// end stops the clients and logs what they saw.
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

// Failures ends the clients and returns the number of failed requests.
func (x *Traffic) Failures(t *testing.T) int {
	t.Helper()
	x.end(t)
	return len(x.failed)
}

// Gap ends the clients, logs the requests that failed, and returns the longest time without a successful one.
func (x *Traffic) Gap(t *testing.T) time.Duration {
	t.Helper()
	x.end(t)
	if len(x.failed) > 0 {
		t.Logf("failed:\n%s", x.list())
	}
	return x.gap
}

// Figures returns, after Unbroken, the number of requests and how many of them failed for an
// accepted reason.
func (x *Traffic) Figures() string {
	return fmt.Sprintf("%d requests, %d failed and excused", x.requests, x.excused)
}

// Unbroken ends the clients and fails the test if a request failed without an accepted reason, see
// Cluster.excuse. announced are further times at which a write may have been lost, as an engine of
// the test itself has announced.
func (x *Traffic) Unbroken(t *testing.T, announced ...time.Time) {
	t.Helper()
	x.end(t)
	x.excuse(t, announced...)
	if len(x.failed) > 0 {
		t.Errorf("%d of %d requests failed:\n%s", len(x.failed), x.requests, x.list())
	}
}

// list returns the failed requests, one line each.
func (x *Traffic) list() string {
	lines := make([]string, len(x.failed))
	for i, f := range x.failed {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Answering ends the clients and fails the test if requests had to wait long after the loss of a
// machine. Requests under way on the machine may fail, and the load balancer takes a moment to
// notice.
func (x *Traffic) Answering(t *testing.T) {
	t.Helper()
	x.end(t)
	x.excuse(t)
	if x.gap > 15*time.Second || len(x.failed) > 6 {
		t.Errorf("%s without an answer, %d of %d requests failed:\n%s", x.gap, len(x.failed), x.requests, x.list())
	} else if len(x.failed) > 0 {
		t.Logf("failed:\n%s", x.list())
	}
}
