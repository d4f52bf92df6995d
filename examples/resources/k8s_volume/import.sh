# by the id of the volume
terraform import 'k8s_volume.etcd[0]' vol-0123456789abcdef0
