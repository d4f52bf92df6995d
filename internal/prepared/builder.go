package prepared

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
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
func (b *builder) build(ctx context.Context) (string, error) {
	spec := network.Spec{Cluster: cluster, VPCCIDR: netip.MustParsePrefix("10.240.0.0/16"), NodeCIDR: netip.MustParsePrefix("10.240.0.0/24")}
	for _, c := range b.vars.AdminCIDRs {
		spec.AdminCIDRs = append(spec.AdminCIDRs, netip.MustParsePrefix(c))
	}
	network, err := network.Ensure(ctx, b.client, spec)
	if err != nil {
		return "", err
	}
	launched, err := machine.Launch(ctx, b.client, machine.Spec{Cluster: cluster, Name: "builder", Role: aws.RoleWorker, PrivateIP: netip.MustParseAddr("10.240.0.10"), PublicIP: true,
		SubnetID: network.Subnets[0].ID, VPCID: network.VPCID, NetworkSubnets: []string{network.Subnets[0].ID}, SecurityGroupIDs: network.MachineGroups(aws.RoleWorker),
		User: machine.DefaultUser, AuthorizedKeys: []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(b.signer.PublicKey())))}}, rand.Reader)
	if err != nil {
		return "", err
	}
	connect := func(m machine.Machine, hostKeys []string) machine.Shell {
		return b.pool.Machine(remote.Host{Name: m.Name, Address: m.Address().String(), User: machine.DefaultUser, HostKeys: hostKeys})
	}
	m, err := launched.Bring(ctx, connect)
	if err != nil {
		return "", err
	}
	shell := b.pool.Machine(remote.Host{Name: m.Name, Address: m.Address().String(), User: machine.DefaultUser, HostKeys: []string{m.HostKey}})
	if err := install(ctx, shell, b.state); err != nil {
		return "", err
	}
	for _, script := range []string{b.pull(), sealScript} {
		if err := b.console(ctx, m.ID, script); err != nil {
			return "", err
		}
	}
	if err := machine.Stop(ctx, b.client, m.ID); err != nil {
		return "", err
	}
	return m.ID, ec2.NewInstanceStoppedWaiter(b.client.EC2, func(o *ec2.InstanceStoppedWaiterOptions) { o.MinDelay = time.Second }).
		Wait(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{m.ID}}, stopTimeout)
}

// stopTimeout is how long the machine may take to stop.
const stopTimeout = 3 * time.Minute

// console runs a script on the machine through the lab, since the script may make SSH impossible.
func (b *builder) console(ctx context.Context, instance, script string) error {
	cmd, err := b.lab.Exec(ctx, instance, "sh", "-s")
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// install installs packages and programs as a role does.
func install(ctx context.Context, shell *remote.Machine, state desired.State) error {
	if _, err := host.AwaitBoot(ctx, shell, func(string) {}); err != nil {
		return err
	}
	seen, err := host.Observe(ctx, shell, state, host.Record{})
	if err != nil {
		return err
	}
	_, err = host.Apply(ctx, shell, state, host.Diff(state, seen, host.Record{}), host.Record{}, host.Options{})
	return err
}

// pull returns the script that pulls the container images.
func (b *builder) pull() string {
	var script strings.Builder
	script.WriteString(pullScript)
	for _, registry := range slices.Sorted(maps.Keys(b.vars.Elsewhere.Registries)) {
		fmt.Fprintf(&script, "mirror '%s' '%s'\n", registry, b.vars.Elsewhere.Registries[registry].Mirrors[0].URL)
	}
	for _, ref := range images {
		fmt.Fprintf(&script, "pull '%s'\n", ref)
	}
	script.WriteString("finish\n")
	return script.String()
}
