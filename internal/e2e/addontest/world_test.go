// Package addontest tests k8s_addon against a real API server and a real controller manager on
// loopback. There are no nodes: the tests write the status of pods as a kubelet would. What other
// controllers would write, the tests write under names of their own.
package addontest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/local"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

type values = providertest.Values

// world is a cluster without nodes, and the provider.
type world struct {
	*providertest.Core
	t    *testing.T
	kube kubernetes.Interface
	base values // arguments that every addon has
	// bundle is what an injector writes into caBundle.
	bundle string
}

// TestAddon runs all subtests in one cluster. Each uses its own objects.
func TestAddon(t *testing.T) {
	core := providertest.NewCore(t, provider.New("test"), values{"ssh": values{"private_key": providertest.SSHKey(t)}})
	keys := core.Instance("k8s_pki")
	keys.Must(values{"cluster": "local", "key_store": "state"})
	ref, _ := keys.Get("ref").(values)
	text := func(name string) string { s, _ := ref[name].(string); return s }
	private := map[string]string{}
	for name, key := range ref["keys"].(values) { //nolint:forcetypeassert // the schema says so
		private[name], _ = key.(string)
	}
	p := local.Existing(t, pki.Ref{Cluster: "local", Store: pki.StoreState, Keys: private, KubernetesCA: text("kubernetes_ca_pem"),
		EtcdCA: text("etcd_ca_pem"), FrontProxyCA: text("front_proxy_ca_pem"), ServiceAccountPublicKey: text("service_account_public_key_pem")})
	s := local.StartAPIServer(t, p)
	s.StartControllerManager(t, p, "--horizontal-pod-autoscaler-sync-period=1s")
	w := world{core, t, s.Client(t, p).Typed(), values{"control_plane": values{
		"pki": ref, "version": "1.36.4", "endpoint": s.Endpoint, "private_endpoint": s.Endpoint,
		"pod_cidr": "10.200.0.0/16", "service_cidr": "10.32.0.0/24", "dns_ip": "10.32.0.10", "domain": "cluster.local"}},
		base64.StdEncoding.EncodeToString([]byte(p.Ref.KubernetesCA))}
	for name, test := range map[string]func(world){
		"known manifests": world.knownManifests, "controllers": world.controllers, "jobs": world.jobs, "job fails": world.jobFails,
		"ignored fields": world.ignoredFields, "conflicts": world.conflicts, "replaced": world.replaced, "kept": world.kept,
	} {
		t.Run(name, func(t *testing.T) {
			w := w
			w.t = t
			w.T = t
			test(w)
		})
	}
}

func (w world) context() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	w.t.Cleanup(cancel)
	return ctx
}

func (w world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// addon returns the configuration of an addon that does not wait.
func (w world) addon(name string, manifests ...string) values {
	config := providertest.With(w.base, values{"name": name, "wait": false})
	if len(manifests) > 0 {
		list := make([]any, len(manifests))
		for i, m := range manifests {
			list[i] = m
		}
		config["manifests"] = list
	}
	return config
}

func (w world) read(name string) string {
	w.t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	w.must(err)
	return string(b)
}

// eventually waits until a condition holds.
func (w world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("not within 30 seconds: %s", what)
		}
	}
}

// as applies an object under the name of another field manager, as a controller does.
func (w world) as(manager, path, object string) {
	w.t.Helper()
	body, err := yaml.YAMLToJSON([]byte(object))
	w.must(err)
	w.must(w.kube.CoreV1().RESTClient().Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", manager).Param("force", "true").Body(body).Do(w.context()).Error())
}

// writes merges a patch into an object under a name, as kubectl patch does.
func (w world) writes(manager, path, patch string) {
	w.t.Helper()
	w.must(w.kube.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Param("fieldManager", manager).Body([]byte(patch)).Do(w.context()).Error())
}

// value returns a field of an object as JSON; empty if there is none.
func (w world) value(path string, fields ...any) string {
	w.t.Helper()
	raw, err := w.kube.CoreV1().RESTClient().Get().AbsPath(path).Do(w.context()).Raw()
	if apierrors.IsNotFound(err) {
		return ""
	}
	w.must(err)
	var v any
	w.must(json.Unmarshal(raw, &v))
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[f]
		case int:
			list, _ := v.([]any)
			if f >= len(list) {
				return ""
			}
			v = list[f]
		}
	}
	if v == nil {
		return ""
	}
	b, err := json.Marshal(v)
	w.must(err)
	return string(b)
}
