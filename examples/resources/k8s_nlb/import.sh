# by the name of the cluster
terraform import k8s_nlb.this demo
