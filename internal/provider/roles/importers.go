package roles

import (
	"cmp"
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/loadbalancer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/workerpool"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// How each role is imported. Package rollout reads what is on the role's machines; this file adds
// what must be read elsewhere.

func etcdImporter() importer[etcdModel, etcdcluster.Cluster] {
	return importer[etcdModel, etcdcluster.Cluster]{
		needs: []string{"hosts", "pki"}, machine: "etcd member", lookUp: lookUpEtcd,
	}
}

func controlPlaneImporter() importer[controlPlaneModel, controlplane.ControlPlane] {
	return importer[controlPlaneModel, controlplane.ControlPlane]{
		needs: []string{"hosts", "etcd"}, machine: "controller",
		complete: func(ctx context.Context, d *session.Session, m *controlPlaneModel, found *controlplane.ControlPlane, diags *diag.Diagnostics) {
			readFromWorkers(ctx, d, m, found, diags)
			readAccess(ctx, d, m, found, diags)
		},
		lookUp: lookUpControlPlane,
	}
}

// readFromWorkers reads what only workers know about the cluster. They are found by their tags.
// Without an answer node_cidrs stays null, so that the plan shows it as a change, and dns_ip is the
// default.
func readFromWorkers(ctx context.Context, d *session.Session, m *controlPlaneModel, found *controlplane.ControlPlane, diags *diag.Diagnostics) {
	if !m.NodeCIDRs.IsNull() && !m.DNSIP.IsNull() {
		return
	}
	hosts, _ := reference.HostsFrom(ctx, m.Hosts, diags)
	cluster, err := readClusterFromWorker(ctx, d, hosts, found.Spec.Cluster)
	if err != nil {
		diags.AddWarning("The import could not read all arguments of this control plane", foreign.Text(err.Error())+
			"\n\nnode_cidrs and dns_ip cannot be read from controllers. If the import id does not contain them, the next apply takes them from the configuration; it restarts nothing.")
	}
	found.Spec.Cluster = cluster
}

// readClusterFromWorker completes a cluster with what one of its workers knows about it.
func readClusterFromWorker(ctx context.Context, d *session.Session, controllers []reference.Host, c component.Cluster) (component.Cluster, error) {
	if controllers[0].InstanceID.ValueString() == "" {
		return c, errors.New("workers that are not EC2 instances cannot be found")
	}
	workers, err := reference.RunningMachines(ctx, d, c.Name, infraaws.RoleWorker)
	switch {
	case err != nil:
		return c, err
	case len(workers) == 0:
		return c, errors.New("the cluster has no running worker")
	}
	return d.Engine(ctx).InspectCluster(ctx, c, workers)
}

func workerPoolImporter() importer[workerPoolModel, workerpool.Pool] {
	return importer[workerPoolModel, workerpool.Pool]{
		needs: []string{"hosts", "control_plane"}, machine: "worker",
		complete: readFromNodes, lookUp: lookUpPool,
	}
}

// readFromNodes reads the labels of a pool's nodes from the API, since labels that only an
// administrator may set are not on the machines. It also chooses releases that the catalog offers
// for those found on the machines.
func readFromNodes(ctx context.Context, d *session.Session, m *workerPoolModel, found *workerpool.Pool, diags *diag.Diagnostics) {
	if m.Name.IsNull() {
		m.Name = types.StringValue("workers")
	}
	containerd, cni := &found.Spec.Containerd, &found.Spec.CNI
	containerd.Version = cmp.Or(d.Catalog.Offered(artifact.Containerd, containerd.Version), artifact.DefaultContainerd)
	containerd.RuncVersion = d.Catalog.Offered(artifact.Runc, containerd.RuncVersion)
	cni.Version = cmp.Or(d.Catalog.Offered(artifact.CNIPlugins, cni.Version), artifact.DefaultCNIPlugins)
	if !m.Labels.IsNull() {
		return
	}
	labels, err := found.NodeLabels(ctx, d.Fleet(ctx), found.Targets[0].Node)
	if err != nil {
		diags.AddWarning("The import could not read all arguments of this worker pool", foreign.Text(err.Error())+
			"\n\nLabels that only an administrator may set cannot be read from workers. If the import id does not contain labels, the next apply takes them from the configuration; it restarts nothing.")
		return
	}
	found.Spec.Kubelet.Labels = labels
}

func lbImporter() importer[lbModel, loadbalancer.LoadBalancer] {
	return importer[lbModel, loadbalancer.LoadBalancer]{
		needs: []string{"host", "controllers", "pki"}, machine: "load balancer",
		complete: func(ctx context.Context, d *session.Session, m *lbModel, _ *loadbalancer.LoadBalancer, diags *diag.Diagnostics) {
			importAddress(ctx, d, m, diags)
		},
		lookUp:    lookUpLB,
		ownership: addressOwnership,
	}
}

// importAddress finds the Elastic IP by its tags. Without one the endpoint is private.
func importAddress(ctx context.Context, d *session.Session, m *lbModel, diags *diag.Diagnostics) {
	host, _ := reference.OfHost.Read(ctx, m.Host, diags)
	m.Public, m.AllocationID, m.PublicIP = types.BoolValue(true), types.StringValue(""), host.Address
	if host.InstanceID.ValueString() == "" {
		return
	}
	client, err := d.AWS(ctx)
	if err == nil {
		var a awsaddress.Address
		if a, err = awsaddress.Find(ctx, client, "", m.address(ctx, d, diags)); err == nil {
			m.AllocationID, m.PublicIP = types.StringValue(a.AllocationID), tf.OptionalAddr(a.PublicIP).StringValue
			if m.Tags.IsNull() {
				m.Tags = textByName.fromSpec(ctx, client.OwnTags(a.Tags))
			}
			return
		}
	}
	if errors.Is(err, infraaws.ErrNotFound) {
		m.Public, m.PublicIP = types.BoolValue(false), types.StringNull()
		return
	}
	session.AddError(diags, "Cannot find the Elastic IP", err)
}

// addressOwnership returns whose the Elastic IP is.
func addressOwnership(ctx context.Context, d *session.Session, m *lbModel) (session.Ownership, error) {
	if m.AllocationID.ValueString() == "" {
		return session.Ownership{}, nil
	}
	client, err := d.AWS(ctx)
	if err != nil {
		return session.Ownership{}, err
	}
	a, err := awsaddress.Find(ctx, client, m.AllocationID.ValueString(), awsaddress.Spec{})
	if err != nil {
		return session.Ownership{}, err
	}
	return d.Imported(ctx, client, a.Claim)
}
