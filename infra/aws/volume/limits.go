package volume

import (
	"fmt"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// DefaultType is the type of a volume unless another one is wanted.
const DefaultType = "gp3"

// The IOPS and the throughput in MiB/s that a gp3 volume has at least, and unless more are paid for.
const (
	GP3IOPS          = 3000
	GP3ThroughputMiB = 125
)

// The largest size, IOPS and throughput of any volume type.
const (
	MaxGiB           = 65536
	MaxIOPS          = 256000
	MaxThroughputMiB = 2000
)

// limits are a volume type's sizes in GiB, and what may be asked of it.
type limits struct {
	minGiB, maxGiB               int32
	minIOPS, maxIOPS, iopsPerGiB int32 // zero maxIOPS: they follow from the size
	maxThroughput                int32 // MiB/s; zero: it cannot be chosen
}

// limitsOf has the limits of the types that hold data well.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html
var limitsOf = map[string]limits{
	"gp3": {minGiB: 1, maxGiB: MaxGiB, minIOPS: GP3IOPS, maxIOPS: 80000, iopsPerGiB: 500, maxThroughput: MaxThroughputMiB},
	"gp2": {minGiB: 1, maxGiB: 16384},
	"io1": {minGiB: 4, maxGiB: 16384, minIOPS: 100, maxIOPS: 64000, iopsPerGiB: 50},
	"io2": {minGiB: 4, maxGiB: MaxGiB, minIOPS: 100, maxIOPS: MaxIOPS, iopsPerGiB: 1000},
}

// Types returns the types of volumes, the default first.
func Types() []string { return []string{DefaultType, "gp2", "io1", "io2"} }

// iopsPerThroughput is how many IOPS a gp3 volume has at least for each MiB/s of its throughput.
const iopsPerThroughput = 4

// Check reports what EC2 would refuse of a volume. Zero stands for what is not known yet, or
// not given. The names of the fields begin with prefix: "root_volume_" for "root_volume_iops".
func Check(prefix, typ string, sizeGiB, iops, throughputMiB int32) (errs invalid.Fields) {
	l, known := limitsOf[typ]
	if !known {
		if typ != "" {
			errs.Say(prefix+"type", "Unusable volume type", "%q is none of %s.", typ, strings.Join(Types(), ", "))
		}
		return errs
	}
	if sizeGiB != 0 && (sizeGiB < l.minGiB || sizeGiB > l.maxGiB) {
		errs.Say(prefix+"size", "Unusable size", "A %s volume has %d to %d GiB.", typ, l.minGiB, l.maxGiB)
	}
	switch {
	case iops != 0 && l.maxIOPS == 0:
		errs.Say(prefix+"iops", "IOPS cannot be chosen", "The IOPS of a %s volume follow from its size: remove %siops, or choose another type.", typ, prefix)
	case iops != 0 && (iops < l.minIOPS || iops > l.maxIOPS):
		errs.Say(prefix+"iops", "Unusable IOPS", "A %s volume has %d to %d IOPS.", typ, l.minIOPS, l.maxIOPS)
	case iops > l.minIOPS && sizeGiB != 0 && iops > l.iopsPerGiB*sizeGiB:
		errs.Say(prefix+"iops", "Too many IOPS for the size", "A %s volume has at most %d IOPS for each GiB: with %d GiB, %d.", typ, l.iopsPerGiB, sizeGiB, l.iopsPerGiB*sizeGiB)
	}
	switch {
	case throughputMiB != 0 && l.maxThroughput == 0:
		errs.Say(prefix+"throughput", "Throughput cannot be chosen", "Only a gp3 volume has a throughput of its own: remove %sthroughput.", prefix)
	case throughputMiB != 0 && (throughputMiB < GP3ThroughputMiB || throughputMiB > l.maxThroughput):
		errs.Say(prefix+"throughput", "Unusable throughput", "A %s volume has %d to %d MiB/s.", typ, GP3ThroughputMiB, l.maxThroughput)
	case throughputMiB > GP3ThroughputMiB && iops != 0 && throughputMiB*iopsPerThroughput > iops:
		errs.Say(prefix+"throughput", "Too much throughput for the IOPS", "A %s volume needs %d IOPS for each MiB/s: for %d MiB/s, set %siops to %d.", typ, iopsPerThroughput, throughputMiB, prefix, throughputMiB*iopsPerThroughput)
	}
	return errs
}

// NeedsIOPS reports whether a volume of the type needs its IOPS given.
func NeedsIOPS(typ string) bool { return typ == "io1" || typ == "io2" }

// WantedIOPS returns the wanted IOPS, zero if they follow from the size.
func (p Performance) WantedIOPS() int32 {
	if limitsOf[p.Type].maxIOPS == 0 {
		return 0
	}
	return p.IOPS
}

// aboutKMSKey adds the name of the argument to an error that only the KMS key can have caused.
func aboutKMSKey(err error) error {
	if !KMSKeyUnusable(err) {
		return err
	}
	return &invalid.Field{Field: "kms_key_id", Problem: "Unusable KMS key", Err: fmt.Errorf("EC2 cannot use the KMS key: %w", err)}
}

// KMSKeyUnusable reports whether EC2 refuses a call because of a KMS key.
func KMSKeyUnusable(err error) bool {
	code := strings.ToLower(aws.ErrorCode(err))
	return strings.Contains(code, "kms")
}
