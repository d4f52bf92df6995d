package controlplane

import (
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func TestKeepTrust(t *testing.T) {
	both, err := pki.Bootstrap(t.Context(), pki.NewMemoryStore(nil), "demo", time.Now(), rand.Reader, pki.Options{
		Generations: pki.Generations{KubernetesCA: []int{2, 1}, FrontProxyCA: []int{2, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := pki.NewAuthority("somebody's", 0, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	fresh, _ := both.Arrange(pki.Generations{KubernetesCA: []int{2}, FrontProxyCA: []int{2}})
	old, _ := both.Arrange(pki.Generations{})
	data := func(client, proxy string) *corev1.ConfigMap {
		return &corev1.ConfigMap{Data: map[string]string{clientCAKey: client, requestHeaderCAKey: proxy, "other": "kept"}}
	}
	for _, test := range []struct {
		name       string
		m          *corev1.ConfigMap
		prior, now pki.Ref
		missing    string
		kept       string // the new client-ca-file; empty: nothing to write
	}{
		{"the new one is not there yet", data(old.KubernetesCA, both.FrontProxyCA), old, both, clientCAKey, ""},
		{"the front proxy's is not there yet", data(both.KubernetesCA, old.FrontProxyCA), old, both, requestHeaderCAKey, ""},
		{"both are there", data(both.KubernetesCA, both.FrontProxyCA), old, both, "", ""},
		{"another order", data(both.KubernetesCA, both.FrontProxyCA), both, both, "", ""},
		{"the old one goes", data(both.KubernetesCA, both.FrontProxyCA), both, fresh, "", fresh.KubernetesCA},
		{"a foreign authority stays", data(string(foreign.CertPEM)+both.KubernetesCA, both.FrontProxyCA), both, fresh, "", string(foreign.CertPEM) + fresh.KubernetesCA},
	} {
		kept, missing := keepTrust(test.m, test.prior, test.now)
		if missing != test.missing || (kept == nil) != (test.kept == "") {
			t.Errorf("%s: missing is %q, kept is %v", test.name, missing, kept)
			continue
		}
		if kept == nil {
			continue
		}
		if got := kept.Data[clientCAKey]; got != test.kept || kept.Data["other"] != "kept" {
			t.Errorf("%s: became %s", test.name, got)
		}
		if strings.Contains(kept.Data[requestHeaderCAKey], old.FrontProxyCA) || slices.Contains(pki.Certificates(kept.Data[requestHeaderCAKey]), old.FrontProxyCA) {
			t.Errorf("%s: the old front proxy CA is still trusted", test.name)
		}
	}
}
