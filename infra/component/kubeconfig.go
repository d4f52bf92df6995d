package component

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// kubeconfig renders a kubeconfig that points to certificate files instead of embedding them,
// because a running component reads renewed files by itself.
func kubeconfig(path, cluster, server, caPath, user, certPath, keyPath string) (desired.File, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: caPath}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificate: certPath, ClientKey: keyPath}
	config.Contexts[user] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	config.CurrentContext = user
	b, err := clientcmd.Write(*config)
	if err != nil {
		return desired.File{}, fmt.Errorf("marshal %s: %w", path, err)
	}
	return desired.File{Path: path, Mode: 0o600, Content: b}, nil
}
