package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// builder brings a network to what is wanted. Its snapshot is updated with every change.
type builder struct {
	*aws.Client
	spec Spec
	mu   sync.Mutex
	snapshot
	choice zoneChoice
	// sharing guards shared, which says that the machines have the group ssh: see shareSSH.
	sharing sync.Mutex
	shared  bool
}

// passes returns the functions that find differences, in the order in which they must be repaired:
// each pass needs the results of the one before. The repairs of a pass are independent. The rules of the group ssh come before
// those of roles, which may still have rules for SSH.
func (b *builder) passes() []func() []aws.Repair {
	access := func() []aws.Repair {
		return slices.Concat(b.findNATGateways(), b.findConnect(), b.findRules(GroupSSH))
	}
	return []func() []aws.Repair{b.findVPC, b.findParts, access, b.findSettings, b.findExcessConnect, b.findExcessNATs, b.findExcessSubnets, b.findExcessTables}
}

// Ensure makes the network, or completes and repairs an existing one. With an error it
// returns what exists by then; nothing of it if the error is a ClaimedError.
func Ensure(ctx context.Context, c *aws.Client, spec Spec) (Network, error) {
	s, err := takeSnapshot(ctx, c, spec)
	if err != nil {
		return Network{}, err
	}
	b := &builder{Client: c, spec: spec, snapshot: s}
	if err := b.claim(ctx); err != nil {
		if spec.creates() {
			err = aws.Raced(err)
		}
		return Network{}, fmt.Errorf("network of cluster %s: %w", spec.Cluster, err)
	}
	n, err := b.ensure(ctx)
	if !spec.creates() {
		return n, err
	}
	lost := err
	switch {
	case err == nil:
		lost = confirm(ctx, c, spec)
	case !aws.IsClaimed(err): // what went wrong may be another one's doing
		lost = b.keepsVPC(ctx)
	}
	if aws.IsClaimed(lost) {
		return Network{}, fmt.Errorf("network of cluster %s: %w", spec.Cluster, errors.Join(aws.Raced(lost), concede(ctx, c, spec, n)))
	}
	return n, errors.Join(err, lost)
}

// ensure carries out the repairs, pass by pass.
func (b *builder) ensure(ctx context.Context) (Network, error) {
	spec := b.spec
	for _, find := range b.passes() {
		g, gctx := parallel.WithContext(ctx)
		for _, r := range find() {
			g.Go(func() error {
				if err := r.Fix(gctx); err != nil {
					return fmt.Errorf("network of cluster %s: %s: %w", spec.Cluster, r.Findings[0].Subject, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return b.network(), err
		}
	}
	if err := b.removeTags(ctx); err != nil {
		return b.network(), err
	}
	return b.network(), nil
}

// Observe returns how the network differs from what is wanted. The subjects are its parts:
// "vpc", "security group worker". The error is ErrNotFound if the VPC does not exist.
func Observe(ctx context.Context, c *aws.Client, spec Spec) (Network, []finding.Finding, error) {
	s, err := takeSnapshot(ctx, c, spec)
	if err != nil {
		return Network{}, nil, err
	}
	if s.vpc == nil {
		return Network{}, nil, fmt.Errorf("network of cluster %s: %w", spec.Cluster, aws.ErrNotFound)
	}
	b := &builder{Client: c, spec: spec, snapshot: s}
	if _, err := b.judge(func(string) bool { return true }); err != nil {
		return Network{}, nil, fmt.Errorf("network of cluster %s: %w", spec.Cluster, err)
	}
	var out []finding.Finding
	for _, find := range b.passes() {
		out = append(out, aws.FindingsOf(find())...)
	}
	return b.network(), out, nil
}

// Find returns the network of a cluster by its tags, with the admin and NodePort networks
// and the role of bastions that its groups allow, for an import.
func Find(ctx context.Context, c *aws.Client, cluster string) (Network, Spec, error) {
	spec := Spec{Cluster: cluster, lookForParts: true}
	s, err := takeSnapshot(ctx, c, spec)
	if err != nil {
		return Network{}, spec, err
	}
	if s.vpc == nil {
		// In an adopted VPC only the groups carry the cluster's tags.
		groups, err := listGroups(ctx, c, aws.TagFilter(aws.TagCluster, cluster), aws.TagFilter(aws.TagKind, aws.KindNetwork))
		if err != nil {
			return Network{}, spec, fmt.Errorf("look for the network of cluster %s: %w", cluster, err)
		}
		if len(groups) == 0 {
			return Network{}, spec, fmt.Errorf("network of cluster %s: %w", cluster, aws.ErrNotFound)
		}
		return Network{}, spec, fmt.Errorf("network of cluster %s is in the adopted VPC %s, which cannot be imported: set adopt = true for one apply",
			cluster, sdk.ToString(groups[0].VpcId))
	}
	s.readLayout(&spec)
	n := s.network(spec)
	n.Claim = aws.ClaimIn(aws.TagMap(s.vpc.Tags))
	spec.VPCCIDR, spec.InstanceConnect = n.VPCCIDR, n.Connect.EndpointID != ""
	for _, r := range rulesOf(s.groups[GroupSSH].IpPermissions) {
		if r.from != portSSH || r.protocol != "tcp" {
			continue
		}
		if p, ok := r.prefix(); ok {
			spec.AdminCIDRs = append(spec.AdminCIDRs, p)
		}
		for role, id := range n.SecurityGroups {
			if id == r.source {
				spec.BastionRole = role
			}
		}
	}
	for _, r := range rulesOf(s.groups[aws.RoleWorker].IpPermissions) {
		if p, ok := r.prefix(); ok && r.from == portNodePortMin && r.protocol == "tcp" {
			spec.NodePortCIDRs = append(spec.NodePortCIDRs, p)
		}
	}
	for _, r := range rulesOf(s.groups[aws.RoleController].IpPermissions) {
		spec.ControllerPods = spec.ControllerPods || r.protocol == "udp" && r.source == n.SecurityGroups[aws.RoleWorker]
	}
	spec.Tags = c.OwnTags(aws.TagMap(s.vpc.Tags))
	return n, spec, nil
}

func (b *builder) findVPC() []aws.Repair {
	if b.spec.adopts() {
		return b.findAdopted()
	}
	if b.vpc != nil {
		return nil
	}
	return []aws.Repair{aws.RepairOf(finding.Finding{Subject: subjectVPC, Kind: finding.VPC, Problem: finding.Missing}, func(ctx context.Context) error {
		tags := b.want("")
		out, err := b.EC2.CreateVpc(ctx, &ec2.CreateVpcInput{
			CidrBlock:         sdk.String(b.spec.VPCCIDR.String()),
			TagSpecifications: []types.TagSpecification{aws.TagSpecification(types.ResourceTypeVpc, tags)},
		})
		if err != nil {
			return fmt.Errorf("create VPC %s: %w", b.spec.VPCCIDR, err)
		}
		out.Vpc.Tags = aws.EC2Tags(tags)
		b.change(func(s *snapshot) { s.vpc = out.Vpc })
		return nil
	})}
}

// findAdopted finds adopted subnets that do not exist. Only their owner can create them again.
func (b *builder) findAdopted() []aws.Repair {
	var out []aws.Repair
	for _, id := range b.spec.SubnetIDs {
		if !slices.ContainsFunc(b.subnets, func(s types.Subnet) bool { return sdk.ToString(s.SubnetId) == id }) {
			f := finding.Finding{Subject: "subnet " + id, Kind: finding.AdoptedSubnet, Problem: finding.Missing, Wanted: b.spec.VPCID}
			out = append(out, aws.RepairOf(f, func(context.Context) error {
				return fmt.Errorf("it does not exist in %s: remove it from subnet_ids, or write the id of the subnet that replaces it", b.spec.VPCID)
			}))
		}
	}
	return out
}

// The parts of a network of our own, as findings name them.
const (
	subjectVPC     = "vpc"
	subjectSubnet  = "subnet"
	subjectGateway = "internet gateway"
	subjectTable   = "route table"
)

func (b *builder) subjectSubnet(p place) string { return subjectSubnet + " " + b.spec.name(p) }

func subjectGroup(role aws.MachineRole) string { return "security group " + string(role) }

func (b *builder) findParts() []aws.Repair {
	var out []aws.Repair
	add := func(subject string, kind finding.Kind, problem finding.Problem, fix func(context.Context) error) {
		out = append(out, aws.RepairOf(finding.Finding{Subject: subject, Kind: kind, Problem: problem}, fix))
	}
	for _, role := range b.spec.wantedGroups() {
		if _, ok := b.groups[role]; !ok {
			add(subjectGroup(role), finding.SecurityGroup, finding.Missing, func(ctx context.Context) error { return b.createGroup(ctx, role) })
		}
	}
	if b.spec.adopts() {
		return out
	}
	for _, p := range b.spec.places() {
		if b.subnet(p.cidr) == nil {
			add(b.subjectSubnet(p), finding.Subnet, finding.Missing, func(ctx context.Context) error { return b.createSubnet(ctx, p) })
		}
	}
	switch {
	case b.gateway == nil:
		add(subjectGateway, finding.InternetGateway, finding.Missing, b.createGateway)
	case !attachedTo(*b.gateway, b.vpcID()):
		add(subjectGateway, finding.InternetGateway, finding.Detached, b.attachGateway)
	}
	tables := b.ownTables()
	names, _ := b.spec.tables()
	for _, name := range names {
		if tables[name] == nil {
			add(subjectTable+" "+name, finding.RouteTable, finding.Missing, func(ctx context.Context) error { return b.createTable(ctx, name) })
		}
	}
	return out
}

func (b *builder) change(f func(*snapshot)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.snapshot)
}
