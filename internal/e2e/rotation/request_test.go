package rotation_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	certificates "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testRequest asks for a certificate after the authority was rotated. The controller manager signs with the authority
// that issues now, and the API servers accept the certificate.
func (c *cluster) testRequest(t *testing.T) {
	key := harness.Must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := harness.Must[[]byte](t)(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key))
	secret := harness.Must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key))
	requests := harness.Client(t, c.Kubeconfig).CertificatesV1().CertificateSigningRequests()
	csr := harness.Must[*certificates.CertificateSigningRequest](t)(requests.Create(t.Context(), &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"},
		Spec: certificates.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificates.KubeAPIServerClientSignerName, Usages: []certificates.KeyUsage{certificates.UsageClientAuth},
		},
	}, metav1.CreateOptions{}))
	csr.Status.Conditions = append(csr.Status.Conditions, certificates.CertificateSigningRequestCondition{Type: certificates.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
	if _, err := requests.UpdateApproval(t.Context(), "jane", csr, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 30*time.Second, "the request is signed", func() (err error) {
		if csr, err = requests.Get(t.Context(), "jane", metav1.GetOptions{}); err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("conditions: %v", csr.Status.Conditions)
		}
		return err
	})
	authority := c.ref(t).KubernetesCA
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority))
	block, _ := pem.Decode(csr.Status.Certificate)
	signed := harness.Must[*x509.Certificate](t)(x509.ParseCertificate(block.Bytes))
	if _, err := signed.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("the certificate is not of the authority that issues now: %v", err)
	}
	client := harness.Must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(&rest.Config{Host: c.Endpoint, TLSClientConfig: rest.TLSClientConfig{
		CAData: []byte(authority), CertData: csr.Status.Certificate, KeyData: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})}}))
	who := harness.Must[*authentication.SelfSubjectReview](t)(client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authentication.SelfSubjectReview{}, metav1.CreateOptions{}))
	if who.Status.UserInfo.Username != "jane" || !slices.Contains(who.Status.UserInfo.Groups, "system:authenticated") {
		t.Errorf("the certificate logs in as %+v", who.Status.UserInfo)
	}
}
