package component

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/issuer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// APIServerSpec holds the settings of kube-apiserver.
type APIServerSpec struct {
	ExtraSANs   []string // further names and addresses in its serving certificate
	AuditPolicy []byte   // YAML of an audit.k8s.io/v1 Policy; empty means the built-in one
	// Issuer is the URL at which others, such as AWS, read the keys of service accounts' tokens: it signs them. Tokens
	// of the cluster's own issuer stay valid. Empty means that the cluster's own issuer signs.
	Issuer string
	// Authentication has the fields of AuthenticationConfiguration, without anonymous: which issuers' tokens are
	// accepted. The API servers reload it.
	Authentication map[string]any
	// AdmissionPlugins configures admission plugins: name -> configuration object, nil for none.
	AdmissionPlugins map[string]map[string]any
	Args             Args // further flags
}

// apiServerFiles are the files that readAPIServer reads.
var apiServerFiles = []string{unitPath(APIServerUnit), AuthenticationPath, AuditPolicyPath, AdmissionPath, certPath("apiserver")}

// DefaultShutdownDelay is how long HAProxy takes by default to notice that an API server is not
// ready.
const DefaultShutdownDelay = noticeChecks * DefaultCheckInterval

// APIServerRequest returns the request for the API servers' serving certificates. All controllers
// have the same names, so that a client may reach any of them by any.
func APIServerRequest(spec ControlPlaneSpec) (pki.Request, error) {
	names := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc." + spec.Cluster.Domain, "localhost",
		firstServiceIP(spec.Cluster.ServiceCIDR).String(), loopback.String(),
	}
	names = append(names, spec.EndpointNames...)
	for _, n := range spec.Nodes {
		names = append(names, n.Name, n.PrivateIP.String())
		if n.PublicIP.IsValid() {
			names = append(names, n.PublicIP.String())
		}
	}
	dns, ips, err := sans(append(names, spec.APIServer.ExtraSANs...)...)
	return pki.Request{CommonName: "kube-apiserver", DNSNames: dns, IPs: ips, Server: true}, err
}

func (c *controller) addAPIServer() error {
	request, err := APIServerRequest(c.spec)
	if err != nil {
		return err
	}
	c.addCertificate("apiserver", pki.KubernetesCA, request)
	c.addCertificate("apiserver-kubelet-client", pki.KubernetesCA, pki.Request{CommonName: kubeletClientUser, Client: true})
	c.addCertificate("apiserver-etcd-client", pki.EtcdCA, pki.Request{CommonName: etcdClientUser, Client: true})
	c.addCertificate("front-proxy-client", pki.FrontProxyCA, pki.Request{CommonName: frontProxyUser, Client: true})

	spec := c.spec.APIServer
	config, err := spec.authentication()
	if err != nil {
		return err
	}
	authentication, err := yamlFile(AuthenticationPath, config)
	if err != nil {
		return err
	}
	audit, err := auditFile(spec.AuditPolicy)
	if err != nil {
		return err
	}
	c.addFiles(authentication, audit)
	generations := c.spec.Cluster.PKI.Generations
	c.m.Secrets = append(c.m.Secrets,
		Secret{Path: ServiceAccountKeyPath, Mode: 0o600,
			Sources: []string{pki.SecretName(pki.KindServiceAccount, generations.Issuing(pki.KindServiceAccount))}},
		Secret{Path: EncryptionConfigPath, Mode: 0o600, Sources: generations.SecretNames(pki.KindEncryption),
			Render: encryptionConfig(generations.Of(pki.KindEncryption)), Rendering: "secretbox"},
	)

	// Not listed, because the API server reloads them by itself: its serving certificate, the front
	// proxy's certificate and CA, the encryption and the authentication configuration. CAPath is
	// explained in paths.go.
	restartOn := []string{AuditPolicyPath, APIServerEtcdCAPath, ServiceAccountPubPath, ServiceAccountKeyPath, CAPath}
	if spec.configuresAdmission() {
		admission, err := admissionFile(spec.AdmissionPlugins)
		if err != nil {
			return err
		}
		c.addFiles(admission)
		restartOn = append(restartOn, AdmissionPath)
	}
	return c.addProgram(artifact.KubeAPIServer, "Kubernetes API server", typeNotify, []string{EtcdUnit},
		c.apiServerArgs(), spec.Args, restartOn...)
}

// issuerPrefix and the cluster's domain make the cluster's own issuer of service accounts' tokens.
const issuerPrefix = "https://kubernetes.default.svc."

func (c Cluster) issuer() string { return issuerPrefix + c.Domain }

const (
	issuerFlag  = "service-account-issuer"
	keysURLFlag = "service-account-jwks-uri"
)

// Issuers returns the issuers whose tokens of service accounts the API servers of a cluster accept. The first one
// signs.
func (s APIServerSpec) Issuers(c Cluster) []string {
	switch own := s.Args[issuerFlag]; {
	case len(own) > 0:
		return slices.Clone(own)
	case s.Issuer != "":
		return []string{s.Issuer, c.issuer()}
	}
	return []string{c.issuer()}
}

func (s APIServerSpec) checkIssuer() (errs invalid.Fields) {
	if s.Issuer != "" {
		errs.Add("workload_identity", "Unusable issuer", issuer.Check(s.Issuer))
	}
	return errs
}

// CheckIssuers reports a change of issuers that would have API servers refuse tokens which are in use: as with the
// generations of a key, an issuer must be accepted before it signs, and as long as its tokens are in use. former is
// what Issuers returned, and servers how many API servers there are: a single one accepts what it signs.
func (s APIServerSpec) CheckIssuers(c Cluster, former []string, servers int) (errs invalid.Fields) {
	const field = "workload_identity"
	next := s.Issuers(c)
	apply := func(list []string) string {
		return fmt.Sprintf("extra_args = { kube_apiserver = { %s = [%s] } }", issuerFlag, `"`+strings.Join(list, `", "`)+`"`)
	}
	switch {
	case len(former) == 0 || former[0] == next[0]:
	case !slices.Contains(former, next[0]) && servers > 1:
		errs.Say(field, "An issuer that is not accepted yet",
			"%s would sign tokens on the first API server, and the others would refuse them until they have changed as well. First leave workload_identity as it was, write %s, and apply. "+
				"Then make this change and remove %s. To move from one k8s_workload_identity to another, keep both until pods have tokens of the new one.", next[0], apply(append(slices.Clone(former), next[0])), issuerFlag)
	case !slices.Contains(next, former[0]):
		errs.Say(field, "An issuer whose tokens are in use",
			"%s has signed until now, and pods have its tokens: API servers would refuse them. Make this change together with %s, and apply. Pods have tokens of %s an hour later: then remove %s.",
			former[0], apply(append(slices.Clone(next), former[0])), next[0], issuerFlag)
	}
	return errs
}

// foundIssuer returns the issuer that apiServerArgs has written; empty if it has written none.
func foundIssuer(f Found) string {
	args := f.args(APIServerUnit)
	if list := args[issuerFlag]; len(list) == 2 && args.last(keysURLFlag) == issuer.KeysURL(list[0]) {
		return list[0]
	}
	return ""
}

// foundDomain returns the cluster's domain, which its own issuer names; empty if the flags name only others.
func foundDomain(args Args) string {
	for _, name := range args[issuerFlag] {
		if domain, ok := strings.CutPrefix(name, issuerPrefix); ok {
			return domain
		}
	}
	return ""
}

func (c *controller) apiServerArgs() Args {
	args := Args{
		"advertise-address": values(c.node.PrivateIP.String()),
		"bind-address":      values("0.0.0.0"),
		"secure-port":       values("6443"),
		"allow-privileged":  values("true"),

		"tls-cert-file":        values(certPath("apiserver")),
		"tls-private-key-file": values(keyPath("apiserver")),
		"tls-min-version":      values("VersionTLS12"),
		"client-ca-file":       values(CAPath),

		"authentication-config":    values(AuthenticationPath),
		"authorization-mode":       values("Node,RBAC"),
		"enable-admission-plugins": values("NodeRestriction"),

		"etcd-servers":  values(strings.Join(c.spec.EtcdEndpoints, ",")),
		"etcd-cafile":   values(APIServerEtcdCAPath),
		"etcd-certfile": values(certPath("apiserver-etcd-client")),
		"etcd-keyfile":  values(keyPath("apiserver-etcd-client")),

		"encryption-provider-config":                  values(EncryptionConfigPath),
		"encryption-provider-config-automatic-reload": values("true"),

		"kubelet-certificate-authority":   values(CAPath),
		"kubelet-client-certificate":      values(certPath("apiserver-kubelet-client")),
		"kubelet-client-key":              values(keyPath("apiserver-kubelet-client")),
		"kubelet-preferred-address-types": values("InternalIP,Hostname"),

		issuerFlag:                         values(c.spec.Cluster.issuer()),
		"service-account-key-file":         values(ServiceAccountPubPath),
		"service-account-signing-key-file": values(ServiceAccountKeyPath),
		"api-audiences":                    values(c.spec.Cluster.issuer()),
		"service-cluster-ip-range":         values(c.spec.Cluster.ServiceCIDR.String()),

		"requestheader-client-ca-file":       values(FrontProxyCAPath),
		"requestheader-allowed-names":        values(frontProxyUser),
		"requestheader-extra-headers-prefix": values("X-Remote-Extra-"),
		"requestheader-group-headers":        values("X-Remote-Group"),
		"requestheader-username-headers":     values("X-Remote-User"),
		"proxy-client-cert-file":             values(certPath("front-proxy-client")),
		"proxy-client-key-file":              values(keyPath("front-proxy-client")),
		// No kube-proxy runs on controllers, so aggregated APIs are reached by pod address.
		"enable-aggregator-routing": values("true"),

		"audit-policy-file":   values(AuditPolicyPath),
		"audit-log-path":      values(AuditLogPath),
		"audit-log-maxage":    values("30"),
		"audit-log-maxbackup": values("10"),
		"audit-log-maxsize":   values("100"),

		"shutdown-delay-duration":   values(cmp.Or(c.spec.ShutdownDelay, DefaultShutdownDelay).String()),
		"shutdown-send-retry-after": values("true"),
		"profiling":                 values("false"),
	}
	if own := c.spec.APIServer.Issuer; own != "" {
		args[issuerFlag], args[keysURLFlag] = values(own, c.spec.Cluster.issuer()), values(issuer.KeysURL(own))
	}
	if len(c.spec.Nodes) > 1 {
		// Some clients are asked to reconnect, so that load spreads again after an API server was
		// away.
		args["goaway-chance"] = values("0.001")
	}
	if c.spec.APIServer.configuresAdmission() {
		args["admission-control-config-file"] = values(AdmissionPath)
	}
	return args
}

// configuresAdmission reports whether any plugin has a configuration.
func (s APIServerSpec) configuresAdmission() bool {
	for _, config := range s.AdmissionPlugins {
		if config != nil {
			return true
		}
	}
	return false
}

func (s APIServerSpec) check(v version.Version, cluster Cluster) invalid.Fields {
	errs := append(s.checkIssuer(), s.checkAdmission(v)...)
	errs = append(errs, s.checkAuthentication(v, append(s.Issuers(cluster), cluster.issuer()))...)
	if len(s.AuditPolicy) > 0 {
		_, err := parseAuditPolicy(s.AuditPolicy)
		errs.Add("audit_policy", "Unusable audit policy", err)
	}
	errs.Add(ArgField(artifact.KubeAPIServer, runtimeConfig), "Not in this release", CheckServedAPIs(v, s.Args))
	return errs
}

// readAPIServer sets the settings found on a machine.
func (c *controller) readAPIServer(f Found) error {
	c.spec.APIServer = APIServerSpec{}
	s := &c.spec.APIServer
	s.Issuer = foundIssuer(f)
	authentication, err := s.authentication()
	if err != nil {
		return err
	}
	if s.Authentication, err = f.yamlBeyond(AuthenticationPath, authentication); err != nil {
		return err
	}
	standard, err := auditFile(nil)
	if err != nil {
		return err
	}
	if policy := f.Files[AuditPolicyPath]; !bytes.Equal(policy, standard.Content) {
		s.AuditPolicy = policy
	}
	if s.AdmissionPlugins, err = readAdmission(f); err != nil {
		return err
	}
	s.Args = f.argsBeyond(APIServerUnit, c.apiServerArgs())
	s.ExtraSANs, err = c.sansBeyond(f.Files[certPath("apiserver")])
	return err
}

// readServerNetworks sets what the API server's flags say of the cluster.
func (c *Cluster) readServerNetworks(f Found) {
	args := f.args(APIServerUnit)
	if !c.ServiceCIDR.IsValid() {
		c.ServiceCIDR, _ = netip.ParsePrefix(args.last("service-cluster-ip-range"))
	}
	if c.Domain == "" {
		c.Domain = foundDomain(args)
	}
}

// sansBeyond returns the names in an API server's certificate that it would not have without
// ExtraSANs.
func (c *controller) sansBeyond(certificate []byte) ([]string, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate of the API server: %w", err)
	}
	standard, err := APIServerRequest(c.spec)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range cert.DNSNames {
		if !slices.Contains(standard.DNSNames, name) {
			out = append(out, name)
		}
	}
	for _, ip := range cert.IPAddresses {
		if addr, ok := netip.AddrFromSlice(ip); ok && !slices.Contains(standard.IPs, addr.Unmap()) {
			out = append(out, ip.String())
		}
	}
	return out, nil
}
