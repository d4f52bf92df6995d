package roles

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

type etcdModel struct {
	roleModel
	Version      types.String         `tfsdk:"version"`
	Hosts        types.List           `tfsdk:"hosts"`
	PKI          types.Object         `tfsdk:"pki"`
	Quota        types.Int64          `tfsdk:"quota_mib"`
	AllowedCIDRs types.Set            `tfsdk:"allowed_cidrs"`
	ExtraArgs    types.Object         `tfsdk:"extra_args"`
	EarlyRenewal timetypes.GoDuration `tfsdk:"early_renewal"`
	Protection   types.Bool           `tfsdk:"deletion_protection"`
	RestoreFrom  types.Object         `tfsdk:"restore_from"`
	Ref          types.Object         `tfsdk:"ref"`
}

var etcdPrograms = programList{artifact.Etcd}

func NewEtcdCluster() resource.Resource {
	return &roleResource[etcdModel, etcdcluster.Cluster]{kind: kind[etcdModel, etcdcluster.Cluster]{
		name:        "etcd_cluster",
		title:       "etcd cluster",
		keys:        true,
		description: "etcd on a set of hosts, with TLS for clients and peers. Membership follows `hosts`. A change goes through the members one at a time, behind health checks, so that at most one member is down.",
		settings:    etcdSettings(),
		attributes: map[string]schema.Attribute{
			"hosts": reference.HostsAttribute("Machines of the members, with the role `etcd` or `controller`: an odd number, at most seven. Adding or removing hosts leaves the others running.",
				listvalidator.SizeBetween(1, 7)),
			"pki":               pkiAttribute(),
			argument.Protection: argument.ProtectionAttribute(),
			"restore_from":      etcdRestoreAttribute(),
			"ref":               reference.OfEtcd.Output("Reference: the value for `etcd` of `k8s_control_plane`."),
		},
		common:   func(m *etcdModel) *roleModel { return &m.roleModel },
		check:    checkEtcd,
		outputs:  etcdOutputs,
		complete: completeEtcd,
		downloads: func(c *artifact.Catalog, _ *etcdModel, s *etcdcluster.Cluster) (err error) {
			s.Spec.Artifacts, err = c.ForArchs(archsOf(s.Targets), func(c *artifact.Catalog) ([]artifact.Artifact, error) { return c.EtcdSet(s.Spec.Version) })
			return err
		},
		lost:     lostEtcdData,
		needed:   etcd.Quorum,
		guard:    guardEtcd,
		importer: etcdImporter(),
	}}
}

// maxQuotaMiB is 16 TiB: more than etcd can use, and in bytes no overflow.
const maxQuotaMiB = 16 << 20

// etcdSettings are the arguments that are fields of the specification.
func etcdSettings() settings[etcdModel, etcdcluster.Cluster] {
	return settings[etcdModel, etcdcluster.Cluster]{
		extraFilesName: extraFilesSetting(func(m *etcdModel) *roleModel { return &m.roleModel }, func(s *etcdcluster.Cluster) *[]desired.ExtraFile { return &s.Spec.Extra }),
		"version": newSetting(schema.StringAttribute{
			Required: true,
			MarkdownDescription: "etcd release, such as `3.6.16`. A change rolls through the members one at a time, each behind a health check. An upgrade goes one minor release at a " +
				"time, and never back to an earlier one.",
			Validators: []validator.String{argument.EtcdVersion()},
		}, text, func(m *etcdModel, s *etcdcluster.Cluster) (*types.String, *string) {
			return &m.Version, &s.Spec.Version
		}),
		"quota_mib": newSetting(schema.Int64Attribute{
			Optional: true,
			MarkdownDescription: fmt.Sprintf("Size in MiB at which a member's database takes no more data and etcd raises the alarm `NOSPACE`. At least %d. The quota must fit on the file system of `%s`. "+
				"A change restarts the members one at a time. Default: %d, the largest quota that etcd recommends.", component.MinEtcdQuota>>20, component.EtcdDataDir, component.DefaultEtcdQuota>>20),
			Validators: []validator.Int64{int64validator.Between(component.MinEtcdQuota>>20, maxQuotaMiB)},
		}, mebibytes, func(m *etcdModel, s *etcdcluster.Cluster) (*types.Int64, *int64) { return &m.Quota, &s.Spec.Quota }),
		"allowed_cidrs": allowedCIDRs("the members of etcd (ports 2379 and 2380)", "all members and controllers",
			func(m *etcdModel, s *etcdcluster.Cluster) (*types.Set, *[]netip.Prefix) {
				return &m.AllowedCIDRs, &s.Spec.AllowedCIDRs
			}),
		"extra_args": extraArgsSetting(etcdPrograms, func(m *etcdModel, s *etcdcluster.Cluster) (*types.Object, map[string]*component.Args) {
			return &m.ExtraArgs, map[string]*component.Args{artifact.Etcd: &s.Spec.Args}
		}),
		"early_renewal": newSetting(earlyRenewalAttribute(), duration, func(m *etcdModel, s *etcdcluster.Cluster) (*timetypes.GoDuration, *time.Duration) {
			return &m.EarlyRenewal, &s.Spec.EarlyRenewal
		}),
	}
}

func checkEtcd(ctx context.Context, plan, prior *etcdModel, s etcdcluster.Cluster, diags *diag.Diagnostics) invalid.Fields {
	errs := s.Spec.Check()
	if !plan.Hosts.IsUnknown() {
		errs = append(errs, component.CheckMembers(len(plan.Hosts.Elements()))...)
	}
	hosts, known := reference.HostsFrom(ctx, plan.Hosts, diags)
	if known {
		errs = append(errs, component.CheckEtcdHosts("hosts", reference.ComponentHosts(hosts))...)
		errs = append(errs, component.CheckAllowed("allowed_cidrs", allPrefixes(plan.AllowedCIDRs), reference.ComponentHosts(hosts), "members reach one another")...)
	}
	errs = append(errs, checkEtcdRestore(ctx, plan, hosts, diags)...)
	if prior == nil {
		warnOfUnknownRelease(types.StringNull(), plan.Version, version.EtcdNotKnown, diags)
		warnOfRestore(etcdRestore(ctx, plan.RestoreFrom, "", diags), reference.ClusterOf(ctx, plan.PKI, diags).ValueString(), diags)
		return errs
	}
	warnOfUnknownRelease(prior.Version, plan.Version, version.EtcdNotKnown, diags)
	checkUpgrade(prior.Version, plan.Version, version.CheckEtcdUpgrade, diags)
	return errs
}

// guardEtcd refuses plans that lose an etcd cluster's data, and warns of those that replace them.
func guardEtcd(ctx context.Context, plan, prior *etcdModel, known knowledge, diags *diag.Diagnostics) {
	known.note(reference.ClusterOf(ctx, plan.PKI, diags).ValueString(), prior == nil && plan.RestoreFrom.IsNull())
	if prior == nil {
		return
	}
	before, _ := reference.HostsFrom(ctx, prior.Hosts, diags)
	hosts, all := reference.HostsFrom(ctx, plan.Hosts, diags)
	if r, planned := restores(ctx, plan, prior, diags); planned {
		guardEtcdRestore(r, reference.ClusterOf(ctx, prior.PKI, diags).ValueString(), known.contents, diags)
		if all {
			checkRestoredMachines(r, before, hosts, known.gone, diags)
		}
		return
	}
	if all {
		checkQuorum(path.Root("hosts"), before, hosts, known.gone, diags)
	}
}

// membersOf returns hosts as members of etcd.
func membersOf(hosts []reference.Host) []maintenance.Member {
	var out []maintenance.Member
	for _, h := range hosts {
		out = append(out, maintenance.Member{
			Name: h.Name.ValueString(), Instance: h.InstanceID.ValueString(), Unmade: h.InstanceID.IsUnknown(), Stopped: h.PowerState.ValueString() == reference.Stopped,
		})
	}
	return out
}

// checkQuorum refuses a plan that replaces so many members' machines that the rest is no quorum. Whether a
// plan that drops members also deletes their machines is not known here, so it adds a warning.
func checkQuorum(at path.Path, before, now []reference.Host, gone func(instance string) bool, diags *diag.Diagnostics) {
	c := maintenance.CheckQuorum(membersOf(before), membersOf(now), gone)
	lost, dropped := strings.Join(slices.Concat(c.Replaced, c.Dropped), ", "), strings.Join(c.Dropped, ", ")
	left := "left"
	if len(c.Stopped) > 0 {
		left = fmt.Sprintf("left running, since %s stopped", isOrAre(c.Stopped))
	}
	count := fmt.Sprintf("Of %d members %d would be %s, and a quorum is %d", c.Members, c.Left, left, c.Quorum)
	switch c.Verdict {
	case maintenance.QuorumKept:
	case maintenance.QuorumIfStarted:
		diags.AddAttributeError(at, "etcd would lose its quorum",
			fmt.Sprintf("The machines of %s would be deleted before any new member can join. %s.\n\nStart %s first, in a separate apply.", lost, count, strings.Join(c.Stopped, ", ")))
	case maintenance.QuorumGone:
		// A destroy begins with this plan too, so it must not fail.
		diags.AddAttributeWarning(at, "etcd has lost its quorum",
			fmt.Sprintf("The machines of %s are gone. %s. An apply makes the machines again, "+
				"but starts no empty members on them.\n\nMembers whose data are on data volumes start again, and so do those whose machines are only stopped, once they run. Without a quorum of them, set restore_from, or another restore_from.trigger, to restore the cluster. "+
				"To start an empty one, remove restore_from and run terraform taint on this resource.", lost, count))
	case maintenance.QuorumLost:
		diags.AddAttributeError(at, "etcd would lose its quorum",
			fmt.Sprintf("The machines of %s would be deleted before any new member can join. %s: "+
				"the cluster's data would be lost.\n\nReplace one machine at a time, each in a separate apply.", lost, count))
	case maintenance.NoMemberStays:
		diags.AddAttributeError(at, "No member with the cluster's data would stay",
			fmt.Sprintf("None of the present members (%s) is in hosts any more. A new member gets its data from a present member. Without one, the new hosts would form another, empty "+
				"cluster.\n\nExchange one member in each apply. To exchange a single member, go through three members: list it with two new hosts, apply, and then list only one of the new "+
				"hosts.", dropped))
	case maintenance.QuorumLeaves:
		diags.AddAttributeWarning(at, "Keep the machines until the members have left",
			fmt.Sprintf("%s leave the cluster one by one while their machines run. If the same apply deletes the machines, "+
				"the machines are gone first and the cluster loses its quorum. Remove them from hosts in one apply, and delete the machines in the next.", dropped))
	}
}

func etcdOutputs(ctx context.Context, m *etcdModel, diags *diag.Diagnostics) {
	m.ID = reference.ClusterOf(ctx, m.PKI, diags)
	endpoints := types.ListUnknown(types.StringType)
	if hosts, known := reference.HostsFrom(ctx, m.Hosts, diags); known {
		var urls []attr.Value
		for _, h := range hosts {
			url := types.StringUnknown()
			if !h.PrivateIP.IsUnknown() {
				url = types.StringValue("https://" + net.JoinHostPort(h.PrivateIP.ValueString(), "2379"))
			}
			urls = append(urls, url)
		}
		endpoints = types.ListValueMust(types.StringType, urls)
	}
	m.Ref = reference.OfEtcd.Value(ctx, reference.Etcd{PKI: m.PKI, Version: m.Version, Endpoints: endpoints, AllowedCIDRs: m.AllowedCIDRs})
}

func completeEtcd(ctx context.Context, d *session.Session, m *etcdModel, s *etcdcluster.Cluster, diags *diag.Diagnostics) {
	ref, _ := reference.PKIFrom(ctx, m.PKI, diags)
	s.Spec.Cluster = component.Cluster{Name: ref.Cluster, PKI: ref, Authorities: d.Authorities}
	s.Targets, s.Restore = reference.TargetsFrom(ctx, d, m.Hosts, diags), etcdRestore(ctx, m.RestoreFrom, ref.Region, diags)
	// Whether all API servers are on these hosts is not known: a host may have no role, and only some of the
	// controllers may have members.
	s.Controllers = func(ctx context.Context) ([]fleet.Target, error) {
		return reference.RunningMachines(ctx, d, ref.Cluster, infraaws.RoleController)
	}
}
