variable "cluster" {
  type        = string
  description = "Name of the cluster, part of every name and tag."
}

variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server, for example [\"198.51.100.7/32\"]."
}

variable "nodeport_cidrs" {
  type        = list(string)
  default     = null
  description = "Networks that may reach the NodePorts of workers. Null means none."
}

variable "zone_count" {
  type        = number
  default     = 1
  description = "Number of availability zones, if they are not named."
}

variable "vpc_id" {
  type        = string
  default     = null
  description = "VPC for the cluster, which is not changed and not deleted with it. Null means one of its own."
}

variable "subnet_ids" {
  type        = list(string)
  default     = null
  description = "Subnets in vpc_id for the machines, which belong to this cluster alone. Null means subnets of its own."
}

variable "availability_zones" {
  type        = list(string)
  default     = null
  description = "Availability zones. Null means the first zone_count zones that offer instance_type."
}

variable "private" {
  type        = bool
  default     = false
  description = "Whether only the bastion, if there is one, has a public address."
}

variable "instance_connect" {
  type        = bool
  default     = false
  description = "Whether the network has an EC2 Instance Connect Endpoint. A private cluster then has no bastion."
}

variable "nat_gateways" {
  type        = string
  default     = "one"
  description = "NAT gateways of a private cluster: one, or per_zone."
}

variable "endpoint" {
  type        = string
  default     = "lb"
  description = "What carries the API's endpoint: lb, which is HAProxy on a machine of its own, nlb, which is a Network Load Balancer of AWS, or none: the only controller is the endpoint, and has another address after each pause."

  validation {
    condition     = contains(["lb", "nlb", "none"], var.endpoint)
    error_message = "The endpoint is lb, nlb or none."
  }
}

variable "endpoint_before" {
  type        = string
  default     = null
  description = "What carried the endpoint before, while the cluster moves to the other one: it stays, and its names stay in the certificates. Null afterwards."

  validation {
    condition     = var.endpoint_before == null ? true : contains(["lb", "nlb"], var.endpoint_before) && var.endpoint_before != var.endpoint
    error_message = "The endpoint before is lb or nlb, and not the present one."
  }
}

variable "controllers" {
  type        = number
  default     = 3
  description = "Number of controllers. Use an odd number if they have the members of etcd."
}

variable "etcd_machines" {
  type        = number
  default     = 0
  description = "Number of machines for etcd alone. With 0 its members are on the controllers."
}

variable "etcd_members" {
  type        = list(string)
  default     = null
  description = "Machines with a member of etcd, by name, to move members between controllers and machines of their own, one at a time. Null means all machines for etcd, or all controllers if there are none."
}

variable "controller_nodes" {
  type        = bool
  default     = false
  description = "Whether the controllers are nodes, for pods that tolerate the taint node-role.kubernetes.io/control-plane."
}

variable "controller_taint" {
  type        = bool
  default     = true
  description = "Whether controllers that are nodes have the taint node-role.kubernetes.io/control-plane. Without it every pod may run there, and workers may be 0."
}

variable "workers" {
  type    = number
  default = 2
}

variable "generation" {
  type        = number
  nullable    = false
  default     = 1
  description = "Generation of the cluster. Another number makes all machines anew, with empty disks. Network, endpoint, keys and access stay. After an apply that failed in the middle, take another number again."
}

variable "snapshots" {
  type = object({
    bucket  = string
    profile = string
    trigger = optional(string)
    restore = optional(string)
  })
  default     = null
  description = "Snapshots of etcd in an S3 bucket, and the instance profile with which its members reach the bucket, whose role has examples/iam/etcd-snapshots.json. Another trigger takes one. restore is the name of one of them, to which the cluster goes back once. With node_profile the controllers that are nodes have that profile, and its role needs both policies. Null means none."
}

variable "spot" {
  type        = object({ max_price = optional(string), drain_on_rebalance = optional(bool) })
  default     = null
  description = "Makes the workers Spot instances, which EC2 may end with a notice of two minutes: spot of k8s_machine. {} is enough. Null means none."
}

variable "node_profile" {
  type        = string
  default     = null
  description = "Instance profile of all nodes, whose role has examples/iam/cloud-controller-manager.json or service-load-balancers.json. With it the Node of an instance that is gone is deleted without an apply, and Services of type LoadBalancer get theirs. The end of the network then also deletes what controllers have left, volumes of PersistentVolumes among it. Null means none."
}

variable "issuer_bucket" {
  type        = string
  default     = null
  description = "Bucket in which the cluster shows the public keys of its service accounts, so that pods may assume roles of AWS. Everybody must be able to read k8s/CLUSTER/issuer/* there. A running cluster also needs accepted_issuers for one apply. Null means none."
}

variable "accepted_issuers" {
  type        = list(string)
  default     = null
  description = "While a running cluster changes its issuer: the issuers whose tokens all API servers accept, of which the first one signs. The guide Roles for pods has the steps. Null means that the issuer of issuer_bucket signs, if there is one."
}

variable "access" {
  type = list(object({
    group        = optional(string)
    user         = optional(string)
    cluster_role = optional(string)
    role         = optional(string)
    namespace    = optional(string)
  }))
  default     = null
  description = "Who may do what in the cluster: access of k8s_control_plane. Null means only administrators."
}

variable "authentication" {
  type        = any
  default     = null
  description = "Issuers at which people sign in: authentication of k8s_control_plane. Null means none."
}

variable "admission_plugins" {
  type        = any
  default     = null
  description = "Configuration of admission plugins: admission_plugins of k8s_control_plane. Null means none."
}

variable "manifests" {
  type        = list(string)
  default     = []
  description = "Manifests of objects of your own, which the cluster keeps as an addon."
}

variable "extra_files" {
  type = map(map(object({
    content  = string
    mode     = optional(string)
    restarts = optional(set(string))
  })))
  default     = {}
  description = "Files on the machines of the roles controller, worker and lb, by role and path: extra_files of their resources."

  validation {
    condition     = length(setsubtract(keys(var.extra_files), ["controller", "worker", "lb"])) == 0
    error_message = "The roles are controller, worker and lb."
  }
}

variable "kubernetes_version" {
  type    = string
  default = "1.36.4"
}

variable "etcd_version" {
  type    = string
  default = "3.6.16"
}

variable "paused" {
  type        = bool
  default     = false
  description = "Whether the cluster is paused: all machines are stopped and keep their disks and addresses."
}

variable "expires_at" {
  type        = string
  default     = null
  description = "When all machines power themselves off, such as 2026-12-01T18:00:00Z, for a cluster that nobody may forget. It counts as paused then. Null means never."
}

variable "instance_type" {
  type    = string
  default = "t3.medium"
}

variable "cpu_credits" {
  type        = string
  default     = null
  description = "Credit option of burstable instance types: standard, or unlimited, which costs more. Null means the account's option."
}

variable "ami" {
  type        = string
  default     = null
  description = "AMI of the machines: an id, or an SSM parameter as resolve:ssm:NAME. Null means the newest Debian 13."
}

variable "image_policy" {
  type        = string
  default     = "launch"
  description = "What a newer image does: launch is nothing, and roll replaces one machine with each apply."
}

variable "pod_cidr" {
  type        = string
  default     = "10.200.0.0/16"
  description = "Network of the pods. Each worker gets a /24 of it."
}

variable "cni" {
  type        = string
  default     = "bridge"
  description = "Network of the pods: bridge, or none for one that is installed afterwards."
}

variable "kube_proxy" {
  type        = bool
  default     = true
  description = "Whether kube-proxy runs on the nodes."
}

variable "toleration_seconds" {
  type        = string
  default     = "60"
  description = "How long pods stay on a node that is not ready or cannot be reached, in seconds, before they are replaced on other nodes. Kubernetes' own default is 300."
}

variable "elsewhere" {
  type = object({
    registries        = optional(map(object({ mirrors = list(object({ url = string })) })), {})
    kubelet_config    = optional(any)
    kube_proxy_config = optional(any)
    containerd_config = optional(any)
    aws_endpoint      = optional(string)
  })
  default     = {}
  description = "Settings of places other than plain AWS: a registry mirror, a kubelet on cgroup v1, a kube-proxy in a container, the URL at which programs on machines reach AWS."
}
