# by the id of the instance
terraform import k8s_machine.worker i-0123456789abcdef0
