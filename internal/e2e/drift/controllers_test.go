package drift_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// elsewhere is the Node of a machine that is not in EC2, and whose kubelet is silent.
const elsewhere = `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}}`

// testCloudControllers switches the cloud controller manager, and volumes in directories, on and off in a running cluster, which
// restarts nothing. Meanwhile a Service gets a load balancer, also when the manager is killed. A machine is stopped: its Node stays. It is
// terminated: its Node goes, without an apply. A Node that is none of EC2's stays all the time.
func (w *world) testCloudControllers(t *testing.T) {
	suite.MachineRole(t, "k8s-worker", "demo", suite.ClusterPolicy(t, "service-load-balancers", "demo"))
	for _, name := range []string{"cluster_override.tf", "controllers.tf"} {
		text := string(harness.Must[[]byte](t)(os.ReadFile(filepath.Join("testdata", name))))
		if err := w.WS.WriteFile(name, text); err != nil {
			t.Fatal(err)
		}
	}
	started, pods := w.Units(t), w.pods(t)
	w.Apply(t)
	w.NoChanges(t)
	compareStarts(t, started, w.Units(t), nil)
	w.Create(t, elsewhere)
	eventually(t, "the manager may not delete the Node elsewhere", func() error {
		said, err := w.manager(t)
		if err == nil && (!strings.Contains(said, `"elsewhere"`) || !strings.Contains(said, "no providerID of an EC2 instance")) {
			err = fmt.Errorf("the manager says:\n%s", said)
		}
		return err
	})
	if now := w.pods(t); now != pods {
		t.Errorf("pods before:\n%s\nand with the manager:\n%s", pods, now)
	}

	w.testService(t)
	w.testVolumes(t)

	id := w.instance(t, "worker-1").InstanceId
	w.stop(t, id)
	harness.Eventually(t, 2*time.Minute, "the Node of a stopped machine has the manager's taint", func() error {
		taints, err := w.ask(t, "get", "node", "worker-1", "-o", "jsonpath={.spec.taints[*].key}")
		if err == nil && !strings.Contains(taints, "node.cloudprovider.kubernetes.io/shutdown") {
			err = fmt.Errorf("its taints are %q", taints)
		}
		return err
	})
	harness.Must[*ec2.TerminateInstancesOutput](t)(w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*id}}))
	w.until(t, id, types.InstanceStateNameTerminated)
	at := time.Now()
	harness.Eventually(t, 90*time.Second, "the Node of a machine that is gone is gone", func() error {
		left, err := w.ask(t, "get", "node", "worker-1", "--ignore-not-found")
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
	t.Logf("figures: a Node was deleted %.0f s after its machine, which had been stopped before", time.Since(at).Seconds())
	w.Kubectl(t, "get", "node", "worker-0", "elsewhere")

	w.Apply(t, "-destroy", "-target=k8s_addon.cloud_controllers", "-target=k8s_addon.volumes")
	kinds := w.Kubectl(t, "get", "-A", "--ignore-not-found", "-o", "name", "deployments,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,storageclasses,configmaps")
	if strings.Contains(kinds, "cloud-controller-manager") || strings.Contains(kinds, "local-path") {
		t.Errorf("something is left:\n%s", kinds)
	}
}

// testService makes a load balancer for a Service, whose clients reach pods on both nodes. The managers are killed at once. Its
// rules are no drift, and its end is theirs.
func (w *world) testService(t *testing.T) {
	classic := strings.ReplaceAll(harness.BalancedService("classic", "web", ""), "nlb", "")
	_, err := suite.Kubectl(t.Context(), w.Kubeconfig, strings.NewReader(classic), "create", "-f", "-")
	harness.Refused(t, err, "service.beta.kubernetes.io/aws-load-balancer-type: nlb", "Classic Load Balancer")

	w.Create(t, harness.Web+harness.BalancedService("web", "web", ""))
	w.Kubectl(t, "delete", "pods", "-n", "kube-system", "-l", "k8s-app=cloud-controller-manager", "--force")
	w.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=3m")
	host, served := w.BalancerOf(t, "web"), map[string]bool{}
	eventually(t, "both pods answer from outside", func() error {
		body, err := harness.FromOutside(t.Context(), host)
		if strings.HasPrefix(body, "served by web-") {
			served[body] = true
		}
		if len(served) < 2 {
			return errors.Join(fmt.Errorf("pods that have answered: %v", served), err)
		}
		return nil
	})
	w.NoChanges(t)
	_, err = suite.Kubectl(t.Context(), w.Kubeconfig, nil, "annotate", "--overwrite", "service", "web", "service.beta.kubernetes.io/aws-load-balancer-type=external")
	harness.Refused(t, err, "This Service has a load balancer")
	w.Kubectl(t, "delete", "service/web", "deployment/web", "poddisruptionbudget/web", "--ignore-not-found", "--timeout=3m")
	w.ForServices(t, 0)
}

// manager returns what the managers have logged.
func (w *world) manager(t *testing.T) (string, error) {
	t.Helper()
	return w.ask(t, "logs", "-n", "kube-system", "-l", "k8s-app=cloud-controller-manager", "--tail=200", "--ignore-errors")
}

// pods returns the pods without those of the two addons, with the times their containers have restarted.
func (w *world) pods(t *testing.T) string {
	t.Helper()
	return w.Kubectl(t, "get", "pods", "-A", "-l", "k8s-app notin (cloud-controller-manager,local-path-provisioner)", "-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)
}
