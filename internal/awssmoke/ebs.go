package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// driver is the EBS CSI driver of examples/ebs-csi, with what it needs in the account beside the cluster: a role, and a bucket for the
// documents of the issuer, which everybody may read.
type driver struct {
	manifest           string // what Helm makes of the chart
	api                *iam.Client
	hasRole, hasBucket bool // they may exist
}

const (
	chartRepository = "https://kubernetes-sigs.github.io/aws-ebs-csi-driver"
	driverAccount   = "system:serviceaccount:kube-system:ebs-csi-controller-sa"
	policyName      = "ebs-csi.json"
)

//go:embed ebs.yaml
var movingPod string

// moving is the time limit of what takes minutes on AWS: images of the driver, and a volume that comes and goes.
var moving = 10 * time.Minute

var chartVersion = regexp.MustCompile(`aws-ebs-csi-driver ([0-9]+\.[0-9]+\.[0-9]+)`)

func (t *trial) issuerBucket() string { return t.name + "-issuer" }
func (t *trial) driverRole() string   { return t.name + "-ebs-csi" }

// own returns a file of the examples for this trial: with the cluster, the region, the account and its partition.
func (t *trial) own(file ...string) (string, error) {
	text, err := os.ReadFile(filepath.Join(append([]string{t.root, "examples"}, file...)...))
	partition := strings.Split(t.account.arn+"::", ":")[1]
	return strings.NewReplacer("CLUSTER", t.name, "REGION", t.account.client.Region, "ACCOUNT", t.account.id, "arn:aws:", "arn:"+partition+":").Replace(string(text)), err
}

// renderChart makes the manifests of the driver with Helm, before anything costs money.
func (t *trial) renderChart(ctx context.Context) error {
	helm, err := exec.LookPath("helm")
	if err != nil {
		return fmt.Errorf("-ebs renders the chart of the EBS CSI driver: install Helm, https://helm.sh/docs/intro/install: %w", err)
	}
	values, err := t.own("ebs-csi", "values.yaml")
	if err != nil {
		return err
	}
	version := chartVersion.FindStringSubmatch(values)
	if version == nil {
		return errors.New("examples/ebs-csi/values.yaml does not say of which release of the chart it is")
	}
	cmd := exec.CommandContext(ctx, helm, "template", "aws-ebs-csi-driver", "aws-ebs-csi-driver", "--repo", chartRepository, "--version", version[1],
		"--namespace", "kube-system", "--skip-tests", "--values", "-")
	cmd.Stdin, cmd.Stderr = strings.NewReader(values), t.log
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("helm template of the chart %s, see commands.log: %w", version[1], err)
	}
	class, err := t.own("ebs-csi", "storageclass.yaml")
	t.driver.manifest = string(out) + "\n---\n" + class
	t.report.version("EBS CSI driver", "chart "+version[1])
	return err
}

// issuerFiles are what the trial adds to the example: the issuer, and that the end of the network is the end of volumes that are left.
func (t *trial) issuerFiles() map[string]string {
	return map[string]string{
		"ebs.tf": fmt.Sprintf(`resource "k8s_workload_identity" "trial" {
  pki    = k8s_pki.this.ref
  bucket = %q
}

output "trial_issuer" {
  value = { url = k8s_workload_identity.trial.issuer, provider = k8s_workload_identity.trial.provider_arn }
}
`, t.issuerBucket()),
		"ebs_override.tf": `resource "k8s_network" "this" {
  delete_leftovers = true
}

resource "k8s_control_plane" "this" {
  workload_identity = k8s_workload_identity.trial.ref
}
`,
	}
}

// makeBucket makes the bucket, as the guide "Roles for pods" does.
func (t *trial) makeBucket(ctx context.Context) error {
	api, name := t.account.client.S3, t.issuerBucket()
	in := &s3.CreateBucketInput{Bucket: &name}
	if region := t.account.client.Region; region != "us-east-1" { // which has no constraint of its name
		in.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{LocationConstraint: s3types.BucketLocationConstraint(region)}
	}
	t.driver.hasBucket = true
	if _, err := api.CreateBucket(ctx, in); err != nil && !infraaws.IsCode(err, "BucketAlreadyOwnedByYou") {
		return err
	}
	_, err := api.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{Bucket: &name, PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
		BlockPublicAcls: sdk.Bool(true), IgnorePublicAcls: sdk.Bool(true), BlockPublicPolicy: sdk.Bool(false), RestrictPublicBuckets: sdk.Bool(false)}})
	if err != nil {
		return err
	}
	resource := "arn:" + strings.Split(t.account.arn, ":")[1] + ":s3:::" + name + "/k8s/*/issuer/*"
	policy, err := json.Marshal(allowing(map[string]any{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": resource}))
	if err != nil {
		return err
	}
	return eventually(ctx, becoming, func(ctx context.Context) error { // S3 needs a moment to believe the settings
		_, err := api.PutBucketPolicy(ctx, &s3.PutBucketPolicyInput{Bucket: &name, Policy: sdk.String(string(policy))})
		return err
	})
}

func allowing(statement map[string]any) map[string]any {
	return map[string]any{"Version": "2012-10-17", "Statement": []any{statement}}
}

// trustingPods returns the trust policy of a role for the pods of one service account.
func trustingPods(provider, issuer, account string) (string, error) {
	host := strings.TrimPrefix(issuer, "https://")
	text, err := json.Marshal(allowing(map[string]any{
		"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity", "Principal": map[string]string{"Federated": provider},
		"Condition": map[string]any{"StringEquals": map[string]string{host + ":aud": "sts.amazonaws.com", host + ":sub": account}},
	}))
	return string(text), err
}

// makeDriverRole makes the role that the driver's controller assumes.
func (t *trial) makeDriverRole(ctx context.Context) error {
	var issuer struct{ URL, Provider string }
	if err := t.ws.Output(ctx, "trial_issuer", &issuer); err != nil {
		return err
	}
	policy, err := t.own("iam", policyName)
	if err != nil {
		return err
	}
	trust, err := trustingPods(issuer.Provider, issuer.URL, driverAccount)
	if err != nil {
		return err
	}
	if err := t.openIAM(ctx); err != nil {
		return err
	}
	t.driver.hasRole = true
	name := t.driverRole()
	_, err = t.driver.api.CreateRole(ctx, &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust, Tags: []iamtypes.Tag{{Key: sdk.String(tagTrial), Value: &t.name}}})
	if err != nil && !infraaws.IsCode(err, "EntityAlreadyExists") {
		return err
	}
	_, err = t.driver.api.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &name, PolicyName: sdk.String(policyName), PolicyDocument: &policy})
	return err
}

func (t *trial) openIAM(ctx context.Context) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	t.driver.api = iam.NewFromConfig(cfg)
	return err
}

// installDriver applies the manifests, and waits for the controller and the pods of the nodes.
func (t *trial) installDriver(ctx context.Context) error {
	if _, err := t.kube(ctx, t.driver.manifest, "apply", "--server-side", "-f", "-"); err != nil {
		return err
	}
	for _, what := range []string{"deployment/ebs-csi-controller", "daemonset/ebs-csi-node"} {
		if _, err := t.kube(ctx, "", "rollout", "status", what, "-n", "kube-system", "--request-timeout=0", "--timeout="+moving.String()); err != nil {
			events, _ := t.kube(ctx, "", "get", "events", "-n", "kube-system", "--field-selector=type=Warning")
			return fmt.Errorf("%w\n%s", err, events)
		}
	}
	return nil
}

// moveVolume writes a file on one node and reads it on another one. The example's nodes are in one zone.
func (t *trial) moveVolume(ctx context.Context) error {
	const text = "written on another node"
	for i, node := range slices.Sorted(maps.Keys(t.pods))[:2] {
		if _, err := t.kube(ctx, strings.NewReplacer("NODE", node, "IMAGE", t.image).Replace(movingPod), "apply", "-f", "-"); err != nil {
			return err
		}
		if _, err := t.kube(ctx, "", "wait", "--for=condition=Ready", "pod/moving", "--request-timeout=0", "--timeout="+moving.String()); err != nil {
			events, _ := t.kube(ctx, "", "get", "events", "--field-selector=type=Warning")
			return fmt.Errorf("the pod on %s: %w\n%s", node, err, events)
		}
		script := "cat /data/file"
		if i == 0 {
			script = "echo " + text + " > /data/file && sync && cat /data/file"
		}
		out, err := t.inPod(ctx, "moving", script)
		if err == nil && !strings.Contains(out, text) {
			err = fmt.Errorf("the file on %s has %q", node, strings.TrimSpace(out))
		}
		if err != nil {
			return err
		}
		if _, err := t.kube(ctx, "", "delete", "pod", "moving", "--request-timeout=0", "--timeout="+moving.String()); err != nil {
			return err
		}
	}
	return nil
}

// deleteClaim deletes the claim, and waits until the driver has deleted the volume. What it leaves, the end of the network deletes.
func (t *trial) deleteClaim(ctx context.Context) error {
	if _, err := t.kube(ctx, "", "delete", "pod/moving", "persistentvolumeclaim/moving", "--ignore-not-found", "--request-timeout=0", "--timeout="+moving.String()); err != nil {
		return err
	}
	return eventually(ctx, moving, t.checkVolumes)
}

// checkVolumes fails if a volume of the driver exists.
func (t *trial) checkVolumes(ctx context.Context) error {
	out, err := t.account.client.EC2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{
		infraaws.Inside(t.name).Filter(), {Name: sdk.String("tag-key"), Values: []string{"CSIVolumeName"}}}})
	if err == nil && len(out.Volumes) > 0 {
		err = fmt.Errorf("volume %s of the EBS CSI driver is left", sdk.ToString(out.Volumes[0].VolumeId))
	}
	return err
}

// deleteDriverRole deletes what makeDriverRole has made, also if it does not know what that is.
func (t *trial) deleteDriverRole(ctx context.Context) error {
	if !t.driver.hasRole {
		return nil
	}
	name := t.driverRole()
	_, err := t.driver.api.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: &name, PolicyName: sdk.String(policyName)})
	if err := infraaws.Ignore(err, "NoSuchEntity"); err != nil {
		return err
	}
	_, err = t.driver.api.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &name})
	return infraaws.Ignore(err, "NoSuchEntity")
}

// deleteBucket deletes the bucket with what a destroy may have left in it.
func (t *trial) deleteBucket(ctx context.Context) error {
	if !t.driver.hasBucket {
		return nil
	}
	api, name := t.account.client.S3, t.issuerBucket()
	out, err := api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &name})
	if err != nil {
		return infraaws.Ignore(err, "NoSuchBucket")
	}
	for _, o := range out.Contents {
		if _, err := api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &name, Key: o.Key}); err != nil {
			return err
		}
	}
	_, err = api.DeleteBucket(ctx, &s3.DeleteBucketInput{Bucket: &name})
	return infraaws.Ignore(err, "NoSuchBucket")
}
