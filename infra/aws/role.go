package aws

// Role is a machine's role in the cluster; each has a security group.
type Role string

// The roles.
const (
	RoleLoadBalancer Role = "lb"
	RoleController   Role = "controller"
	RoleEtcd         Role = "etcd"
	RoleWorker       Role = "worker"
)

// Roles returns all roles.
func Roles() []Role { return []Role{RoleLoadBalancer, RoleController, RoleEtcd, RoleWorker} }

// PortAPI is the port of the API servers, on their machines and on load balancers.
const PortAPI = 6443
