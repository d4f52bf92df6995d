package main

import (
	"fmt"
	"os"
	"path/filepath"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// byHandFile exists as long as the cluster may exist.
func (t *trial) byHandFile() string { return filepath.Join(t.dir, "destroy-by-hand.txt") }

// noteByHand writes down how to destroy the cluster, should this process or computer end.
func (t *trial) noteByHand() error {
	t.say("should this command be killed: %s says how to destroy the cluster", t.byHandFile())
	return os.WriteFile(t.byHandFile(), []byte(t.byHand()), 0o600)
}

// byHand says how to destroy the cluster by hand.
func (t *trial) byHand() string {
	role := ""
	if t.role != nil && t.role.begun {
		role = fmt.Sprintf("\nThe IAM role %s may still exist. Delete it, with its inline policies, when the cluster is gone.\n", t.name)
		if t.ws == nil {
			return role
		}
		role += fmt.Sprintf("If it is gone before, take assume_role out of %s first.\n", filepath.Join(t.work(), overrideFile))
	}
	if t.ebs {
		role += fmt.Sprintf("\nThe IAM role %s and the bucket %s, which everybody may read, may still exist. Delete them when the cluster is gone.\n", t.driverRole(), t.issuerBucket())
	}
	return fmt.Sprintf(`
The cluster %[1]s may still exist, in part, and cost money. With the same credentials, destroy it by hand:

  cd %[2]s
  AWS_REGION=%[3]s TF_CLI_CONFIG_FILE=%[2]s/cli.tfrc K8S_SSH_PRIVATE_KEY_FILE=%[4]s %[5]s destroy

If that fails, delete what these commands list, machines first:

  aws --region %[3]s ec2 describe-tags --filters Name=key,Values=%[6]s Name=value,Values=%[1]s
  aws --region %[3]s ssm get-parameters-by-path --recursive --path %[7]s
`, t.name, t.work(), t.account.client.Region, t.sshKey(), t.ws.CLI, infraaws.TagCluster, parameterPath(t.name)) + role
}
