package ec2

import (
	"cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// volumeLimits are a volume type's sizes, and what may be asked of it.
type volumeLimits struct {
	minGiB, maxGiB               int
	minIOPS, maxIOPS, iopsPerGiB int  // zero maxIOPS: they cannot be chosen
	defaultIOPS                  int  // zero: they must be chosen
	minThroughput, maxThroughput int  // MiB/s; zero: it cannot be chosen
	bySize                       bool // IOPS follow from the size
}

// performance has the limits of each volume type.
// https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html
var performance = map[string]volumeLimits{
	"gp3":      {minGiB: 1, maxGiB: 65536, minIOPS: 3000, maxIOPS: 80000, iopsPerGiB: 500, defaultIOPS: 3000, minThroughput: 125, maxThroughput: 2000},
	"gp2":      {minGiB: 1, maxGiB: 16384, bySize: true},
	"io1":      {minGiB: 4, maxGiB: 16384, minIOPS: 100, maxIOPS: 64000, iopsPerGiB: 50},
	"io2":      {minGiB: 4, maxGiB: 65536, minIOPS: 100, maxIOPS: 256000, iopsPerGiB: 1000},
	"st1":      {minGiB: 125, maxGiB: 16384, bySize: true},
	"sc1":      {minGiB: 125, maxGiB: 16384, bySize: true},
	"standard": {minGiB: 1, maxGiB: 1024, bySize: true},
}

// throughputPerIOPS is the highest throughput of a gp3 volume in MiB/s for each of its IOPS: a
// quarter.
const throughputPerIOPS = 4

// gp2PerGiB and its bounds give the IOPS of a gp2 volume.
const (
	gp2PerGiB  = 3
	gp2MinIOPS = 100
	gp2MaxIOPS = 16000
)

// checkSize refuses unknown types, and sizes that a type does not have.
func (v *volume) checkSize() error {
	l, ok := performance[v.Type]
	switch {
	case !ok:
		return invalidValue("Value (%s) for parameter volumeType is invalid.", v.Type)
	case v.SizeGiB < l.minGiB:
		return invalidValue("Volume of %dGiB is too small for volume type %s; minimum is %dGiB.", v.SizeGiB, v.Type, l.minGiB)
	case v.SizeGiB > l.maxGiB:
		return invalidValue("Volume of %dGiB is too large for volume type %s; maximum is %dGiB.", v.SizeGiB, v.Type, l.maxGiB)
	}
	return nil
}

// setPerformance gives a volume of a known type and size its IOPS and throughput; zero stands for
// those not asked for.
func (v *volume) setPerformance(iops, throughput int) error {
	l := performance[v.Type]
	switch {
	case iops != 0 && l.maxIOPS == 0:
		return wire.Refuse("InvalidParameterCombination", "The parameter iops is not supported for %s volumes.", v.Type)
	case throughput != 0 && l.maxThroughput == 0:
		return wire.Refuse("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", v.Type)
	case iops == 0 && l.maxIOPS != 0 && l.defaultIOPS == 0:
		return missing("iops")
	}
	iops = cmp.Or(iops, l.defaultIOPS)
	throughput = cmp.Or(throughput, l.minThroughput)
	switch {
	case l.maxIOPS != 0 && (iops < l.minIOPS || iops > l.maxIOPS):
		return invalidValue("Volume iops of %d is out of range for volume type %s; it is %d to %d.", iops, v.Type, l.minIOPS, l.maxIOPS)
	case iops > l.minIOPS && iops > l.iopsPerGiB*v.SizeGiB:
		return invalidValue("Iops to volume size ratio of %d:%d is too high; maximum is %d IOPS per GiB.", iops, v.SizeGiB, l.iopsPerGiB)
	case throughput > l.maxThroughput:
		return invalidValue("Volume throughput of %d is too high for volume type %s; maximum is %d.", throughput, v.Type, l.maxThroughput)
	case throughput < l.minThroughput:
		return invalidValue("Volume throughput of %d is too low for volume type %s; minimum is %d.", throughput, v.Type, l.minThroughput)
	case throughput > l.minThroughput && throughput*throughputPerIOPS > iops:
		return invalidValue("Throughput (MiBps) to iops ratio of %d:%d is too high; maximum is 0.250000 MiBps per iops.", throughput, iops)
	}
	if v.Type == "gp2" {
		iops = min(max(gp2PerGiB*v.SizeGiB, gp2MinIOPS), gp2MaxIOPS)
	}
	v.IOPS, v.Throughput = iops, throughput
	return nil
}
