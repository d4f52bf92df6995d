package rotation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/company"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// found makes the company's root and what it issues for the cluster.
func (c *cluster) found(t *testing.T) {
	t.Helper()
	c.root = company.Root(t, "Example Root")
	kubernetes, others := 2, 1
	if os.Getenv("K8S_ROTATION_APART") != "" {
		kubernetes, others = 1, 2
	}
	c.given = map[pki.Kind]map[int]*company.Authority{
		pki.KindKubernetesCA: {kubernetes: c.root.Issue(t, "Example Policy CA").IssueRSA(t, "Example Cluster CA")},
		pki.KindEtcdCA:       {others: c.root.IssueRSA(t, "Example etcd CA")},
		pki.KindFrontProxyCA: {others: c.root.Issue(t, "Example front proxy CA")},
	}
}

// of returns the present generations of a key.
func (c *cluster) of(k pki.Kind) []int {
	if list := c.generations[string(k)]; len(list) > 0 {
		return list
	}
	return []int{1}
}

// configured returns the given authorities of the present generations, and their keys.
func (c *cluster) configured(t *testing.T) (authorities map[pki.Kind]map[string]map[string]string, keys map[string]string) {
	t.Helper()
	authorities, keys = map[pki.Kind]map[string]map[string]string{}, map[string]string{}
	for k, byGeneration := range c.given {
		authorities[k] = map[string]map[string]string{}
		for n, a := range byGeneration {
			if !slices.Contains(c.of(k), n) {
				continue
			}
			one := map[string]string{"certificate_pem": a.Certificate()}
			if k == pki.KindKubernetesCA {
				one["chain_pem"] = a.Chain()
			}
			authorities[k][fmt.Sprint(n)] = one
			keys[fmt.Sprintf("%s/%d", k, n)] = a.Key(t)
		}
	}
	return authorities, keys
}

// issuer returns the common name of a generation of an authority.
func (c *cluster) issuer(k pki.Kind, generation int) string {
	if a := c.given[k][generation]; a != nil {
		return a.Name()
	}
	name := map[pki.Kind]string{pki.KindKubernetesCA: "kubernetes-ca", pki.KindEtcdCA: "etcd-ca", pki.KindFrontProxyCA: "kubernetes-front-proxy-ca"}[k]
	if generation > 1 {
		name += fmt.Sprintf("-%d", generation)
	}
	return name
}

// reissued is what the plan of the second stage says of certificates.
func (c *cluster) reissued(k pki.Kind) string {
	return fmt.Sprintf(`~ "issued by %s" -> "issued by %s",`, c.issuer(k, 1), c.issuer(k, 2))
}

// testCompany checks a cluster while a given Kubernetes CA issues. What verifies only up to a root
// accepts the API servers, and nothing else that the company has signed logs in.
func (c *cluster) testCompany(t *testing.T) {
	ours := c.given[pki.KindKubernetesCA][c.of(pki.KindKubernetesCA)[0]]
	if ours == nil {
		return
	}
	t.Run("an authority of the company", func(t *testing.T) {
		login := func(a *company.Authority) error {
			cert, key := a.Client(t, "mallory", "system:masters")
			client := harness.Must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(&rest.Config{Host: c.Endpoint, TLSClientConfig: rest.TLSClientConfig{
				CAData: []byte(c.root.Certificate()), CertData: []byte(cert), KeyData: []byte(key)}}))
			_, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
			return err
		}
		if err := login(ours); err != nil {
			t.Errorf("a certificate of the given authority: %v", err)
		}
		for _, a := range []*company.Authority{c.root, c.root.Issue(t, "Example Policy CA").Issue(t, "Example Cluster CA"), c.root.Issue(t, "Example Cluster CA")} {
			if err := login(a); !apierrors.IsUnauthorized(err) {
				t.Errorf("a certificate of %s: %v", a.Name(), err)
			}
		}
		const python = `python3 -c 'import ssl, socket, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.verify_flags = ssl.VERIFY_DEFAULT # as OpenSSL does: no anchor but a root
context.wrap_socket(socket.create_connection(("127.0.0.1", 6443)), server_hostname="kubernetes")
print("accepted")' `
		root := strings.TrimSpace(c.root.Certificate())
		for _, m := range controllers {
			for name, file := range map[string]string{"what pods have": "/etc/kubernetes/pki/root-ca.crt", "the root alone": "/run/example-root.crt"} {
				if out := c.Sh(t, m, "echo '"+root+"' >/run/example-root.crt; "+python+file); !strings.Contains(out, "accepted") {
					t.Errorf("%s: with %s: %s", m, name, out)
				}
			}
		}
		for _, name := range []string{filepath.Join(c.WS.Dir, "terraform.tfstate"), filepath.Join(suite.Dir, "rotation.log")} {
			b, err := os.ReadFile(name)
			if err != nil || strings.Contains(string(b), "PRIVATE KEY") {
				t.Errorf("%s holds a key: %v", name, err)
			}
		}
	})
}
