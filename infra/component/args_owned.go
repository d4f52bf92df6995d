package component

import (
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// ownedFlags are the flags of each program that connect it with the rest of the cluster. With
// another value, or without the flag, the cluster breaks. The value is the argument that changes
// the flag, empty if there is none. Flags whose other values are of use, such as
// service-account-issuer, are not listed.
var ownedFlags = map[string]map[string]string{
	artifact.KubeAPIServer: {
		"bind-address": "", "secure-port": "",
		"etcd-servers": "", "etcd-cafile": "", "etcd-certfile": "", "etcd-keyfile": "",
		"client-ca-file": "", "tls-cert-file": "", "tls-private-key-file": "", "requestheader-client-ca-file": "",
		"kubelet-certificate-authority": "", "kubelet-client-certificate": "", "kubelet-client-key": "",
		"service-account-signing-key-file": "",
		"encryption-provider-config":       "", "encryption-provider-config-automatic-reload": "",
		"service-cluster-ip-range":      "service_cidr",
		"audit-policy-file":             "audit_policy",
		"admission-control-config-file": "admission_plugins",
	},
	artifact.KubeControllerManager: withLeaderFlags(map[string]string{
		"cluster-cidr": "pod_cidr", "service-cluster-ip-range": "service_cidr",
		"cluster-signing-cert-file": "", "cluster-signing-key-file": "", "root-ca-file": "", "service-account-private-key-file": "",
	}),
	artifact.KubeScheduler: withLeaderFlags(map[string]string{"config": "scheduler_config"}),
	artifact.Kubelet: {
		"config": "kubelet_config", "kubeconfig": "", "bootstrap-kubeconfig": "", "hostname-override": "", "node-ip": "",
		"node-labels": "labels", "register-with-taints": "taints", "tls-cert-file": "", "tls-private-key-file": "", "client-ca-file": "",
		"container-runtime-endpoint": "",
	},
	artifact.KubeProxy: {"config": "kube_proxy_config", "kubeconfig": ""},
	artifact.Etcd: {
		"name": "", "data-dir": "", "config-file": "", "force-new-cluster": "",
		"listen-client-urls": "", "advertise-client-urls": "", "listen-peer-urls": "", "initial-advertise-peer-urls": "",
		"initial-cluster": "", "initial-cluster-state": "", "initial-cluster-token": "",
		"cert-file": "", "key-file": "", "trusted-ca-file": "", "client-cert-auth": "",
		"peer-cert-file": "", "peer-key-file": "", "peer-trusted-ca-file": "", "peer-client-cert-auth": "",
		"quota-backend-bytes": "quota_mib",
	},
}

// withLeaderFlags adds the flags that the controller manager and the scheduler share.
func withLeaderFlags(own map[string]string) map[string]string {
	for _, flag := range []string{
		"kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig", "client-ca-file", "requestheader-client-ca-file", "tls-cert-file", "tls-private-key-file",
	} {
		own[flag] = ""
	}
	return own
}

// checkOwned reports a flag that only the provider may set.
func checkOwned(errs *invalid.Fields, program, flag string, extra Args) {
	const problem = "Flag of the provider"
	argument, owned := ownedFlags[program][flag]
	switch {
	case owned && argument != "":
		errs.Say(ArgField(program, flag), problem, "the provider sets it: use the argument %s instead.", argument)
	case owned:
		errs.Say(ArgField(program, flag), problem, "the provider sets it, and with another value the cluster would break: take it out.")
	case program == artifact.KubeAPIServer && flag == "authorization-mode" && extra["authorization-config"] == nil && !authorizesCluster(extra[flag]):
		errs.Say(ArgField(program, flag), problem, "the nodes and components of the cluster need the modes Node and RBAC: add your own to them, such as Node,RBAC,Webhook.")
	}
}

// authorizesCluster reports whether a list of authorization modes has those that the cluster needs.
func authorizesCluster(lists []string) bool {
	modes := strings.Split(strings.Join(lists, ","), ",")
	return slices.Contains(modes, "Node") && slices.Contains(modes, "RBAC")
}
