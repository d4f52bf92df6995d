# by the name of the cluster
terraform import k8s_network.this demo
