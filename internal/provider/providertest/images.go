package providertest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// quietWork is what is done on a machine that becomes an image: a question to the machine for each step.
type quietWork struct{}

// Install implements bake.Work.
func (quietWork) Install(ctx context.Context, shell awsmachine.Shell) error {
	_, err := shell.Run(ctx, remote.Command{Name: "install"})
	return err
}

// Seal implements bake.Work.
func (quietWork) Seal(ctx context.Context, shell awsmachine.Shell) error {
	_, err := shell.Run(ctx, remote.Command{Name: "seal"})
	return err
}

// NewImageCloud is NewCloud with the checksums of what images have, which no test can look up.
func NewImageCloud(t *testing.T) Cloud {
	t.Helper()
	unknown := Answer[*artifact.Catalog](t)(artifact.NewCatalog("", nil, nil))
	var sums strings.Builder
	for _, arch := range []string{artifact.AMD64, artifact.ARM64} {
		for _, r := range []component.Releases{
			{Kubernetes: "1.36.4", Etcd: artifact.DefaultEtcd}, {Kubernetes: "1.35.8", Etcd: "3.6.15", Containerd: "2.3.6", Runc: "1.5.1", CNIPlugins: "1.9.0"},
		} {
			all, _ := bake.Content{Roles: infraaws.MachineRoles(), Releases: r, Arch: arch}.Artifacts(unknown) // without checksums
			for _, a := range all {
				fmt.Fprintf(&sums, "%064x  %s\n", len(a.Path), a.Path)
			}
		}
	}
	c := NewCloud(t)
	c.More = Values{"artifact_checksums": sums.String(), "artifact_mirror": "http://mirror.example.com"}
	return c.Process(t)
}

// ImageConfig is an image for every role.
func ImageConfig(network *Instance) Values {
	return Values{"name": "node", "network": network.Get("ref"), "kubernetes_version": "1.36.4"}
}

// Image returns the image as EC2 describes it.
func (c Cloud) Image(t *testing.T, id any) types.Image {
	t.Helper()
	out := Answer[*ec2.DescribeImagesOutput](t)(c.Client.EC2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{id.(string)}}))
	return out.Images[0]
}
