package machines

import awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"

// What tests that run the whole provider see of this package.

type MachineModel = machineModel

func (m *machineModel) SeeRootKey(found awsmachine.Machine) { m.seeRootKey(found) }
