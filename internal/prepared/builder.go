package prepared

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"net/netip"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/image"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/bake"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
)

// builder makes one machine in a lab, and installs on it what the image has.
type builder struct {
	lab    *lab.Lab
	client *aws.Client
	vars   lab.Vars
	state  desired.State
	signer ssh.Signer
	pool   *remote.Pool
}

// cluster is in the names and tags of what the builder makes.
const cluster = "prepared"

func newBuilder(ctx context.Context, l *lab.Lab) (*builder, error) {
	b := &builder{lab: l}
	env := map[string]string{}
	pairs, err := l.Env()
	if err != nil {
		return nil, err
	}
	for _, kv := range pairs {
		env[kv[0]] = kv[1]
	}
	if b.vars, err = l.Vars(); err != nil {
		return nil, err
	}
	if b.state, err = wanted(env["K8S_ARTIFACT_MIRROR"], env["K8S_ARTIFACT_CHECKSUMS"]); err != nil {
		return nil, err
	}
	url := env["AWS_ENDPOINT_URL"]
	if b.client, err = aws.New(ctx, aws.Config{Region: env["AWS_REGION"], AccessKey: env["AWS_ACCESS_KEY_ID"], SecretKey: env["AWS_SECRET_ACCESS_KEY"],
		Endpoints: aws.Endpoints{EC2: url, SSM: url, STS: url}}); err != nil {
		return nil, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	if b.signer, err = ssh.NewSignerFromKey(private); err != nil {
		return nil, err
	}
	b.pool = remote.NewPool(remote.Config{Signers: []ssh.Signer{b.signer}})
	return b, nil
}

// build returns the id of the instance, which is stopped and has all that the image needs and nothing of its
// own.
func (b *builder) build(ctx context.Context, id string) (string, error) {
	spec := network.Spec{Cluster: cluster, VPCCIDR: netip.MustParsePrefix("10.240.0.0/16"), NodeCIDR: netip.MustParsePrefix("10.240.0.0/24")}
	for _, c := range b.vars.AdminCIDRs {
		spec.AdminCIDRs = append(spec.AdminCIDRs, netip.MustParsePrefix(c))
	}
	network, err := network.Ensure(ctx, b.client, spec)
	if err != nil {
		return "", err
	}
	connect := func(m machine.Machine, hostKeys []string) machine.Shell {
		return b.pool.Machine(remote.Host{Name: m.Name, Address: m.Address().String(), User: machine.DefaultUser, HostKeys: hostKeys})
	}
	site := bake.Site{Name: "builder", State: b.state, Images: content.PodImages(), Registries: registry.Registries{}}
	for name, r := range b.vars.Elsewhere.Registries {
		for _, m := range r.Mirrors {
			site.Registries[name] = append(site.Registries[name], registry.Mirror{URL: m.URL})
		}
	}
	return bake.Stopped(ctx, b.client, bake.Spec{
		Image: image.Spec{Cluster: cluster, Name: "builder", Content: id},
		Machine: machine.Spec{
			PrivateIP: netip.MustParseAddr("10.240.0.10"), PublicIP: true, SubnetID: network.Subnets[0].ID, VPCID: network.VPCID,
			NetworkSubnets: []string{network.Subnets[0].ID}, SecurityGroupIDs: network.MachineGroups(aws.RoleWorker),
			User: machine.DefaultUser, AuthorizedKeys: []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(b.signer.PublicKey())))},
		},
	}, rand.Reader, connect, site)
}
