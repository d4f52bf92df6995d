# by the name of the cluster, or by the Elastic IP
terraform import k8s_lb.this demo
terraform import k8s_lb.this eipalloc-0123456789abcdef0
