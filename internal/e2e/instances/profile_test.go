package instances_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nodePolicy lets a machine look, and nothing else.
const nodePolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"ec2:DescribeInstances","Resource":"*"}]}`

// useCredentials asks the metadata service for credentials and signs three calls with them.
const useCredentials = `set -eu
metadata=http://169.254.169.254/latest
token=$(curl -sf -m 5 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' $metadata/api/token)
get() { curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/$1"; }
role=$(get iam/security-credentials/)
credentials=$(get "iam/security-credentials/$role")
field() { printf '%s\n' "$credentials" | sed -n "s/^ *\"$1\": \"\([^\"]*\)\",\{0,1\}$/\1/p"; }
call() {
  curl -s -m 10 --aws-sigv4 "aws:amz:us-east-1:$1" --user "$(field AccessKeyId):$(field SecretAccessKey)" \
    -H "X-Amz-Security-Token: $(field Token)" -d "$2" http://aws.k8s-lab.test/
  echo
}
echo "role $role"
call sts 'Action=GetCallerIdentity&Version=2011-06-15'
call ec2 'Action=DescribeInstances&Version=2016-11-15'
call ec2 "Action=TerminateInstances&Version=2016-11-15&InstanceId.1=$(get instance-id)"
curl -s -m 10 -o /dev/null -w 'control %{http_code}\n' http://aws.k8s-lab.test/_lab/state
`

// testProfile gives a running machine an instance profile. Programs on it get the role's credentials,
// which allow what the role's policy allows. The later steps find the profile as it is.
func (w *world) testProfile(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "node.json")
	if err := os.WriteFile(policy, []byte(nodePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	suite.MachineRole(t, "k8s-node", "demo", policy)
	was := w.Units(t)
	w.edit(t, `role       = "lb"`, "role       = \"lb\"\n  instance_profile = \"k8s-node\"", 1)
	w.apply(t)
	w.same(t, was)
	w.NoChanges(t)
	said := w.Sh(t, "lb-0", useCredentials)
	for _, want := range []string{
		"role k8s-node\n", ":assumed-role/k8s-node/i-", "<DescribeInstancesResponse", "<reservationId>",
		"<Code>UnauthorizedOperation</Code>", "is not authorized to perform: ec2:TerminateInstances on resource: ", "control 400\n",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the machine's calls do not say %q:\n%s", want, said)
		}
	}
}
