package machines_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/image"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestImage: an image is made, imported, tagged, and deleted with its snapshot. A machine is made of it.
func TestImage(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	network, made := c.Instance("k8s_network"), c.Instance("k8s_image")
	network.Must(providertest.NetworkConfig())
	config := func(more providertest.Values) providertest.Values {
		return providertest.With(providertest.ImageConfig(network), more)
	}
	planned := made.Plan(config(nil))
	c.Fatal(planned.Errors)
	c.Fatal(made.Apply(planned))
	made.Converged(config(nil))
	id := made.Get("id")
	found := c.Image(t, id)
	if found.State != types.ImageStateAvailable || !*found.BlockDeviceMappings[0].Ebs.Encrypted || !strings.HasPrefix(*found.Name, "demo-node-"+made.Get("digest").(string)[:12]+"-i-") {
		t.Errorf("made %+v", found)
	}
	tags := map[string]string{}
	for _, tag := range found.Tags {
		tags[*tag.Key] = *tag.Value
	}
	if tags[image.TagContent] != made.Get("digest") || tags["team"] != "lab" || !strings.Contains(tags[image.TagVersions], "kubernetes 1.36.4") || !strings.Contains(tags[image.TagVersions], "etcd 3.6.16") {
		t.Errorf("its tags: %v", tags)
	}
	versions := made.Get("versions").(providertest.Values)
	if versions["kubelet"] != "1.36.4" || versions["containerd"] == "" || versions["etcd"] != "3.6.16" || made.Get("cluster") != "demo" || made.Get("base_image_id") != *found.SourceImageId {
		t.Errorf("the state has the versions %v, cluster %v, base %v", versions, made.Get("cluster"), made.Get("base_image_id"))
	}
	if o := c.Account.Cloud.Overview(); len(o.Instances) != 0 || len(o.Snapshots) != 1 {
		t.Errorf("%d instances and %d snapshots are left", len(o.Instances), len(o.Snapshots))
	}

	imported := c.Instance("k8s_image")
	imported.Imports("demo/node")
	ch := imported.Plan(config(nil))
	if len(ch.Replace) > 0 || len(ch.Errors) > 0 {
		t.Errorf("the imported image would be replaced because of %v: %s", ch.Replace, ch.Failure())
	}
	if got := c.Instance("k8s_image").TryImport("other/" + id.(string)); !strings.Contains(got, "is image node of cluster demo, not of cluster other") {
		t.Error(got)
	}

	ch = made.Plan(config(providertest.Values{"tags": providertest.Values{"room": "12"}, "instance_type": "m5.large", "registries": providertest.Values{}}))
	if len(ch.Replace) > 0 {
		t.Fatalf("would replace it because of %v", ch.Replace)
	}
	c.Fatal(made.Apply(ch))
	made.Converged(config(providertest.Values{"tags": providertest.Values{"room": "12"}, "instance_type": "m5.large", "registries": providertest.Values{}}))

	worker := c.Instance("k8s_machine")
	machine := providertest.With(providertest.WorkerConfig(network), providertest.Values{"ami": id})
	worker.Must(machine)
	worker.Converged(machine)
	if worker.Get("image_id") != id {
		t.Errorf("the machine has %v, wanted %v", worker.Get("image_id"), id)
	}
	if failure := made.Attempt(nil); !strings.Contains(failure, "is in use by "+worker.Get("id").(string)+" (demo-worker-0)") || !strings.Contains(failure, "nothing was deleted") {
		t.Errorf("deleted an image in use: %s", failure)
	}
	c.Fatal(worker.Apply(worker.Plan(nil)))
	name := sdk.String("autoscaled")
	providertest.Answer[*ec2.CreateLaunchTemplateOutput](t)(c.Client.EC2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: name, LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: sdk.String(id.(string))}}))
	if failure := made.Attempt(nil); !strings.Contains(failure, "is in use by launch template autoscaled (lt-") || !strings.Contains(failure, "nothing was deleted") {
		t.Errorf("deleted an image that a launch template names: %s", failure)
	}
	providertest.Answer[*ec2.DeleteLaunchTemplateOutput](t)(c.Client.EC2.DeleteLaunchTemplate(t.Context(), &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: name}))
	for _, i := range []*providertest.Instance{made, network} {
		c.Fatal(i.Apply(i.Plan(nil)))
	}
	c.Account.Empty()
}

// TestImageReplaced: another content is another image, which can be made before the first one is deleted. One that is in use stays until
// nothing uses it.
func TestImageReplaced(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	network, old, next := c.Instance("k8s_network"), c.Instance("k8s_image"), c.Instance("k8s_image")
	network.Must(providertest.NetworkConfig())
	old.Must(providertest.ImageConfig(network))
	worker := c.Instance("k8s_machine")
	worker.Must(providertest.With(providertest.WorkerConfig(network), providertest.Values{"ami": old.Get("id")}))
	old.Refresh()
	for _, more := range []providertest.Values{
		{"kubernetes_version": "1.35.8"}, {"etcd_version": "3.6.15"}, {"containerd_version": "2.3.6"}, {"runc_version": "1.5.1"}, {"cni_plugins_version": "1.9.0"}, {"kube_proxy": false},
		{"roles": []any{"worker", "controller", "etcd"}}, {"packages": []any{"chrony"}}, {"container_images": []any{"quay.io/cilium/cilium:v1.19.0"}},
		{"ami": "ami-0123456789abcdef0"}, {"image_filter": providertest.Values{"name": "debian-13-*", "owners": []any{"self"}}}, {"instance_type": "t4g.small"}, {"cluster": "other"},
		{"name": "nodes"}, {"root_volume_size": 12}, {"kms_key_id": providertest.RootKeyID},
	} {
		ch := old.Plan(providertest.With(providertest.ImageConfig(network), more))
		if len(ch.Errors) > 0 || len(ch.Replace) == 0 {
			t.Errorf("%v replaces nothing: %s", more, ch.Failure())
		}
		if !slices.ContainsFunc(ch.Warnings, func(w *tfprotov6.Diagnostic) bool { return strings.Contains(w.Detail, worker.Get("id").(string)) }) && more["name"] == nil {
			t.Errorf("%v: the plan does not name the machine that uses the image: %v", more, ch.Warnings)
		}
	}
	config := providertest.With(providertest.ImageConfig(network), providertest.Values{"packages": []any{"chrony"}})
	next.Must(config) // create_before_destroy
	if next.Get("id") == old.Get("id") || next.Get("digest") == old.Get("digest") {
		t.Error("the same image")
	}
	said := old.CarryOut(old.Plan(nil))
	if len(said.Errors) > 0 || len(said.Warnings) != 1 || !strings.Contains(said.Warnings[0].Detail, "is no longer in this state") {
		t.Errorf("an image in use: %s, warnings %v", said.Failure(), said.Warnings)
	}
	next.Converged(config)
	c.Fatal(worker.Apply(worker.Plan(nil)))
	next.Refresh()
	ch := next.Plan(config)
	if got := next.Differences(ch); !strings.Contains(got, "nothing uses it any more") || len(ch.Replace) > 0 {
		t.Errorf("the plan shows %s", got)
	}
	c.Fatal(next.Apply(ch))
	next.Converged(config)
	if n := len(c.Account.Cloud.Overview().Images); n != 1 {
		t.Errorf("%d images", n)
	}
	// The same content once more, as by -replace.
	again := c.Instance("k8s_image")
	again.Must(config)
	if again.Get("id") == next.Get("id") {
		t.Error("the replacement is the same image")
	}
	for _, i := range []*providertest.Instance{next, again, network} {
		c.Fatal(i.Apply(i.Plan(nil)))
	}
	c.Account.Empty()
}

// TestImageGone: an image that somebody has deregistered is made again.
func TestImageGone(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	network, made := c.Instance("k8s_network"), c.Instance("k8s_image")
	network.Must(providertest.NetworkConfig())
	made.Must(providertest.ImageConfig(network))
	providertest.Answer[*ec2.DeregisterImageOutput](t)(c.Client.EC2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: sdk.String(made.Get("id").(string)), DeleteAssociatedSnapshots: sdk.Bool(true)}))
	if seen := made.Look(); len(seen.Warnings) != 1 || !strings.Contains(seen.Warnings[0].Detail, "The next apply makes it again") || !made.State.IsNull() {
		t.Errorf("%v", seen.Warnings)
	}
	made.Must(providertest.ImageConfig(network))
	for _, i := range []*providertest.Instance{made, network} {
		c.Fatal(i.Apply(i.Plan(nil)))
	}
	c.Account.Empty()
}

// TestImageFails: a failure is an error on its attribute if it has one, and nothing that costs is left.
func TestImageFails(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	network, made := c.Instance("k8s_network"), c.Instance("k8s_image")
	network.Must(providertest.NetworkConfig())
	for _, tt := range []struct {
		more  providertest.Values
		fault *fault.Fault
		want  string
	}{
		{more: providertest.Values{"kms_key_id": "alias/off"}, fault: &fault.Fault{Kind: fault.Key, Name: "alias/off"}, want: "kms_key_id"},
		{more: providertest.Values{"ami": "ami-00000000000000000"}, want: "does not exist"},
		{fault: &fault.Fault{Kind: fault.Fail, Action: "CreateImage", Code: "InternalError"}, want: "InternalError"},
	} {
		if tt.fault != nil {
			c.Account.Fault(*tt.fault)
		}
		if failure := made.Attempt(providertest.With(providertest.ImageConfig(network), tt.more)); !strings.Contains(failure, tt.want) {
			t.Errorf("%v: %s", tt.more, failure)
		}
		c.Account.Calm()
		if o := c.Account.Cloud.Overview(); len(o.Instances)+len(o.Images)+len(o.Snapshots)+len(o.Volumes) != 0 {
			t.Errorf("%v: left %+v", tt.more, o)
		}
	}
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}

// TestUnusableImage: bad input is an error of the plan, on its attribute.
func TestUnusableImage(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	network, made := c.Instance("k8s_network"), c.Instance("k8s_image")
	network.Must(providertest.NetworkConfig())
	for _, tt := range []struct {
		more      providertest.Values
		attribute string
		want      string
	}{
		{providertest.Values{"name": "Node"}, "name", "lower-case"},
		{providertest.Values{"cluster": "sg-1"}, "cluster", "sg-"},
		{providertest.Values{"roles": []any{"master"}}, "roles", "must be one of"},
		{providertest.Values{"roles": []any{}}, "roles", "at least 1"},
		{providertest.Values{"kubernetes_version": nil}, "kubernetes_version", "set kubernetes_version"},
		{providertest.Values{"kubernetes_version": "1.2.3"}, "kubernetes_version", "1.2.3"},
		{providertest.Values{"kubernetes_version": nil, "roles": []any{"etcd"}, "containerd_version": "2.3.7"}, "containerd_version", "no effect without the role worker"},
		{providertest.Values{"roles": []any{"lb"}}, "kubernetes_version", "no effect without the role controller"},
		{providertest.Values{"roles": []any{"worker"}, "etcd_version": "3.6.16"}, "etcd_version", "no effect without the role etcd"},
		{providertest.Values{"roles": []any{"controller"}, "container_images": []any{"quay.io/a/b:1"}}, "container_images", "no effect without the role worker"},
		{providertest.Values{"etcd_version": "2.0.0"}, "etcd_version", "etcd"},
		{providertest.Values{"packages": []any{"Chrony!"}}, "packages", "name of a package"},
		{providertest.Values{"container_images": []any{"busybox"}}, "container_images", "must name a registry"},
		{providertest.Values{"registries": providertest.Values{"docker.io": providertest.Values{"mirrors": []any{providertest.Values{"url": "ftp://a"}}}}}, "registries", "http"},
		{providertest.Values{"ami": "debian"}, "ami", "AMI id"},
		{providertest.Values{"ami": "ami-0123456789abcdef0", "image_filter": providertest.Values{"name": "a", "owners": []any{"self"}}}, "image_filter", "remove one"},
		{providertest.Values{"instance_type": "t3 small"}, "instance_type", "not the name of an instance type"},
		{providertest.Values{"network": nil}, "security_group_ids", "set network, or security_group_ids"},
		{providertest.Values{"network": nil, "subnet_id": "subnet-0123"}, "security_group_ids", "or security_group_ids"},
		{providertest.Values{"subnet_id": "subnet-0123"}, "subnet_id", "none of the network's subnets"},
		{providertest.Values{"security_group_ids": []any{"default"}}, "security_group_ids", "id of a security group"},
		{providertest.Values{"root_volume_size": 4}, "root_volume_size", "between 8"},
		{providertest.Values{"kms_key_id": "my key"}, "kms_key_id", "KMS key"},
	} {
		ch := made.Plan(providertest.With(providertest.ImageConfig(network), tt.more))
		if got := ch.Failure(); !strings.Contains(got, tt.want) || !at(ch, tt.attribute) {
			t.Errorf("%v: %s", tt.more, got)
		}
	}
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}

// TestImageElsewhere: an image is made in a subnet that no k8s_network has.
func TestImageElsewhere(t *testing.T) {
	t.Parallel()
	c := providertest.NewImageCloud(t)
	site := providertest.NewSite(t, c)
	group := *providertest.Answer[*ec2.CreateSecurityGroupOutput](t)(c.Client.EC2.CreateSecurityGroup(t.Context(), &ec2.CreateSecurityGroupInput{
		GroupName: sdk.String("builders"), Description: sdk.String("builders"), VpcId: &site.Vpc})).GroupId
	made := c.Instance("k8s_image")
	config := providertest.Values{"name": "node", "roles": []any{"lb"}, "subnet_id": site.A, "security_group_ids": []any{group}}
	made.Must(config)
	made.Converged(config)
	if made.Get("cluster") != "node" {
		t.Errorf("its cluster is %v", made.Get("cluster"))
	}
	c.Fatal(made.Apply(made.Plan(nil)))
	if o := c.Account.Cloud.Overview(); len(o.Instances)+len(o.Images)+len(o.Snapshots) != 0 {
		t.Errorf("left %+v", o)
	}
}

// TestImagePolicy makes, changes and deletes an image under the policies of examples/iam, and without each action of the policy for
// images.
func TestImagePolicy(t *testing.T) {
	t.Parallel()
	everyday, policy := providertest.ReadPolicy(t, "everyday.json"), providertest.ReadPolicy(t, "image.json")
	run := func(t *testing.T, policy string) string {
		c := providertest.NewImageCloud(t)
		network := c.Instance("k8s_network")
		network.Must(providertest.NetworkConfig())
		user := providertest.Answer[iam.User](t)(c.Account.Cloud.Identities().PutUser("terraform", iam.Entity{Policies: []string{everyday.Without(""), policy}}))
		c.More = providertest.With(c.More, providertest.Values{"access_key": user.AccessKeyID, "secret_key": user.SecretAccessKey})
		made := c.Process(t).Instance("k8s_image")
		for _, config := range []providertest.Values{
			providertest.ImageConfig(network), providertest.With(providertest.ImageConfig(network), providertest.Values{"tags": providertest.Values{"room": "12"}}), nil,
		} {
			if failure := made.Attempt(config); failure != "" {
				return failure
			}
		}
		if o := c.Account.Cloud.Overview(); len(o.Images)+len(o.Snapshots)+len(o.Instances) != 0 {
			t.Errorf("left %+v", o)
		}
		return ""
	}
	if failure := run(t, policy.Without("")); failure != "" {
		t.Fatal(failure)
	}
	for _, s := range policy.Statement {
		for _, action := range providertest.StatementActions(s) {
			t.Run(action, func(t *testing.T) {
				t.Parallel()
				providertest.Missed(t, action, run(t, policy.Without(action)))
			})
		}
	}
}
