package kube

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// The metrics that have the digest of a configuration file that an API server has loaded
// (k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics and .../authenticationconfig/metrics).
const (
	encryptionMetric     = "apiserver_encryption_config_controller_last_config_info{"
	authenticationMetric = "apiserver_authentication_config_controller_last_config_info{"
)

// Loaded are the configuration files that an API server has loaded last, of those that it reloads by itself: the hex
// SHA-256 of each. It is empty for a file that the API server does not have.
type Loaded struct {
	Encryption     string // EncryptionConfiguration
	Authentication string // AuthenticationConfiguration
}

// Loaded asks an API server which configuration files it has loaded. It looks for a changed file once a minute at least.
func (c *Client) Loaded(ctx context.Context) (Loaded, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	body, err := c.typed.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err == nil {
		defer func() { _ = body.Close() }()
		var out Loaded
		if out, err = loadedIn(body); err == nil {
			return out, nil
		}
	}
	return Loaded{}, fmt.Errorf("asking %s which configuration it has loaded: %w", c.endpoint, err)
}

// loadedIn reads metrics.
func loadedIn(r io.Reader) (out Loaded, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if digest := hashIn(lines.Text(), encryptionMetric); digest != "" {
			out.Encryption = digest
		}
		if digest := hashIn(lines.Text(), authenticationMetric); digest != "" {
			out.Authentication = digest
		}
	}
	return out, lines.Err()
}

// hashIn returns the label hash of one line of metrics, empty if it is another metric.
func hashIn(line, metric string) string {
	labels, ok := strings.CutPrefix(line, metric)
	if !ok {
		return ""
	}
	// The leading comma distinguishes this label from another one that also ends in _hash.
	_, rest, ok := strings.Cut(","+labels, `,hash="sha256:`)
	if !ok {
		return ""
	}
	digest, _, _ := strings.Cut(rest, `"`)
	return digest
}

// RewriteSecret writes a secret back unchanged, so that it is encrypted with the present key. A
// secret that no longer exists is no error
// (https://kubernetes.io/docs/tasks/administer-cluster/encrypt-data/#rotating-a-decryption-key).
func (c *Client) RewriteSecret(ctx context.Context, namespace, name string) error {
	secrets := c.typed.CoreV1().Secrets(namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
		defer cancel()
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("rewriting secret %s/%s: %w", namespace, name, err)
	}
	return nil
}
