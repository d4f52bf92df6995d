package roles

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdbackup"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

type etcdBackupModel struct {
	roleModel
	Etcd          types.Object         `tfsdk:"etcd"`
	Hosts         types.List           `tfsdk:"hosts"`
	Bucket        types.String         `tfsdk:"bucket"`
	Prefix        types.String         `tfsdk:"prefix"`
	Region        types.String         `tfsdk:"region"`
	Endpoint      types.String         `tfsdk:"endpoint"`
	KMSKeyID      types.String         `tfsdk:"kms_key_id"`
	Interval      timetypes.GoDuration `tfsdk:"interval"`
	Keep          types.Int64          `tfsdk:"keep"`
	KeepFor       timetypes.GoDuration `tfsdk:"keep_for"`
	MaxAge        timetypes.GoDuration `tfsdk:"max_age"`
	BeforeChanges types.Bool           `tfsdk:"before_changes"`
	Trigger       types.String         `tfsdk:"trigger"`
	Location      types.String         `tfsdk:"location"`
	Newest        types.Object         `tfsdk:"newest"`
}

func NewEtcdBackup() resource.Resource {
	return &roleResource[etcdBackupModel, etcdbackup.Backup]{kind: kind[etcdBackupModel, etcdbackup.Backup]{
		name:        "etcd_backup",
		title:       "etcd backup",
		description: "Snapshots of an etcd cluster in an S3 bucket, taken by a timer on the members and verified. **Destroying this resource leaves all snapshots in the bucket.** A snapshot can be used only with the cluster's keys: see `k8s_pki_copy`.",
		settings:    etcdBackupSettings(),
		attributes: map[string]schema.Attribute{
			"etcd": reference.OfEtcd.Input("etcd cluster: `k8s_etcd_cluster.<name>.ref`."),
			"hosts": reference.HostsAttribute("Machines of the members. The first machine takes the snapshots, and another machine does when the first one does not.",
				listvalidator.SizeBetween(1, 7)),
			"trigger":  schema.StringAttribute{Optional: true, MarkdownDescription: "Any text. A change takes a snapshot."},
			"max_age":  tf.DurationAttribute("Age from which the newest snapshot is drift, such as `6h`. The apply then takes a snapshot. Default: twice `interval`, plus a tenth of `interval` for each member."),
			"location": schema.StringAttribute{Computed: true, MarkdownDescription: "Where the snapshots are: `s3://<bucket>/<prefix>`."},
			"newest":   reference.OfSnapshot.Output("The newest snapshot that counts, as of the last refresh."),
		},
		common:   func(m *etcdBackupModel) *roleModel { return &m.roleModel },
		check:    checkEtcdBackup,
		outputs:  etcdBackupOutputs,
		complete: completeEtcdBackup,
		observed: setNewestSnapshot,
		importer: importer[etcdBackupModel, etcdbackup.Backup]{needs: []string{"etcd", "hosts"}, machine: "etcd member", lookUp: lookUpBackup},
	}}
}

// etcdBackupSettings are the arguments that are fields of the specification.
func etcdBackupSettings() settings[etcdBackupModel, etcdbackup.Backup] {
	return settings[etcdBackupModel, etcdbackup.Backup]{
		extraFilesName: extraFilesSetting(func(m *etcdBackupModel) *roleModel { return &m.roleModel }, func(s *etcdbackup.Backup) *[]desired.ExtraFile { return &s.Spec.Extra }),
		"bucket": newSetting(schema.StringAttribute{
			Required: true, MarkdownDescription: "Bucket for the snapshots. It may be another account's. A change takes a snapshot into the new bucket, and leaves the earlier snapshots in the old bucket.",
			Validators: []validator.String{argument.BucketName()},
		}, text, func(m *etcdBackupModel, s *etcdbackup.Backup) (*types.String, *string) {
			return &m.Bucket, &s.Spec.Bucket
		}),
		"prefix": newSetting(schema.StringAttribute{
			Optional: true, MarkdownDescription: "Prefix of the objects' keys. A change takes a snapshot with the new prefix, and leaves the earlier snapshots. Default: `k8s/<cluster>/etcd/`.",
			Validators: []validator.String{argument.ObjectPrefix()},
		}, text, func(m *etcdBackupModel, s *etcdbackup.Backup) (*types.String, *string) {
			return &m.Prefix, &s.Spec.Prefix
		}),
		"region": newSetting(schema.StringAttribute{
			Optional: true, MarkdownDescription: "AWS region of the bucket. Default: the region of the key store.",
		}, text, func(m *etcdBackupModel, s *etcdbackup.Backup) (*types.String, *string) {
			return &m.Region, &s.Spec.Region
		}),
		"endpoint": newSetting(schema.StringAttribute{
			Optional: true, MarkdownDescription: "URL at which the members reach S3, to which `/<bucket>/<key>` is appended, such as that of a VPC endpoint. Default: `https://s3.<region>.amazonaws.com`, in China `.amazonaws.com.cn`.",
			Validators: []validator.String{tf.HTTPURL()},
		}, text, func(m *etcdBackupModel, s *etcdbackup.Backup) (*types.String, *string) {
			return &m.Endpoint, &s.Spec.Endpoint
		}),
		"kms_key_id": newSetting(schema.StringAttribute{
			Optional: true, MarkdownDescription: "KMS key (id, ARN or alias) with which S3 encrypts the snapshots (SSE-KMS). Without it they cannot be read. It needs curl 8.10 or later on the members, as in Debian 13; with an earlier one make the key the bucket's default. Default: as the bucket says.",
			Validators: []validator.String{argument.KMSKey()},
		}, text, func(m *etcdBackupModel, s *etcdbackup.Backup) (*types.String, *string) {
			return &m.KMSKeyID, &s.Spec.KMSKeyID
		}),
		"interval": newSetting(tf.DurationAttribute(fmt.Sprintf("How long after a snapshot the next one is taken, such as `15m`. At least `%s`. Default: `%s`.",
			tf.ShortDuration(component.MinSnapshotInterval), tf.ShortDuration(component.DefaultSnapshotInterval))),
			duration, func(m *etcdBackupModel, s *etcdbackup.Backup) (*timetypes.GoDuration, *time.Duration) {
				return &m.Interval, &s.Spec.Interval
			}),
		"keep": newSetting(schema.Int64Attribute{
			Optional: true, MarkdownDescription: fmt.Sprintf("How many snapshots are kept. The oldest ones are deleted, except those of another etcd cluster in the same place, such as the one before a restore. Default: %d.", component.DefaultSnapshotsKept),
			Validators: []validator.Int64{int64validator.Between(1, 10000)},
		}, number, func(m *etcdBackupModel, s *etcdbackup.Backup) (*types.Int64, *int) { return &m.Keep, &s.Spec.Keep }),
		"keep_for": newSetting(tf.DurationAttribute(fmt.Sprintf("How long a snapshot is kept, such as `2160h`. The newest one is never deleted. Default: `%s`.",
			tf.ShortDuration(component.DefaultSnapshotsKeptFor))),
			duration, func(m *etcdBackupModel, s *etcdbackup.Backup) (*timetypes.GoDuration, *time.Duration) {
				return &m.KeepFor, &s.Spec.KeepFor
			}),
		"before_changes": newSetting(schema.BoolAttribute{
			Optional: true, MarkdownDescription: "Whether a snapshot is taken before an upgrade of etcd or of the API servers, before a rotation of keys and before a member is removed. Without the snapshot the change is " +
				"refused, except the removal of an unhealthy member. Default: `true`.",
		}, switchedOff, func(m *etcdBackupModel, s *etcdbackup.Backup) (*types.Bool, *bool) {
			return &m.BeforeChanges, &s.Spec.NotBeforeChanges
		}),
	}
}

// switchedOff converts a switch whose default is true to a field that says that it is off.
var switchedOff = plainConversion(func(v types.Bool) bool { return !v.IsNull() && !v.IsUnknown() && !v.ValueBool() }, func(off bool) types.Bool {
	if off {
		return types.BoolValue(false)
	}
	return types.BoolNull()
})

func checkEtcdBackup(ctx context.Context, plan, _ *etcdBackupModel, s etcdbackup.Backup, diags *diag.Diagnostics) invalid.Fields {
	errs := s.Spec.Check()
	ref, _ := reference.OfEtcd.Read(ctx, plan.Etcd, diags)
	if hosts, known := reference.HostsFrom(ctx, plan.Hosts, diags); known {
		var endpoints []string
		if tf.AllKnown(ref.Endpoints) {
			endpoints = tf.Strings(ref.Endpoints.Elements())
		}
		errs = append(errs, component.CheckMembersOf(endpoints, reference.ComponentHosts(hosts))...)
	}
	if keys, known := reference.PKIFrom(ctx, ref.PKI, diags); known && !plan.Region.IsUnknown() {
		s.Spec.Cluster.PKI = keys
		errs = append(errs, s.Spec.CheckRegion()...)
	}
	if age := tf.Duration(plan.MaxAge, 0); age != 0 && age <= s.Spec.EffectiveInterval() {
		errs.Say("max_age", "Age below the interval", "A snapshot is taken every %s, so the newest one is often older than %s: max_age must be longer than the interval.",
			s.Spec.EffectiveInterval(), age)
	}
	return errs
}

func etcdBackupOutputs(ctx context.Context, m *etcdBackupModel, diags *diag.Diagnostics) {
	m.ID = reference.ClusterOf(ctx, reference.PKIIn(m.Etcd), diags)
	m.Location = types.StringUnknown()
	if tf.AllKnown(m.ID, m.Bucket, m.Prefix) {
		s := component.EtcdBackupSpec{Cluster: component.Cluster{Name: m.ID.ValueString()}, Bucket: m.Bucket.ValueString(), Prefix: m.Prefix.ValueString()}
		m.Location = types.StringValue(s.Location())
	}
}

func completeEtcdBackup(ctx context.Context, d *session.Session, m *etcdBackupModel, s *etcdbackup.Backup, diags *diag.Diagnostics) {
	ref, _ := reference.PKIFrom(ctx, reference.PKIIn(m.Etcd), diags)
	s.Spec.Cluster = component.Cluster{Name: ref.Cluster, PKI: ref, Authorities: d.Authorities}
	s.Targets, s.MaxAge = reference.TargetsFrom(ctx, d, m.Hosts, diags), tf.Duration(m.MaxAge, 0)
	s.Spec.Proxy = d.Proxy
}

// setNewestSnapshot sets what a refresh or an apply has seen of snapshots. What no machine knows
// stays as it was.
func setNewestSnapshot(ctx context.Context, d *session.Session, m *etcdBackupModel, report *rollout.Report) {
	if report == nil {
		m.Newest = reference.OfSnapshot.Unknown()
		return
	}
	switch newest, known := etcdbackup.Newest(*report); {
	case known:
		m.Newest = reference.SnapshotValue(ctx, newest, d.Now())
	case m.Newest.IsUnknown():
		m.Newest = reference.SnapshotValue(ctx, nil, d.Now())
	}
}
