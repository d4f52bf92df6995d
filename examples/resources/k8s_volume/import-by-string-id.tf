# By its name in the cluster, or by the id of the volume: "vol-0123456789abcdef0".
import {
  to = k8s_volume.member[0]
  id = "demo/member-0"
}
