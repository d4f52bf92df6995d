variable "region" {
  type        = string
  default     = null
  description = "AWS region of the cluster on EC2. Null means the region of the environment or of the profile."
}

variable "profile" {
  type        = string
  default     = null
  description = "Profile of the credentials for AWS. Null means the credentials of the environment."
}

variable "admin_cidrs" {
  type        = list(string)
  description = "Networks that may reach SSH and the API server of the cluster on EC2, for example [\"198.51.100.7/32\"]."
}

variable "basement_ssh_key_file" {
  type        = string
  default     = null
  description = "SSH private key for the machines in the basement. Null means K8S_SSH_PRIVATE_KEY_FILE, as for those on EC2."
}

variable "basement_network" {
  type        = string
  description = "Network of the machines in the basement, for example 192.168.1.0/24."
}

variable "basement_controllers" {
  type = map(object({
    address  = string
    host_key = string
  }))
  description = "The controller in the basement by its name, as of examples/own-machines."
}

variable "basement_workers" {
  type = map(object({
    index    = number
    address  = string
    host_key = string
  }))
  description = "The workers in the basement by their names, as of examples/own-machines."
}

variable "elsewhere" {
  type        = any
  default     = {}
  description = "Settings of places other than plain AWS, as of examples/modules/cluster. The local EC2 sets it."
}
