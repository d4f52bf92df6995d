package provider

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// How each role is found again on its machines.

const programs = "/usr/local/bin/"

func recallEtcd() recall[etcdModel] {
	return recall[etcdModel]{
		needs: []string{"hosts", "pki"},
		files: component.PathsEtcd(), programs: []string{programs + "etcd"},
		targets: func(ctx context.Context, d *providerData, m *etcdModel, diags *diag.Diagnostics) []fleet.Target {
			return targetsFrom(ctx, d, m.Hosts, diags)
		},
		complete: func(ctx context.Context, d *providerData, m *etcdModel, found component.Found, releases map[string]string, diags *diag.Diagnostics) {
			m.Version = orRelease(m.Version, releases, programs+"etcd", diags)
			want := etcdSpec(ctx, d, m, diags)
			if diags.HasError() {
				return
			}
			spec, err := component.ReadEtcd(want.Spec, want.Targets[0].Node, found)
			if err != nil {
				addError(diags, "Unreadable etcd member", err)
			}
			m.ExtraArgs = orArgs(m.ExtraArgs, etcdPrograms, map[string]component.Args{artifact.Etcd: spec.ExtraArgs})
		},
	}
}

func recallControlPlane() recall[controlPlaneModel] {
	server := programs + artifact.KubeAPIServer
	return recall[controlPlaneModel]{
		needs: []string{"hosts", "etcd", "lb", "pki"},
		hint:  " `node_cidrs` and `dns_ip` are read from one of the cluster's workers, which is found by its tags: give them when there is none.",
		files: component.PathsControlPlane(), programs: []string{server},
		targets: func(ctx context.Context, d *providerData, m *controlPlaneModel, diags *diag.Diagnostics) []fleet.Target {
			return targetsFrom(ctx, d, m.Hosts, diags)
		},
		complete: func(ctx context.Context, d *providerData, m *controlPlaneModel, found component.Found, releases map[string]string, diags *diag.Diagnostics) {
			m.Version = orRelease(m.Version, releases, server, diags)
			pods, services, domain := component.ControlPlaneNetworks(found)
			m.PodCIDR, m.ServiceCIDR, m.Domain = orPrefix(m.PodCIDR, pods), orPrefix(m.ServiceCIDR, services), orString(m.Domain, domain)
			recallNetworks(ctx, d, m, diags)
			controlPlaneOutputs(ctx, m, diags)
			want := controlPlaneSpec(ctx, d, m, diags)
			if diags.HasError() {
				return
			}
			spec, err := component.ReadControlPlane(want.Spec, want.Targets[0].Node, found)
			if err != nil {
				addError(diags, "Unreadable controller", err)
				return
			}
			m.ExtraArgs = orArgs(m.ExtraArgs, controlPlanePrograms, map[string]component.Args{
				artifact.KubeAPIServer: spec.APIServerArgs, artifact.KubeControllerManager: spec.ControllerManagerArgs, artifact.KubeScheduler: spec.SchedulerArgs,
			})
			m.SchedulerConfig = orObject(m.SchedulerConfig, spec.SchedulerConfig)
			m.AuditPolicy = orString(m.AuditPolicy, string(spec.AuditPolicy))
			plugins := map[string]any{}
			for name, config := range spec.AdmissionPlugins {
				plugins[name] = config
			}
			m.AdmissionPlugins = orObject(m.AdmissionPlugins, plugins)
			if m.ExtraSANs.IsNull() && len(spec.ExtraSANs) > 0 {
				m.ExtraSANs = tf.StringsValue(spec.ExtraSANs)
			}
		},
	}
}

// recallNetworks finds what workers alone know of the cluster. Without an
// answer node_cidrs stays null, so that the plan shows that it is yet to be
// settled, and dns_ip is the usual one.
func recallNetworks(ctx context.Context, d *providerData, m *controlPlaneModel, diags *diag.Diagnostics) {
	if m.NodeCIDRs.IsNull() || m.DNSIP.IsNull() {
		nodes, dns, err := askWorkers(ctx, d, m, diags)
		if err != nil {
			diags.AddWarning("Not everything was found of this control plane", remote.Redact(err.Error())+
				"\n\nnode_cidrs and dns_ip leave no trace on controllers. What the id does not give is taken from the configuration by the next apply, which restarts nothing.")
		}
		m.NodeCIDRs = orPrefixes(m.NodeCIDRs, nodes)
		if ip := iptypes.NewIPv4AddressValue(dns); m.DNSIP.IsNull() && tf.Prefix(m.ServiceCIDR).Contains(tf.Addr(ip)) {
			m.DNSIP = ip
		}
	}
	if m.DNSIP.IsNull() {
		m.DNSIP = iptypes.NewIPv4AddressUnknown() // outputs computes it
	}
}

// askWorkers returns what the first worker that answers says of the subnets of
// the machines and of the address of cluster DNS. Workers are found by their tags.
func askWorkers(ctx context.Context, d *providerData, m *controlPlaneModel, diags *diag.Diagnostics) (nodes []string, dns string, err error) {
	if hosts, _ := hostsFrom(ctx, m.Hosts, diags); len(hosts) == 0 || hosts[0].InstanceID.ValueString() == "" {
		return nil, "", errors.New("workers that are no EC2 instances cannot be found from here")
	}
	workers, err := d.found(ctx, clusterOf(ctx, m.PKI, diags).ValueString(), infraaws.RoleWorker)
	if err == nil && len(workers) == 0 {
		err = errors.New("the cluster has no running worker")
	}
	for _, w := range workers {
		var files component.Found
		if files, _, err = d.engine(ctx).Inspect(ctx, w, component.PathsWorkerNetworks(), nil); err == nil {
			return component.WorkerNetworks(files)
		}
	}
	return nil, "", err
}

func recallWorkerPool() recall[workerPoolModel] {
	kubelet, containerd, runc := programs+artifact.Kubelet, programs+"containerd", "/usr/local/sbin/runc"
	return recall[workerPoolModel]{
		needs: []string{"hosts", "control_plane", "pki"},
		files: component.PathsWorker(), programs: []string{kubelet, containerd, runc, component.CNIPlugin},
		targets: func(ctx context.Context, d *providerData, m *workerPoolModel, diags *diag.Diagnostics) []fleet.Target {
			return targetsFrom(ctx, d, m.Hosts, diags)
		},
		complete: func(ctx context.Context, d *providerData, m *workerPoolModel, found component.Found, releases map[string]string, diags *diag.Diagnostics) {
			m.Name = orString(m.Name, "workers")
			m.Version = orRelease(m.Version, releases, kubelet, diags)
			m.ContainerdVersion = orString(m.ContainerdVersion, offered(releases[containerd], artifact.DefaultContainerd, d.catalog.Containerd))
			m.CNIVersion = orString(m.CNIVersion, offered(releases[component.CNIPlugin], artifact.DefaultCNIPlugins, d.catalog.CNIPlugins))
			if m.RuncVersion.IsNull() {
				m.RuncVersion = types.StringUnknown() // workerPoolSpec chooses
				if v := offered(releases[runc], "", d.catalog.Runc); v != "" {
					m.RuncVersion = types.StringValue(v)
				}
			}
			want := workerPoolSpec(ctx, d, m, diags)
			if diags.HasError() {
				return
			}
			spec, err := component.ReadWorker(want.Spec, want.Targets[0].Node, found)
			if err != nil {
				addError(diags, "Unreadable worker", err)
				return
			}
			m.CNI, m.SandboxImage = orString(m.CNI, spec.CNI), orString(m.SandboxImage, spec.SandboxImage)
			m.KubeletConfig = orObject(m.KubeletConfig, spec.KubeletConfig)
			m.KubeProxyConfig = orObject(m.KubeProxyConfig, spec.KubeProxyConfig)
			m.ContainerdConfig = orObject(m.ContainerdConfig, spec.ContainerdConfig)
			m.ExtraArgs = orArgs(m.ExtraArgs, workerPrograms, map[string]component.Args{artifact.Kubelet: spec.KubeletArgs, artifact.KubeProxy: spec.KubeProxyArgs})
			m.RegistryMirrors = orMap(m.RegistryMirrors, spec.RegistryMirrors)
			if m.Labels.IsNull() {
				m.Labels = orMap(m.Labels, recallLabels(ctx, d, want, spec.Labels, diags))
			}
			if m.Taints.IsNull() && len(spec.Taints) > 0 {
				m.Taints = taintsValue(ctx, spec.Taints)
			}
		},
	}
}

// recallLabels returns the labels of a pool's nodes: of those that only an
// administrator may set, nothing is on the machines.
func recallLabels(ctx context.Context, d *providerData, pool rollout.Workers, byKubelet map[string]string, diags *diag.Diagnostics) map[string]string {
	api := rollout.API{Endpoint: pool.Endpoint, PKI: pool.Spec.Cluster.PKI}
	labels, err := d.engine(ctx).NodeLabels(ctx, api, pool.Targets[0].Node.Name)
	if err != nil {
		diags.AddWarning("Not everything was found of this worker pool", remote.Redact(err.Error())+
			"\n\nLabels that only an administrator may set leave no trace on workers. What the id does not give is taken from the configuration by the next apply, which restarts nothing.")
		return byKubelet
	}
	return labels
}

// offered returns a release that a program tells if there may be a download of
// it, and else the fallback. What a builder adds to a release ("+ds1") is not
// in the name of a download; such a build is known only from checksums.
func offered(release, fallback string, download func(string) (artifact.Artifact, error)) string {
	release, _, rebuilt := strings.Cut(release, "+")
	_, err := download(release)
	if err == nil || !rebuilt && errors.Is(err, artifact.ErrUnknownChecksum) {
		return release
	}
	return fallback
}

func recallLB() recall[lbModel] {
	return recall[lbModel]{
		needs: []string{"host", "controllers", "pki"},
		hint:  " The name of the cluster, or the id of the Elastic IP, will do as the id when machines and keys are where this provider puts them.",
		files: component.PathsLoadBalancer(),
		targets: func(ctx context.Context, d *providerData, m *lbModel, diags *diag.Diagnostics) []fleet.Target {
			host, _ := hostRef.Read(ctx, m.Host, diags)
			return []fleet.Target{{Host: host.remote(d), Node: host.node()}}
		},
		complete: func(ctx context.Context, d *providerData, m *lbModel, found component.Found, _ map[string]string, diags *diag.Diagnostics) {
			if m.Port.IsNull() {
				port, err := strconv.Atoi(component.ReadLoadBalancer(found))
				if err != nil {
					diags.AddError("Nothing to import", "HAProxy's configuration on the machine is not one of this provider: is this the right host?")
					return
				}
				m.Port = types.Int64Value(int64(port))
			}
			if m.Cluster.IsNull() {
				m.Cluster = clusterOf(ctx, m.PKI, diags)
			}
			recallAddress(ctx, d, m, diags)
		},
		assemble: assembleLB,
	}
}

// recallAddress finds the Elastic IP by its tags.
func recallAddress(ctx context.Context, d *providerData, m *lbModel, diags *diag.Diagnostics) {
	host, _ := hostRef.Read(ctx, m.Host, diags)
	m.AllocationID, m.PublicIP = types.StringValue(""), host.Address
	if host.InstanceID.ValueString() == "" {
		return
	}
	client, err := d.aws(ctx)
	if err == nil {
		var a infraaws.Address
		if a, _, err = client.ObserveAddress(ctx, "", m.address(ctx, d, diags)); err == nil {
			m.AllocationID, m.PublicIP = types.StringValue(a.AllocationID), tf.OptionalAddr(a.PublicIP).StringValue
			m.Tags = orMap(m.Tags, client.OwnTags(a.Tags))
			return
		}
	}
	addError(diags, "Cannot find the Elastic IP", err)
}

// assembleLB finds a load balancer by the name of its cluster or by its
// Elastic IP: machines and address carry tags.
func assembleLB(ctx context.Context, d *providerData, id string) (map[string]any, error) {
	client, err := d.aws(ctx)
	if err != nil {
		return nil, err
	}
	cluster := id
	if strings.HasPrefix(id, "eipalloc-") {
		a, _, err := client.ObserveAddress(ctx, id, infraaws.AddressSpec{})
		if err != nil {
			return nil, err
		}
		cluster = a.Tags[infraaws.TagCluster]
	}
	machines, err := client.FindMachines(ctx, cluster)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"cluster": cluster, "pki": cluster}
	var controllers []any
	for _, found := range machines {
		switch host := importedHost(ctx, found); found.Role {
		case infraaws.RoleLoadBalancer:
			out["host"] = host
		case infraaws.RoleController:
			controllers = append(controllers, host)
		}
	}
	if out["host"] == nil || len(controllers) == 0 {
		return nil, errors.Join(infraaws.ErrNotFound, fmt.Errorf("cluster %s has no running machine of the role lb, or none of the role controller", cluster))
	}
	out["controllers"] = controllers
	return out, nil
}

// hostFound is a machine's host as its resource tells it.
func hostFound(ctx context.Context, found infraaws.Machine) hostModel {
	m := machineModel{Name: types.StringValue(found.Name), User: types.StringValue(found.User)}
	m.PrivateIP, m.PublicIP = iptypes.NewIPv4AddressUnknown(), iptypes.NewIPv4AddressUnknown()
	m.fill(ctx, found)
	return m.host()
}

// importedHost is hostFound as the id of an import has it.
func importedHost(ctx context.Context, found infraaws.Machine) map[string]any {
	out := map[string]any{}
	for name, v := range hostRef.Value(ctx, hostFound(ctx, found)).Attributes() {
		switch v := v.(type) {
		case types.Int64:
			out[name] = v.ValueInt64()
		case basetypes.StringValuable:
			out[name] = nil
			if s, _ := v.ToStringValue(ctx); !s.IsNull() {
				out[name] = s.ValueString()
			}
		}
	}
	return out
}
