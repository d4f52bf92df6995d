// Package kubeconfig makes short-lived client certificates for people and programs, and the
// kubeconfig for them, or for those who sign in with a program.
//
// What may not enter: the kubeconfigs of a cluster's own components, which refer to files and hold
// no key (package component).
package kubeconfig

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Defaults of a Request.
const (
	DefaultUser = "admin"
	// DefaultPerson is the user's name in a kubeconfig of everybody who signs in.
	DefaultPerson = "person"
	DefaultGroup  = access.Administrators
	DefaultTTL    = 8 * time.Hour
	// MaxTTL bounds the validity of a credential, which cannot be revoked.
	MaxTTL = 365 * 24 * time.Hour
)

// Request says for whom to make a credential.
type Request struct {
	Endpoint string        // https://host:6443
	ProxyURL string        // of a proxy on the way to Endpoint, such as socks5://localhost:1080; may be empty
	User     string        // common name; empty means DefaultUser
	Groups   []string      // organizations; empty means DefaultGroup
	TTL      time.Duration // zero means DefaultTTL
}

// proxySchemes are the schemes of proxies that kubectl can use.
var proxySchemes = []string{"http", "https", "socks5"}

// CheckProxyURL returns an error if kubectl cannot use a URL as that of a proxy.
func CheckProxyURL(s string) error {
	if u, err := url.Parse(s); err != nil || u.Host == "" || !slices.Contains(proxySchemes, u.Scheme) {
		return fmt.Errorf("%q is not an http, https or socks5 URL, such as socks5://localhost:1080", s)
	}
	return nil
}

// Exec is a credential plugin of kubectl: a program that signs the person in and prints a token
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins).
type Exec struct {
	Command     string // a path, or a name that is looked for in PATH
	Args        []string
	Env         map[string]string
	InstallHint string // shown if the command is not found
}

// Credential is a client certificate, or a program that signs in, and how to use it.
type Credential struct {
	Endpoint string
	ProxyURL string
	CA       []byte // PEM
	Pair     pki.KeyPair
	Expires  time.Time
	Exec     *Exec // in place of Pair and Expires
	cluster  string
	user     string
}

// Issue makes a credential valid from now. It fetches the key of the cluster's Kubernetes CA from
// the store and uses it once; the new key is only in the result.
func Issue(ctx context.Context, store pki.Store, ref pki.Ref, r Request, now time.Time, rand io.Reader) (Credential, error) {
	if r.User == "" {
		r.User = DefaultUser
	}
	if len(r.Groups) == 0 {
		r.Groups = []string{DefaultGroup}
	}
	if r.TTL == 0 {
		r.TTL = DefaultTTL
	}
	if r.TTL < 0 || r.TTL > MaxTTL {
		return Credential{}, fmt.Errorf("a client certificate for %s: its validity of %s must be more than zero and at most %s", r.User, r.TTL, MaxTTL)
	}
	key, err := store.Get(ctx, ref.IssuingKey(pki.KubernetesCA))
	if err != nil {
		return Credential{}, fmt.Errorf("fetching the key of the Kubernetes CA of cluster %s: %w", ref.Cluster, err)
	}
	ca, err := pki.LoadAuthority(pki.KeyPair{CertPEM: []byte(ref.KubernetesCA), KeyPEM: key})
	if err != nil {
		return Credential{}, fmt.Errorf("cluster %s: %w", ref.Cluster, err)
	}
	pair, err := ca.Issue(pki.Request{CommonName: r.User, Organizations: r.Groups, Client: true, Validity: r.TTL}, now, rand)
	if err != nil {
		return Credential{}, fmt.Errorf("a client certificate for %s: %w", r.User, err)
	}
	return Credential{
		Endpoint: r.Endpoint,
		ProxyURL: r.ProxyURL,
		CA:       []byte(ref.ServerBundle(pki.KubernetesCA)),
		Pair:     pair,
		Expires:  now.Add(r.TTL),
		cluster:  ref.Cluster,
		user:     r.User,
	}, nil
}

// SignIn returns a credential of people who sign in with a program. Of the request, Groups and TTL mean nothing: the
// token says who the person is. It holds no secret, and no key is fetched for it.
func SignIn(ref pki.Ref, r Request, exec Exec) Credential {
	if r.User == "" {
		r.User = DefaultPerson
	}
	return Credential{Endpoint: r.Endpoint, ProxyURL: r.ProxyURL, CA: []byte(ref.ServerBundle(pki.KubernetesCA)), Exec: &exec, cluster: ref.Cluster, user: r.User}
}

// YAML returns the credential as a kubeconfig. It holds the private key of a certificate.
func (c Credential) YAML() ([]byte, error) {
	name := c.user + "@" + c.cluster
	config := clientcmdapi.NewConfig()
	config.Clusters[c.cluster] = &clientcmdapi.Cluster{Server: c.Endpoint, ProxyURL: c.ProxyURL, CertificateAuthorityData: c.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.Pair.CertPEM, ClientKeyData: c.Pair.KeyPEM}
	if c.Exec != nil {
		plugin := &clientcmdapi.ExecConfig{Command: c.Exec.Command, Args: c.Exec.Args, InstallHint: c.Exec.InstallHint,
			APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode}
		for _, name := range slices.Sorted(maps.Keys(c.Exec.Env)) {
			plugin.Env = append(plugin.Env, clientcmdapi.ExecEnvVar{Name: name, Value: c.Exec.Env[name]})
		}
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: plugin}
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: c.cluster, AuthInfo: name}
	config.CurrentContext = name
	out, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", name, err)
	}
	return out, nil
}
