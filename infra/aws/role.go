package aws

// MachineRole is a machine's role in the cluster; each has a security group.
type MachineRole string

// The roles.
const (
	RoleLoadBalancer MachineRole = "lb"
	RoleController   MachineRole = "controller"
	RoleEtcd         MachineRole = "etcd"
	RoleWorker       MachineRole = "worker"
)

// MachineRoles returns all roles.
func MachineRoles() []MachineRole {
	return []MachineRole{RoleLoadBalancer, RoleController, RoleEtcd, RoleWorker}
}

// PortAPI is the port of the API servers, on their machines and on load balancers.
const PortAPI = 6443
