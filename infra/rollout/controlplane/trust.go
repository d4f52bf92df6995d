package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// The cluster itself publishes changed CA bundles. The controller manager writes the Kubernetes CA
// into a ConfigMap in every namespace, for pods. The API servers write the client CA and the front
// proxy's CA into one ConfigMap, for extension API servers. A rotation may continue only when both
// hold what was applied.

const (
	// rootCAConfigMap is mounted into pods beside their token
	// (https://kubernetes.io/docs/concepts/configuration/configmap/).
	rootCAConfigMap = "kube-root-ca.crt"
	rootCAKey       = "ca.crt"
	// authenticationConfigMap tells extension API servers which CAs to trust (kubernetes
	// pkg/controlplane/controller/clusterauthenticationtrust). API servers add their CAs to it and
	// never remove one that has not expired.
	authenticationConfigMap = "extension-apiserver-authentication"
	clientCAKey             = "client-ca-file"
	requestHeaderCAKey      = "requestheader-client-ca-file"
)

// trustBudget is how long the controller managers may take to elect a leader (15 s after the
// last one disappeared) and to write a changed CA into every namespace, and the API servers to
// publish theirs, which they check once a minute.
const trustBudget = 2 * time.Minute

// publishTrust waits after a change of the CA bundles until the cluster publishes the new ones, and
// removes the CAs that were dropped.
func (o *operation) publishTrust(ctx context.Context, prior pki.Ref) error {
	now := o.want.Spec.Cluster.PKI
	root := now.ServerBundle(pki.KubernetesCA)
	if prior.ServerBundle(pki.KubernetesCA) == root && prior.FrontProxyCA == now.FrontProxyCA {
		return nil
	}
	var last error
	err := fleet.Within(ctx, trustBudget, "publication of the CA certificates", func(ctx context.Context) error {
		return wait.PollUntilContextCancel(ctx, fleet.Poll, true, func(ctx context.Context) (bool, error) {
			c, err := o.anyReady(ctx, o.Reached())
			if err == nil {
				err = publishedRootCA(ctx, c, root)
			}
			if err == nil {
				err = publishedAuthentication(ctx, c, prior, now)
			}
			if ctx.Err() == nil || last == nil {
				last = err
			}
			return err == nil, nil
		})
	})
	if err != nil {
		return fmt.Errorf("waiting until the cluster publishes the changed CA certificates: %w (last: %w)\n"+
			"next: kubectl get configmap -A --field-selector metadata.name=%s", err, last, rootCAConfigMap)
	}
	o.Fleet.Say("cluster", "control plane: the changed CA certificates are published")
	return nil
}

// publishedRootCA returns an error naming a namespace that does not have the bundle yet.
func publishedRootCA(ctx context.Context, c *kube.Client, bundle string) error {
	list, err := c.Typed().CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, rootCAConfigMap).String()})
	if err != nil {
		return fmt.Errorf("listing ConfigMaps %s: %w", rootCAConfigMap, err)
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("no namespace has a ConfigMap %s yet", rootCAConfigMap)
	}
	var stale []string
	for _, m := range list.Items {
		if strings.TrimSpace(m.Data[rootCAKey]) != strings.TrimSpace(bundle) {
			stale = append(stale, m.Namespace)
		}
	}
	if len(stale) > 0 {
		return fmt.Errorf("ConfigMap %s is not up to date in namespace %s", rootCAConfigMap, fleet.List(stale))
	}
	return nil
}

// publishedAuthentication returns an error naming a CA that extension API servers do not trust yet,
// and removes the CAs that were dropped.
func publishedAuthentication(ctx context.Context, c *kube.Client, prior, now pki.Ref) error {
	maps := c.Typed().CoreV1().ConfigMaps(metav1.NamespaceSystem)
	m, err := maps.Get(ctx, authenticationConfigMap, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", authenticationConfigMap, err)
	}
	kept, missing := keepTrust(m, prior, now)
	if missing != "" {
		return fmt.Errorf("ConfigMap %s lacks a certificate in %s", authenticationConfigMap, missing)
	}
	if kept == nil {
		return nil
	}
	if _, err := maps.Update(ctx, kept, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", authenticationConfigMap, err)
	}
	return nil
}

// keepTrust returns the ConfigMap without the dropped certificates, nil if it has none of them, and
// the key in which a certificate is missing. Other CAs stay: they may come from a flag.
func keepTrust(m *corev1.ConfigMap, prior, now pki.Ref) (kept *corev1.ConfigMap, missing string) {
	for key, ca := range map[string]pki.CAName{clientCAKey: pki.KubernetesCA, requestHeaderCAKey: pki.FrontProxyCA} {
		old, wanted, have := pki.Certificates(prior.Bundle(ca)), pki.Certificates(now.Bundle(ca)), pki.Certificates(m.Data[key])
		if slices.ContainsFunc(wanted, func(c string) bool { return !slices.Contains(have, c) }) {
			return nil, key
		}
		left := slices.DeleteFunc(slices.Clone(have), func(c string) bool {
			return slices.Contains(old, c) && !slices.Contains(wanted, c)
		})
		if len(left) == len(have) {
			continue
		}
		if kept == nil {
			kept = m.DeepCopy()
		}
		kept.Data[key] = strings.Join(left, "")
	}
	return kept, ""
}
