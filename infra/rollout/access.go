package rollout

import (
	"context"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// api connects to the API server's public endpoint, as an administrator.
func (e *Engine) api(ctx context.Context, keys *keyring, endpoint string) (*kube.Client, error) {
	return connectAPI(ctx, keys, endpoint, e.Dial)
}

// localAPI connects to the API server on a machine, through SSH, as an administrator.
func (e *Engine) localAPI(ctx context.Context, keys *keyring, t Target) (*kube.Client, error) {
	return connectAPI(ctx, keys, fmt.Sprintf("https://127.0.0.1:%d", component.APIServerPort), kube.DialFunc(e.Pool.Machine(t.Host).Dialer(ctx)))
}

func connectAPI(ctx context.Context, keys *keyring, endpoint string, dial kube.DialFunc) (*kube.Client, error) {
	pair, err := keys.admin(ctx, pki.KubernetesCA)
	if err != nil {
		return nil, err
	}
	return kube.New(kube.Access{Endpoint: endpoint, CA: []byte(keys.ref.KubernetesCA),
		Cert: pair.CertPEM, Key: pair.KeyPEM, Dial: dial})
}

// localEtcd connects to the etcd member on a machine, through SSH.
func (e *Engine) localEtcd(ctx context.Context, keys *keyring, t Target) (*etcd.Client, error) {
	pair, err := keys.admin(ctx, pki.EtcdCA)
	if err != nil {
		return nil, err
	}
	return etcd.New(etcd.Access{Endpoint: component.EtcdEndpoints([]component.Node{t.Node})[0],
		CA: []byte(keys.ref.EtcdCA), Cert: pair.CertPEM, Key: pair.KeyPEM, Dial: e.Pool.Machine(t.Host).Dialer(ctx)})
}
