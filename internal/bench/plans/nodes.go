package plans

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kubeconfig"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/bench/hosts"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

const (
	clusterName   = "bench"
	apiServer     = "10.240.0.10:6443"
	kubeletActive = "run/units/active.kubelet.service"
	watchEvery    = 300 * time.Millisecond
)

// nodes stands in for all kubelets and for the controller that makes service accounts: a machine
// whose kubelet was started gets a ready Node, and every pod that is bound to a node runs.
type nodes struct {
	client *kubernetes.Clientset
	known  map[string]bool // machines that have a Node
}

// connect makes an administrator's client with the keys that the provider has put into the account.
func connect(ctx context.Context, client *infraaws.Client) (*nodes, error) {
	store := keystore.New(client, keystore.Config{Cluster: clusterName})
	ref, err := pki.LoadRef(ctx, store, clusterName, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		return nil, err
	}
	admin, err := kubeconfig.Issue(ctx, store, ref, kubeconfig.Request{Endpoint: "https://" + apiServer}, time.Now(), rand.Reader)
	if err != nil {
		return nil, err
	}
	api, err := kubernetes.NewForConfig(&rest.Config{Host: admin.Endpoint, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAData: admin.CA, CertData: admin.Pair.CertPEM, KeyData: admin.Pair.KeyPEM}})
	return &nodes{client: api, known: map[string]bool{}}, err
}

// run keeps the nodes of all machines until ctx ends. What fails is tried again.
func (n *nodes) run(ctx context.Context, all func() []*hosts.Host) {
	for ctx.Err() == nil {
		_ = n.once(ctx, all())
		select {
		case <-ctx.Done():
		case <-time.After(watchEvery):
		}
	}
}

func (n *nodes) once(ctx context.Context, all []*hosts.Host) error {
	var errs []error
	for _, h := range all {
		if n.known[h.Name] || !strings.HasPrefix(h.Read(kubeletActive), "active") {
			continue
		}
		if err := n.register(ctx, h); err != nil {
			errs = append(errs, err)
			continue
		}
		n.known[h.Name] = true
	}
	if len(n.known) == 0 {
		return errors.Join(errs...)
	}
	pods, err := n.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName != "" {
			errs = append(errs, n.start(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

// register does what a kubelet does when it starts.
func (n *nodes) register(ctx context.Context, h *hosts.Host) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: metav1.NamespaceSystem}}
	if _, err := n.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: h.Name, Labels: map[string]string{corev1.LabelHostname: h.Name}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: h.Address.String()}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
			NodeInfo: corev1.NodeSystemInfo{KubeletVersion: release.KubernetesVersion, ContainerRuntimeVersion: "containerd://2.3.7",
				BootID: strings.TrimSpace(h.Read("proc/sys/kernel/random/boot_id"))},
		},
	}
	made, err := n.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", h.Name, err)
	}
	made.Status = node.Status
	_, err = n.client.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// start does what a kubelet does with a pod that is bound to its node.
func (n *nodes) start(ctx context.Context, pod *corev1.Pod) error {
	pod.Status.Phase = corev1.PodRunning
	for _, c := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}})
	}
	_, err := n.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}
