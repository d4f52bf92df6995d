package topologies_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// webhook is testdata/webhook on two nodes, which API servers ask about ConfigMaps with a label.
const webhook = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: webhook, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: webhook}}
  template:
    metadata: {labels: {app: webhook}}
    spec:
      terminationGracePeriodSeconds: 0
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{labelSelector: {matchLabels: {app: webhook}}, topologyKey: kubernetes.io/hostname}]}}
      containers:
      - name: webhook
        image: k8s-lab/toolbox:1
        command: ["/webhook/webhook"]
        readinessProbe: {tcpSocket: {port: 8443}, periodSeconds: 1}
        volumeMounts: [{name: program, mountPath: /webhook}]
      volumes: [{name: program, hostPath: {path: /opt/webhook}}]
---
apiVersion: v1
kind: Service
metadata: {name: webhook, namespace: default}
spec:
  selector: {app: webhook}
  ports: [{port: 443, targetPort: 8443}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: webhook.example.com}
webhooks:
- name: webhook.example.com
  clientConfig: {service: {name: webhook, namespace: default, path: /}, caBundle: %s}
  objectSelector: {matchLabels: {asks: webhook}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  timeoutSeconds: 10
`

// installWebhook runs the webhook on two workers.
func installWebhook(t *testing.T, c *harness.Cluster) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "webhook"), "./testdata/webhook")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	certificate := selfSigned(t, dir, "webhook.default.svc")
	for _, worker := range harness.Numbered("worker", 2) {
		for _, name := range []string{"webhook", "tls.crt", "tls.key"} {
			content := harness.Must[[]byte](t)(os.ReadFile(filepath.Join(dir, name)))
			if err := c.Send(t.Context(), worker, bytes.NewReader(content), "install -D -m 755 /dev/stdin /opt/webhook/"+name); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Create(t, fmt.Sprintf(webhook, base64.StdEncoding.EncodeToString(certificate)))
	c.Kubectl(t, "rollout", "status", "deployment/webhook", "--timeout=120s")
}

// selfSigned makes a certificate for a name, with its key, in files of a directory, and returns it.
func selfSigned(t *testing.T, dir, name string) []byte {
	t.Helper()
	key := harness.Must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	signed := harness.Must[[]byte](t)(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	raw := harness.Must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key))
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	for file, content := range map[string][]byte{"tls.crt": certificate, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate
}

// asksWebhook checks that API servers ask the webhook through its service, and do what it says. A request may meet
// either of its pods, so several are made.
func asksWebhook(t *testing.T, c *harness.Cluster) {
	t.Helper()
	const asking = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default, labels: {asks: webhook}}}"
	ask := func(name string) error {
		_, err := suite.Kubectl(t.Context(), c.Kubeconfig, strings.NewReader(fmt.Sprintf(asking, name)), "create", "--dry-run=server", "--filename", "-")
		return err
	}
	harness.Eventually(t, 30*time.Second, "the API server asks the webhook", func() error { return ask("allowed") })
	for range 6 {
		if err := ask("allowed"); err != nil {
			t.Error(err)
		}
		if err := ask("denied"); err == nil || !strings.Contains(err.Error(), `admission webhook "webhook.example.com" denied the request`) {
			t.Errorf("the webhook denies, and the API server says: %v", err)
		}
	}
}
