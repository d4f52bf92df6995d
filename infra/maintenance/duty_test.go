package maintenance

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestSuspendTellsCause: whoever is refused because a node cannot be drained gets the cause as an
// error, and its text.
func TestSuspendTellsCause(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its key pair
	server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	pool := remote.NewPool(remote.Config{})
	defer pool.Close()
	f := &fleet.Fleet{Pool: pool}
	target := fleet.Target{Host: remote.Host{Name: "worker-0", Address: "192.0.2.1"}, Node: component.Node{Name: "worker-0"}}
	d := &Duty{fleet: f, m: f.Machine(target), units: []string{component.KubeletUnit}, files: map[string][]byte{
		"/ca": certPEM, "/cert": certPEM, "/key": keyPEM,
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
	// It may have been cordoned nevertheless, and could not be opened again.
	if notes := d.Notes(); len(notes) != 2 || notes[0].Problem != finding.NotDrained || notes[1].Problem != finding.NotOpened {
		t.Errorf("notes: %v", notes)
	}
}
