package machine_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net/netip"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Makes a network and a machine in it. The machine is reached with a host key that is pinned from
// the first connection on.
func Example() {
	ctx := context.Background()
	var signer ssh.Signer // your own key
	if signer == nil {
		fmt.Println("needs an AWS account, or the local EC2")
		return
	}
	client, err := aws.New(ctx, aws.Config{Region: "eu-central-1"})
	if err != nil {
		log.Fatal(err)
	}
	made, err := network.Ensure(ctx, client, network.Spec{
		Cluster:    "demo",
		VPCCIDR:    netip.MustParsePrefix("10.240.0.0/16"),
		NodeCIDR:   netip.MustParsePrefix("10.240.0.0/24"),
		AdminCIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32")},
	})
	if err != nil {
		log.Fatal(err)
	}
	launch, err := machine.Launch(ctx, client, machine.Spec{
		Cluster: "demo", Name: "controller-0", Role: aws.RoleController,
		SubnetID: made.Subnets[0].ID, SecurityGroupIDs: made.MachineGroups(aws.RoleController),
		PrivateIP: netip.MustParseAddr("10.240.0.10"), PublicIP: true,
		InstanceType: aws.DefaultInstanceType, RootVolumeGiB: machine.DefaultRootVolumeGiB,
		User: machine.DefaultUser, AuthorizedKeys: []string{string(ssh.MarshalAuthorizedKey(signer.PublicKey()))},
	}, rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	pool := remote.NewPool(remote.Config{Signers: []ssh.Signer{signer}})
	first, err := launch.Bring(ctx, func(m machine.Machine, hostKeys []string) machine.Shell {
		return pool.Machine(remote.Host{Name: m.Name, Address: m.Address().String(), User: m.User, HostKeys: hostKeys})
	})
	if err != nil {
		log.Print(err, aws.Advice(err))
		return
	}
	fmt.Println(first.ID, first.HostKey)
	// Output: needs an AWS account, or the local EC2
}
