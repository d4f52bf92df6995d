package machines

import (
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// performanceModel is what a volume can do, and the size on which that depends.
type performanceModel struct {
	Type                   types.String
	Size, IOPS, Throughput types.Int64
}

func (p performanceModel) wanted() volume.Performance {
	return volume.Performance{Type: p.Type.ValueString(), IOPS: int32(p.IOPS.ValueInt64()), ThroughputMiB: int32(p.Throughput.ValueInt64())}
}

// plan plans what EC2 gives a volume for which nothing is configured, and returns what EC2 would refuse,
// by the names of the arguments, which begin with prefix. state has no values if there is no volume yet.
func (p *performanceModel) plan(prefix string, config, state performanceModel) invalid.Fields {
	plan := func(config types.Int64, value *types.Int64, was types.Int64, usual int64) {
		switch {
		case !config.IsNull():
			*value = config
		case p.Type.IsUnknown():
			*value = types.Int64Unknown()
		case p.Type.ValueString() == volume.DefaultType:
			*value = types.Int64Value(usual)
		case p.Type.Equal(state.Type) && p.Size.Equal(state.Size):
			*value = was
		default:
			*value = types.Int64Unknown()
		}
	}
	plan(config.IOPS, &p.IOPS, state.IOPS, volume.GP3IOPS)
	plan(config.Throughput, &p.Throughput, state.Throughput, volume.GP3ThroughputMiB)
	if config.Throughput.IsNull() && !p.Type.IsUnknown() && p.Type.ValueString() != volume.DefaultType {
		p.Throughput = types.Int64Null()
	}
	errs := volume.Check(prefix, p.Type.ValueString(), int32(p.Size.ValueInt64()), int32(config.IOPS.ValueInt64()), int32(config.Throughput.ValueInt64()))
	if config.IOPS.IsNull() && volume.NeedsIOPS(p.Type.ValueString()) {
		errs.Say(prefix+"iops", "IOPS are missing", "A volume of type %s needs %siops.", p.Type.ValueString(), prefix)
	}
	return errs
}

// fill sets what was not known before from the volume that was found.
func (p *performanceModel) fill(found volume.Performance) {
	if p.IOPS.IsUnknown() || p.IOPS.IsNull() {
		p.IOPS = optionalInt(found.IOPS)
	}
	if p.Throughput.IsUnknown() || p.Throughput.IsNull() && found.Type == volume.DefaultType {
		p.Throughput = optionalInt(found.ThroughputMiB)
	}
}
