package component

import (
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// ShutdownDelay is how long a stopping API server still serves after /readyz
// has turned bad, so that the load balancer notices first: a multiple of its
// check interval.
const ShutdownDelay = "3s"

// APIServerRequest returns what the API servers' serving certificates hold.
// All controllers hold the same names, so that a client may reach any of them by any.
func APIServerRequest(spec ControlPlaneSpec) (pki.Request, error) {
	names := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc." + spec.Cluster.Domain, "localhost",
		firstServiceIP(spec.Cluster.ServiceCIDR).String(), loopback.String(),
		spec.PublicEndpoint, spec.PrivateEndpoint,
	}
	for _, n := range spec.Nodes {
		names = append(names, n.Name, n.PrivateIP.String())
		if n.PublicIP.IsValid() {
			names = append(names, n.PublicIP.String())
		}
	}
	dns, ips, err := sans(append(names, spec.ExtraSANs...)...)
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

	authentication, err := authenticationFile()
	if err != nil {
		return err
	}
	audit, err := auditFile(c.spec.AuditPolicy)
	if err != nil {
		return err
	}
	c.addFiles(authentication, audit)
	generations := c.spec.Cluster.PKI.Generations
	c.m.Secrets = append(c.m.Secrets,
		Secret{Path: ServiceAccountKeyPath, Mode: 0o600,
			Sources: []string{pki.SecretName(pki.KindServiceAccount, generations.Issuing(pki.KindServiceAccount))}},
		Secret{Path: EncryptionConfigPath, Mode: 0o600, Sources: generations.SecretNames(pki.KindEncryption),
			Render: EncryptionConfig(generations.Of(pki.KindEncryption)), Rendering: "secretbox"},
	)

	if err := c.checkAdmission(); err != nil {
		return err
	}
	args := c.apiServerArgs()
	// Not listed, because the API server reloads them by itself: its serving
	// certificate, the front proxy's certificate and CA, the encryption and the
	// authentication configuration. For CAPath see there.
	restartOn := []string{AuditPolicyPath, APIServerEtcdCAPath, ServiceAccountPubPath, ServiceAccountKeyPath, CAPath}
	if len(c.spec.AdmissionPlugins) > 0 {
		admission, err := admissionFile(c.spec.AdmissionPlugins)
		if err != nil {
			return err
		}
		c.addFiles(admission)
		args["admission-control-config-file"] = values(AdmissionPath)
		restartOn = append(restartOn, AdmissionPath)
	}
	return c.addProgram(artifact.KubeAPIServer, "Kubernetes API server", typeNotify, []string{EtcdUnit},
		args, c.spec.APIServerArgs, restartOn...)
}

func (c *controller) apiServerArgs() Args {
	issuer := "https://kubernetes.default.svc." + c.spec.Cluster.Domain
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

		"service-account-issuer":           values(issuer),
		"service-account-key-file":         values(ServiceAccountPubPath),
		"service-account-signing-key-file": values(ServiceAccountKeyPath),
		"api-audiences":                    values(issuer),
		"service-cluster-ip-range":         values(c.spec.Cluster.ServiceCIDR.String()),

		"requestheader-client-ca-file":       values(FrontProxyCAPath),
		"requestheader-allowed-names":        values(frontProxyUser),
		"requestheader-extra-headers-prefix": values("X-Remote-Extra-"),
		"requestheader-group-headers":        values("X-Remote-Group"),
		"requestheader-username-headers":     values("X-Remote-User"),
		"proxy-client-cert-file":             values(certPath("front-proxy-client")),
		"proxy-client-key-file":              values(keyPath("front-proxy-client")),
		// No kube-proxy runs on controllers: aggregated APIs are reached by pod address.
		"enable-aggregator-routing": values("true"),

		"audit-policy-file":   values(AuditPolicyPath),
		"audit-log-path":      values(AuditLogPath),
		"audit-log-maxage":    values("30"),
		"audit-log-maxbackup": values("10"),
		"audit-log-maxsize":   values("100"),

		"shutdown-delay-duration":   values(ShutdownDelay),
		"shutdown-send-retry-after": values("true"),
		"profiling":                 values("false"),
	}
	if len(c.spec.Nodes) > 1 {
		// Now and then a client is asked to connect anew, so that load spreads
		// again after an API server was away.
		args["goaway-chance"] = values("0.001")
	}
	return args
}
