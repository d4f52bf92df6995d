package artifact_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
)

func Example() {
	checksums := strings.NewReader(
		"b3cc29aeb9fc3c022917032b7e6da386833ed3c312a9e68f38165960ea647a5e  dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet\n")
	catalog, err := artifact.NewCatalog("https://mirror.example.com", checksums, http.DefaultClient)
	if err != nil {
		fmt.Println(err)
		return
	}
	kubelet, err := catalog.Kubernetes("1.36.4", artifact.Kubelet)
	fmt.Println(kubelet.URL, kubelet.SHA256[:8], err)

	proxy, err := catalog.Kubernetes("1.36.4", artifact.KubeProxy)
	fmt.Println(proxy.URL, errors.Is(err, artifact.ErrUnknownChecksum))
	// Output:
	// https://mirror.example.com/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet b3cc29ae <nil>
	// https://mirror.example.com/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-proxy true
}
