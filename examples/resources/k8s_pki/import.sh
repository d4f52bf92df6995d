# by the name of the cluster; keys in SSM under the default prefix
terraform import k8s_pki.this demo
