package machines_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestStage checks what a new machine is told to fetch, and that stage matters only then: another
// value is never a change.
func TestStage(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	var sums strings.Builder
	for n, line := range strings.Split(strings.TrimSpace(providertest.Downloads), "\n") { // one for each file
		fmt.Fprintf(&sums, "%064x  %s\n", n, strings.Fields(line)[1])
	}
	c.More = providertest.Values{"artifact_checksums": sums.String(), "artifact_mirror": "http://mirror.example.com"} // a mirror that is not asked for checksums
	c = c.Process(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	everything := providertest.Values{"kubernetes_version": "1.36.4", "etcd_version": "3.6.16"}
	for _, tt := range []struct {
		name, role string
		stage      providertest.Values
		has        []string
		lacks      []string
	}{
		{"controller-0", "controller", everything, []string{"/etcd-v3.6.16-linux-amd64.tar.gz", "/kube-apiserver", "/kube-controller-manager", "/kube-scheduler"}, []string{"/kubelet", "haproxy"}},
		{"worker-1", "worker", everything, []string{"/kubelet", "/kube-proxy", "/containerd-2.3.7-linux-amd64.tar.gz", "/runc.amd64", "/cni-plugins", "stage_packages 'nftables'"}, []string{"/kube-apiserver", "/etcd-"}},
		{"worker-4", "worker", providertest.With(everything, providertest.Values{"kube_proxy": false}), []string{"/kubelet", "/runc.amd64"}, []string{"/kube-proxy"}},
		{"lb-0", "lb", providertest.Values{}, []string{"stage_packages 'haproxy'"}, []string{"stage_program '"}},
		// The checksums of Kubernetes 1.35.8 are not known.
		{"controller-1", "controller", providertest.Values{"kubernetes_version": "1.35.8", "etcd_version": "3.6.16"}, []string{"/etcd-v3.6.16"}, []string{"/kube-apiserver"}},
		{"controller-2", "controller", providertest.Values{"kubernetes_version": "1.35.8"}, nil, nil},
		{"controller-3", "controller", nil, nil, nil},
	} {
		machine := c.Instance("k8s_machine")
		config := func(stage any) providertest.Values {
			return providertest.Values{"name": tt.name, "role": tt.role, "network": network.Get("ref"), "stage": stage}
		}
		var stage any
		if tt.stage != nil {
			stage = tt.stage
		}
		machine.Must(config(stage))
		script := c.Staging(t, machine)
		if (script == "") != (tt.has == nil) {
			t.Errorf("%s: a script of %d bytes", tt.name, len(script))
		}
		for _, s := range tt.has {
			if !strings.Contains(script, s) {
				t.Errorf("%s does not stage %s", tt.name, s)
			}
		}
		for _, s := range tt.lacks {
			if strings.Contains(script, s) {
				t.Errorf("%s stages %s", tt.name, s)
			}
		}
		imported := c.Instance("k8s_machine")
		imported.Imports(machine.Get("id").(string))
		for _, later := range []any{stage, nil, providertest.Values{"kubernetes_version": "1.37.1"}, providertest.Values{"containerd_version": "2.2.0"}} {
			machine.Converged(config(later))
			imported.Converged(config(later))
		}
		if got := machine.Get("stage"); got != nil {
			t.Errorf("%s: the state has stage: %v", tt.name, got)
		}
	}
	// It replaces no bootcmd of configured user data.
	machine := c.Instance("k8s_machine")
	machine.Must(providertest.Values{"name": "worker-2", "role": "worker", "network": network.Get("ref"), "stage": everything, "user_data": userScript})
	if script, data := c.Staging(t, machine), c.UserData(machine); !strings.Contains(script, "/kubelet") || strings.Contains(data, "bootcmd") || !strings.Contains(data, userScript) {
		t.Errorf("with user_data it stages\n%s\nby\n%s", script, data)
	}
	long := c.Instance("k8s_machine")
	ch := long.Plan(providertest.Values{"name": "worker-3", "role": "worker", "network": network.Get("ref"), "stage": everything, "user_data": "#!" + strings.Repeat("x", 14<<10)})
	if said := long.CarryOut(ch); len(said.Errors) > 0 || !strings.Contains(providertest.Change{Errors: said.Warnings}.Failure(), "user_data, the SSH keys") || c.Staging(t, long) != "" {
		t.Errorf("with long user_data: %v, %v", said.Errors, said.Warnings)
	}
}

// TestStageIsChecked: what cannot be staged is a warning on its attribute, and no error.
func TestStageIsChecked(t *testing.T) {
	t.Parallel()
	machine := providertest.OfflineCore(t).Instance("k8s_machine")
	for name, bad := range map[string]string{
		"kubernetes_version": "1.2.3", "etcd_version": "3.4.0", "containerd_version": "1.7.0", "runc_version": "latest", "cni_plugins_version": "v",
	} {
		said := machine.Plan(providertest.Values{"name": "worker-0", "role": "worker", "network": providertest.Unknown, "stage": providertest.Values{name: bad}})
		if got := (providertest.Change{Errors: said.Warnings}).Failure(); !strings.HasPrefix(got, `"stage").AttributeName("`+name+`"): Not staged: `) || !strings.Contains(got, bad) || len(said.Errors) > 0 {
			t.Errorf("%s = %q: %q, %s", name, bad, got, said.Failure())
		}
		if got := machine.Plan(providertest.Values{"name": "worker-0", "role": "worker", "network": providertest.Unknown, "stage": providertest.Values{name: providertest.Unknown}}).Failure(); got != "" {
			t.Errorf("unknown %s: %s", name, got)
		}
	}
}
