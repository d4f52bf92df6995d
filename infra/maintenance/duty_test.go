package maintenance

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestSuspendTellsCause: whoever is refused because a node cannot be drained
// gets the error itself, and its words.
func TestSuspendTellsCause(t *testing.T) {
	root, err := pki.NewAuthority("kubernetes-ca", time.Hour, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.LoadAuthority(root)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{CommonName: "system:node:worker-0", Client: true}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pool := remote.NewPool(remote.Config{})
	defer pool.Close()
	f := &fleet.Fleet{Pool: pool}
	target := fleet.Target{Host: remote.Host{Name: "worker-0", Address: "192.0.2.1"}, Node: component.Node{Name: "worker-0"}}
	d := &Duty{fleet: f, m: f.Machine(target), units: []string{component.KubeletUnit}, files: map[string][]byte{
		"/ca": root.CertPEM, "/cert": pair.CertPEM, "/key": pair.KeyPEM,
		component.KubeletKubeconfig: []byte(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: "system:node:worker-0"}}]
clusters: [{name: k, cluster: {server: "https://10.240.0.40:6443", certificate-authority: /ca}}]
users: [{name: "system:node:worker-0", user: {client-certificate: /cert, client-key: /key}}]
`)}}
	err = d.Suspend(t.Context(), func(string) bool { return false })
	var step *fleet.StepError
	if !errors.As(err, &step) || step.Step != "drain" || !strings.Contains(err.Error(), "machine worker-0: drain: its pods were not drained: ") {
		t.Errorf("%v", err)
	}
	var unpinned *remote.HostKeyError
	if !errors.As(err, &unpinned) {
		t.Errorf("the cause is lost: %v", err)
	}
	if notes := d.Notes(); len(notes) != 1 || notes[0].Problem != finding.NotDrained {
		t.Errorf("notes: %v", notes)
	}
}
