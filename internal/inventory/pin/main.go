// Command pin prints the table of checksums that the provider carries: those of every file of the
// newest supported releases, as upstream publishes them. It fails when one is missing.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/inventory"
)

const header = `# SHA-256 sums of upstream's release files for Linux, which the provider
# wants unless artifact_checksums says otherwise. Written by make checksums.
`

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		cancel()
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	catalog, err := artifact.NewUnpinned(&http.Client{Timeout: 30 * time.Second})
	if err != nil {
		return err
	}
	v := inventory.Versions{Architectures: []string{artifact.AMD64, artifact.ARM64}, Etcd: []string{artifact.DefaultEtcd, artifact.NextEtcd}}
	for _, r := range version.Releases() {
		v.Kubernetes = append(v.Kubernetes, r.Newest)
	}
	found, err := inventory.Collect(ctx, catalog, v, inventory.Images{}, inventory.Digest)
	if err != nil {
		return err
	}
	fmt.Print(header)
	return found.Write(os.Stdout)
}
