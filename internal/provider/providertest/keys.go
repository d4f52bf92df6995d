package providertest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	gossh "golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/keycopy"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
)

const Copies = "example-copies"

func AgeIdentity(t *testing.T) (identity, recipient string) {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id.String(), id.Recipient().String()
}

// Parameters returns the keys and certificates in the key store of a cluster.
func (c Cloud) Parameters(cluster string) map[string]string {
	c.T.Helper()
	out := map[string]string{}
	pages := ssm.NewGetParametersByPathPaginator(c.Client.SSM, &ssm.GetParametersByPathInput{Path: sdk.String("/k8s/" + cluster + "/pki"), WithDecryption: sdk.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		if err != nil {
			c.T.Fatal(err)
		}
		for _, p := range page.Parameters {
			if name := strings.TrimPrefix(*p.Name, "/k8s/"+cluster+"/pki/"); name != pki.NameOwner {
				out[name] = *p.Value
			}
		}
	}
	return out
}

func Restoring(key any, identity string) Values {
	return Values{"cluster": "demo", "restore_from": Values{"bucket": Copies, "key": key}, "restore_identity_wo": identity}
}

// KeysFromCopy returns the configuration of keys from a copy, which it puts into the bucket. It fails
// the test if the key store then has other keys.
func KeysFromCopy(t *testing.T) func(*Killed) Values {
	t.Helper()
	identity, recipient := AgeIdentity(t)
	g := pki.Generations{KubernetesCA: []int{2, 1}}
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Generations: g})
	if err != nil {
		t.Fatal(err)
	}
	c := Answer[*keycopy.Copy](t)(keycopy.Of(t.Context(), store, ref))
	data, err := keycopy.Encrypt(c, []string{recipient})
	if err != nil {
		t.Fatal(err)
	}
	return func(k *Killed) Values {
		k.Cloud.Account.S3.Make(Copies, "us-east-1")
		k.Cloud.Account.S3.Put(Copies, c.Name(), account.Object{Content: data})
		if !k.Object.State.IsNull() {
			for name, found := range k.Cloud.Parameters("demo") {
				if v, err := store.Get(context.Background(), name); err != nil || string(v) != found {
					k.T.Errorf("%s is not that of the copy", name)
				}
			}
		}
		return With(Restoring(c.Name(), identity), Values{"generations": Values{"kubernetes_ca": []any{2, 1}}})
	}
}

func (i *Instance) Bundles() (kubernetes, etcd, proxy, account string) {
	ref, _ := i.Get("ref").(Values)
	read := func(name string) string { s, _ := ref[name].(string); return s }
	return read("kubernetes_ca_pem"), read("etcd_ca_pem"), read("front_proxy_ca_pem"), read("service_account_public_key_pem")
}

// PublicKey is a host key in authorized_keys form.
func PublicKey(t *testing.T) string {
	t.Helper()
	signer, err := gossh.ParsePrivateKey([]byte(SSHKey(t)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(gossh.MarshalAuthorizedKey(signer.PublicKey())))
}
