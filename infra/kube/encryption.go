package kube

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// encryptionMetric has the digest of the EncryptionConfiguration that an API server uses
// (k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics).
const encryptionMetric = "apiserver_encryption_config_controller_last_config_info{"

// EncryptionConfigDigest returns the hex SHA-256 of the EncryptionConfiguration file that the API
// server loaded last. The server checks for a changed file once a minute.
func (c *Client) EncryptionConfigDigest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Of(ctx, requestTimeout))
	defer cancel()
	body, err := c.typed.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return "", fmt.Errorf("asking %s which encryption configuration it has loaded: %w", c.endpoint, err)
	}
	defer func() { _ = body.Close() }()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if digest, ok := encryptionDigest(lines.Text()); ok {
			return digest, nil
		}
	}
	err = lines.Err()
	if err == nil {
		err = errors.New("its metrics do not have the digest")
	}
	return "", fmt.Errorf("asking %s which encryption configuration it has loaded: %w", c.endpoint, err)
}

// encryptionDigest parses one line of metrics.
func encryptionDigest(line string) (string, bool) {
	labels, ok := strings.CutPrefix(line, encryptionMetric)
	if !ok {
		return "", false
	}
	// The leading comma distinguishes this label from another one that also ends in _hash.
	_, rest, ok := strings.Cut(","+labels, `,hash="sha256:`)
	if !ok {
		return "", false
	}
	digest, _, ok := strings.Cut(rest, `"`)
	return digest, ok
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
