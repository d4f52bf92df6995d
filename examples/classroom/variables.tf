variable "students" {
  type = map(object({
    size     = optional(string, "small")
    ssh_keys = optional(list(string), [])
    subnet   = optional(string)
    sign_in  = optional(string)
  }))
  description = "The students by name, which is the name of their cluster as well. size is standard, small or one. ssh_keys are public keys. subnet is a subnet of vpc_id, for this cluster alone. sign_in is who they are for the issuer, by default their name."

  validation {
    condition     = alltrue([for name in keys(var.students) : can(regex("^[a-z]([a-z0-9-]{0,16}[a-z0-9])?$", name))])
    error_message = "A name has at most 18 characters: lower-case letters, digits and hyphens. It begins with a letter and does not end with a hyphen."
  }

  validation {
    condition     = !anytrue([for a in keys(var.students) : anytrue([for b in keys(var.students) : startswith(b, "${a}-")])])
    error_message = "One name is the beginning of another one, such as ada and ada-b: policies and names in AWS would mix them up."
  }

  validation {
    condition     = alltrue([for s in var.students : contains(["standard", "small", "one"], s.size)])
    error_message = "A size is standard, small or one."
  }

  validation {
    condition     = alltrue([for s in var.students : (s.subnet == null) == (var.vpc_id == null)])
    error_message = "With vpc_id every student needs a subnet, and without it none has one."
  }

  validation {
    condition     = length(distinct(compact([for s in var.students : s.subnet]))) == length(compact([for s in var.students : s.subnet]))
    error_message = "Two students have the same subnet."
  }

  validation {
    condition     = length(distinct([for name, s in var.students : coalesce(s.sign_in, name)])) == length(var.students)
    error_message = "Two students have the same sign_in, which is the name where it is not set: at the issuer they would be one person, with access to both clusters."
  }

  validation {
    condition     = terraform.workspace == "default" || contains(keys(var.students), terraform.workspace)
    error_message = "A workspace is default, or has the name of a student."
  }
}

variable "admin_cidrs" {
  type        = list(string)
  description = "Networks of the teacher and of the students, for example [\"198.51.100.7/32\"]: they reach SSH and the API servers."
}

variable "paused" {
  type        = set(string)
  default     = []
  description = "Students whose clusters are paused."

  validation {
    condition     = length(setsubtract(var.paused, keys(var.students))) == 0
    error_message = "paused names somebody who is not among the students."
  }
}

variable "expires_at" {
  type        = string
  default     = null
  description = "When all machines power themselves off, such as 2026-12-01T18:00:00Z, even if nobody applies. The clusters count as paused then. Null means never."
}

variable "rebuild" {
  type        = map(number)
  default     = {}
  description = "Clusters that are made anew: a number for a student, such as { ada = 2 }. Another number makes the machines of this cluster anew, under the same name and endpoint, and with the same access. Leave the entry as it is afterwards. Whoever is in back_to_lesson comes out of it first."

  validation {
    condition     = length(setsubtract(keys(var.rebuild), keys(var.students))) == 0
    error_message = "rebuild names somebody who is not among the students."
  }
}

variable "snapshot_bucket" {
  type        = string
  default     = null
  description = "S3 bucket for snapshots of etcd, for going back to the beginning of a lesson. The cluster ada reaches it with the instance profile k8s-ada. Null means no snapshots."
}

variable "lesson" {
  type        = string
  default     = null
  description = "The present lesson, such as 3. Another one takes a snapshot of each cluster. Write the output snapshots into lessons/3.json after an apply that did not fail. It needs snapshot_bucket."

  validation {
    condition     = var.lesson == null || var.snapshot_bucket != null
    error_message = "lesson needs snapshot_bucket: without it no snapshot is taken."
  }
}

variable "back_to_lesson" {
  type        = map(string)
  default     = {}
  description = "Clusters that go back to the beginning of a lesson, such as { ada = \"3\" }, with the snapshot that lessons/3.json names. Leave the entry as it is afterwards. Take it out with an apply of its own before the same lesson begins once more, and also before rebuild."

  validation {
    condition     = length(setsubtract(keys(var.back_to_lesson), keys(var.students))) == 0
    error_message = "back_to_lesson names somebody who is not among the students."
  }

  validation {
    condition     = length(var.back_to_lesson) == 0 || var.snapshot_bucket != null
    error_message = "back_to_lesson needs snapshot_bucket."
  }

  validation {
    condition     = length(setintersection(keys(var.back_to_lesson), var.locked_out)) == 0
    error_message = "Somebody is in back_to_lesson and in locked_out: the snapshot has the rights that were taken away. Take the name out of back_to_lesson."
  }

  validation {
    condition     = alltrue([for lesson in values(var.back_to_lesson) : fileexists("${path.module}/lessons/${lesson}.json")])
    error_message = "There is no file lessons/N.json for a lesson N of back_to_lesson. It is made from the output snapshots at the beginning of the lesson."
  }

  validation {
    condition = alltrue([
      for name, lesson in var.back_to_lesson :
      !fileexists("${path.module}/lessons/${lesson}.json") || can(regex("^[0-9]{8}T[0-9]{6}Z-", jsondecode(file("${path.module}/lessons/${lesson}.json"))[name]))
    ])
    error_message = "A file lessons/N.json names no snapshot for a student of back_to_lesson, so there is nothing to go back to. Perhaps the apply of this lesson failed, or the student came later."
  }
}

variable "locked_out" {
  type        = set(string)
  default     = []
  description = "Students whose access has ended, while their clusters stay."

  validation {
    condition     = length(setsubtract(var.locked_out, keys(var.students))) == 0
    error_message = "locked_out names somebody who is not among the students."
  }
}

variable "access" {
  type = list(object({
    cluster_role = string
    namespace    = optional(string)
  }))
  default = [
    { cluster_role = "view" },
    { cluster_role = "edit", namespace = "default" },
  ]
  description = "What a student may do in their own cluster: ClusterRoles, in a namespace or in the whole cluster."
}

variable "issuer" {
  type = object({
    url       = string
    client_id = string
    username  = optional(string, "sub")
    ca        = optional(string)
    args      = optional(list(string), [])
  })
  default     = null
  description = "Issuer of OpenID Connect at which students sign in: its URL, the client by which it knows kubectl, the claim that is sign_in of students, its authority in PEM if its certificate is not a public one, and further arguments of k8s-kubeconfig sign-in. Students must not be able to change the claim. An email must be a verified one. Null means certificates of a day."
}

variable "ssh_roles" {
  type        = set(string)
  default     = []
  description = "Roles of the machines that students may enter by SSH, as the user student, who may become root there: controller, worker and lb. Who is root on a controller is an administrator of the cluster, since its keys are there."

  validation {
    condition     = length(setsubtract(var.ssh_roles, ["controller", "worker", "lb"])) == 0
    error_message = "The roles are controller, worker and lb."
  }
}

variable "service_load_balancers" {
  type        = number
  default     = 0
  description = "How many Services of type LoadBalancer each cluster may have. They cost money."
}

variable "instance_type" {
  type        = string
  default     = "t3.small"
  description = "Instance type of the machines."
}

variable "ami" {
  type        = string
  default     = null
  description = "AMI of the machines, such as one that examples/image has made. Null means the newest Debian 13."
}

variable "vpc_id" {
  type        = string
  default     = null
  description = "One VPC for all clusters, in which each student has a subnet. Null means a VPC for each cluster, of which an account may have five at first."
}

variable "hours" {
  type        = number
  default     = 8
  description = "How many hours the machines run, for the output costs."
}

variable "prices" {
  type = object({
    machine_hour  = optional(number, 0)
    address_hour  = optional(number, 0)
    volume_gb_day = optional(number, 0)
  })
  default     = {}
  description = "Prices, for the output costs: of a machine for an hour, of a public IPv4 address for an hour, and of a GB of a volume for a day. AWS publishes them for each region."
}

variable "elsewhere" {
  type        = any
  default     = {}
  description = "Settings of places other than plain AWS, as of examples/modules/cluster. The local EC2 sets it."
}
