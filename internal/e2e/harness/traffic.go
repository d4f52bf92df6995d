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

// Traffic is what clients see of the API through the Elastic IP: one writes and
// one reads, up to ten times a second each, and another looks at the nodes and
// at the pods of Web four times a second. Nothing is tried again but by client-go itself. What it
// has seen is to be read only after Unbroken or Answering has ended it.
type Traffic struct {
	Cordoned []string // sets of closed nodes, joined by "+", as they followed one another
	Fewest   int      // the fewest ready pods of Web at one time

	cluster *Cluster
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	requests int
	failed   []failure
	excused  int
	lastOK   time.Time
	gap      time.Duration // longest time without a success
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

// Requests has a client make a request again and again, with a rest between
// two, until it is ended.
func (c *Cluster) Requests(t *testing.T, rest time.Duration, request func(ctx context.Context, n int) error) *Traffic {
	t.Helper()
	x, ctx := c.newTraffic(t)
	x.loop(ctx, rest, request)
	return x
}

// newTraffic returns a Traffic without clients, and the context that ends them.
func (c *Cluster) newTraffic(t *testing.T) (*Traffic, context.Context) {
	ctx, cancel := context.WithCancel(t.Context())
	return &Traffic{cluster: c, cancel: cancel, lastOK: time.Now(), Fewest: 1 << 30}, ctx
}

// Traffic starts the clients, with a kubeconfig.
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

// pause is what is between two requests: the machines' processors are to do
// what is tested, and not only this.
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

// Failures ends the clients and returns how many requests failed.
func (x *Traffic) Failures(t *testing.T) int {
	t.Helper()
	x.end(t)
	return len(x.failed)
}

// Figures says how many requests there were, once Unbroken has ended them, and
// how many failed for a reason that it excuses.
func (x *Traffic) Figures() string {
	return fmt.Sprintf("%d requests, %d failed and excused", x.requests, x.excused)
}

// Unbroken wants that no request failed but those that are excused, see
// Cluster.excuse. A write may also have been lost at one of the times at which an
// engine of the test's own announced it.
func (x *Traffic) Unbroken(t *testing.T, announced ...time.Time) {
	t.Helper()
	x.end(t)
	x.excuse(t, announced...)
	if len(x.failed) > 0 {
		t.Errorf("%d of %d requests failed:\n%s", len(x.failed), x.requests, x.list())
	}
}

// list is what failed, a line each.
func (x *Traffic) list() string {
	lines := make([]string, len(x.failed))
	for i, f := range x.failed {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Answering wants that no request after the loss of a machine had to wait long:
// those under way on it are lost with it, and the load balancer takes a moment
// to notice.
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
