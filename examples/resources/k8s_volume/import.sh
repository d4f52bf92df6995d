# by the id of the volume
terraform import 'k8s_volume.member[0]' vol-0123456789abcdef0
