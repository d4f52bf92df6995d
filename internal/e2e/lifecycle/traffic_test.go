package lifecycle_test

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
const trafficLabel = "lifecycle-traffic"

func (c *cluster) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
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

// traffic is what clients see of the API through the Elastic IP: one writes,
// one reads, each without a pause, and another looks at the nodes. Nothing is
// tried again but by client-go itself.
type traffic struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	requests int
	failed   []string
	lastOK   time.Time
	gap      time.Duration // longest time without a success
	cordoned []string      // sets of nodes, as they followed one another
	fewest   int           // ready pods of the deployment web
}

func (c *cluster) traffic(t *testing.T) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	x := &traffic{cancel: cancel, lastOK: time.Now(), fewest: 1 << 30}
	run := uniqueName()
	writer, reader, looker := c.client(t), c.client(t), c.client(t)
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

// uniqueName tells one run of the traffic from the others.
func uniqueName() string { return fmt.Sprintf("run-%d", time.Now().UnixNano()) }

func (x *traffic) loop(ctx context.Context, request func(context.Context, int) error) {
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
func (x *traffic) look(nodes []corev1.Node, pods []corev1.Pod) {
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
	x.fewest = min(x.fewest, ready)
	if set := strings.Join(closed, "+"); len(x.cordoned) == 0 || x.cordoned[len(x.cordoned)-1] != set {
		x.cordoned = append(x.cordoned, set)
	}
}

// end stops the clients and says what they saw.
func (x *traffic) end(t *testing.T) {
	t.Helper()
	x.cancel()
	x.wg.Wait()
	x.gap = max(x.gap, time.Since(x.lastOK))
	t.Logf("%d requests, %d failed, never longer than %s without an answer", x.requests, len(x.failed), x.gap.Round(10*time.Millisecond))
	if x.requests < 20 {
		t.Errorf("only %d requests: they prove nothing", x.requests)
	}
}

// unbroken wants that no request failed.
func (x *traffic) unbroken(t *testing.T) {
	t.Helper()
	x.end(t)
	if len(x.failed) > 0 {
		t.Errorf("%d of %d requests failed:\n%s", len(x.failed), x.requests, strings.Join(x.failed, "\n"))
	}
}

// answering wants that no request after the loss of a machine had to wait long:
// those under way on it are lost with it, and the load balancer takes a moment
// to notice.
func (x *traffic) answering(t *testing.T) {
	t.Helper()
	x.end(t)
	if x.gap > 15*time.Second || len(x.failed) > 6 {
		t.Errorf("%s without an answer, %d of %d requests failed:\n%s", x.gap, len(x.failed), x.requests, strings.Join(x.failed, "\n"))
	} else if len(x.failed) > 0 {
		t.Logf("failed:\n%s", strings.Join(x.failed, "\n"))
	}
}
