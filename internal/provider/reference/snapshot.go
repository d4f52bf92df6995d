package reference

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// snapshotModel is one snapshot.
type snapshotModel struct {
	Name           types.String         `tfsdk:"name"`
	Time           types.String         `tfsdk:"time"`
	Age            timetypes.GoDuration `tfsdk:"age"`
	Revision       types.Int64          `tfsdk:"revision"`
	Hash           types.String         `tfsdk:"hash"`
	Keys           types.Int64          `tfsdk:"keys"`
	Size           types.Int64          `tfsdk:"size"`
	SHA256         types.String         `tfsdk:"sha256"`
	EtcdVersion    types.String         `tfsdk:"etcd_version"`
	Member         types.String         `tfsdk:"member"`
	EncryptionKeys types.List           `tfsdk:"encryption_keys"`
}

var OfSnapshot = tf.NewReference[snapshotModel](map[string]schema.Attribute{
	"name":            Required("Name of the snapshot, which `restore_from` of `k8s_etcd_cluster` takes."),
	"time":            Required("When it was taken, in RFC 3339."),
	"age":             schema.StringAttribute{Required: true, CustomType: timetypes.GoDurationType{}, MarkdownDescription: "How old it was at the last refresh, in whole minutes. An output with it shows up in most plans."},
	"revision":        schema.Int64Attribute{Required: true, MarkdownDescription: "Revision of etcd."},
	"hash":            Required("etcd's hash of its content, as `etcdutl snapshot status` prints it."),
	"keys":            schema.Int64Attribute{Required: true, MarkdownDescription: "How many keys it has, in all revisions that are kept."},
	"size":            schema.Int64Attribute{Required: true, MarkdownDescription: "Size in bytes."},
	"sha256":          Required("SHA-256 of the object, in hex."),
	"etcd_version":    Required("etcd release of the member that took it."),
	"member":          Required("Machine that took it."),
	"encryption_keys": schema.ListAttribute{Required: true, ElementType: types.StringType, MarkdownDescription: "Keys in the key store without which its secrets cannot be read."},
})

// SnapshotValue returns the attributes of a snapshot at a moment, null if there is none.
func SnapshotValue(ctx context.Context, n *snapshot.Description, now time.Time) types.Object {
	if n == nil {
		return types.ObjectNull(OfSnapshot.Type().AttrTypes)
	}
	names := []attr.Value{}
	for _, k := range n.EncryptionKeys {
		names = append(names, types.StringValue(k.Name))
	}
	return OfSnapshot.Value(ctx, snapshotModel{
		Name: types.StringValue(n.Name), Time: types.StringValue(n.Time.UTC().Format(time.RFC3339)),
		Age:      timetypes.NewGoDurationValue(now.Sub(n.Time).Truncate(time.Minute)),
		Revision: types.Int64Value(n.Revision), Hash: types.StringValue(n.Hash), Keys: types.Int64Value(n.Keys), Size: types.Int64Value(n.Size),
		SHA256: types.StringValue(n.SHA256), EtcdVersion: types.StringValue(n.EtcdVersion), Member: types.StringValue(n.Member),
		EncryptionKeys: types.ListValueMust(types.StringType, names),
	})
}
