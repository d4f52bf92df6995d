# By the name of the cluster, for the key store "ssm". The prefix of the parameters follows, unless it is the default one:
# "demo/my/prefix/".
import {
  to = k8s_pki.this
  id = "demo"
}
