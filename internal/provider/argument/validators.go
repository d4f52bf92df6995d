// Package argument is what resources of several families have in common in their schemas and plans: validators
// of values that only this provider has, tags, claims, protection from deletion, deadlines. An argument of one
// family is in the package of that family.
package argument

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Validators of values that only this provider has.

// ClusterName accepts the name of a cluster, which becomes part of tag keys and parameter names.
func ClusterName() validator.String {
	return tf.DNSLabel(40).And("that does not begin with sg-", func(s string) error {
		if strings.HasPrefix(s, "sg-") {
			return fmt.Errorf("%q begins with sg-, which EC2 reserves for the ids of security groups; choose another name", s)
		}
		return nil
	})
}

// MachineName accepts the name of a machine, which is its hostname and node name.
func MachineName() validator.String {
	return tf.Check("a DNS label of at most 63 characters", component.CheckMachineName)
}

// PartName accepts the name of a worker pool or an addon.
func PartName() validator.String { return tf.DNSLabel(63) }

// LabelValue accepts what becomes the value of a label of nodes, such as "a zone".
func LabelValue(what string) validator.String {
	return stringvalidator.RegexMatches(regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`),
		what+" has at most 63 letters, digits, dots, hyphens and underscores, and begins and ends with a letter or digit")
}

// InstanceID accepts the id of an EC2 instance.
func InstanceID() validator.String {
	return stringvalidator.RegexMatches(regexp.MustCompile(`^i-[0-9a-f]{1,17}$`), "the id of an EC2 instance is i- and hexadecimal digits, as in i-0123456789abcdef0")
}

// KeyStore accepts the name of a key store.
func KeyStore() validator.String { return stringvalidator.OneOf(pki.StoreSSM, pki.StoreState) }

// KubernetesVersion accepts a Kubernetes release that the provider can build.
func KubernetesVersion() validator.String {
	return tf.Check("a supported Kubernetes version ("+strings.Join(version.Supported(), ", ")+")", func(s string) error {
		_, err := version.ParseSupported(s)
		return err
	})
}

// EtcdVersion accepts a release of etcd that the provider can build.
func EtcdVersion() validator.String {
	return tf.Check("a supported etcd version (3.6, 3.7)", checkedVersion(version.CheckEtcd))
}

// ContainerdVersion accepts a release of containerd that the provider can configure.
func ContainerdVersion() validator.String {
	return tf.Check("a release of containerd 2", checkedVersion(version.CheckContainerd))
}

// ReleaseVersion accepts any release version, such as 1.5.2.
func ReleaseVersion() validator.String {
	return tf.Check("a release version such as 1.5.2", checkedVersion(func(version.Version) error { return nil }))
}

func checkedVersion(check func(version.Version) error) func(string) error {
	return func(s string) error {
		v, err := version.Parse(s)
		if err != nil {
			return err
		}
		return check(v)
	}
}

// HostKey accepts an SSH public key in authorized_keys form.
func HostKey() validator.String {
	return tf.Check("an SSH host key such as `ssh-ed25519 AAAA...`", func(s string) error {
		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(s)); err != nil {
			return fmt.Errorf("not an SSH public key: %w; take a line of /etc/ssh/ssh_host_ed25519_key.pub", err)
		}
		return nil
	})
}

// https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
var bucketNames = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// BucketName accepts the name of an S3 bucket.
func BucketName() validator.String {
	return tf.Check("the name of an S3 bucket", func(s string) error {
		if !bucketNames.MatchString(s) {
			return fmt.Errorf("%q must be 3 to 63 lower-case letters, digits, hyphens and dots, and begin and end with a letter or digit; write the name alone, without s3://", s)
		}
		return nil
	})
}

var objectPrefixes = regexp.MustCompile(`^([a-zA-Z0-9_.=-]+/)+$`)

// ObjectPrefix accepts what the keys of objects in S3 begin with.
func ObjectPrefix() validator.String {
	return tf.Check("a prefix such as k8s/demo/keys/", func(s string) error {
		if !objectPrefixes.MatchString(s) || len(s) > 512 {
			return fmt.Errorf("%q must end with a slash, not begin with one, and hold letters, digits and _.=- between slashes", s)
		}
		return nil
	})
}

var kmsKeys = regexp.MustCompile(`^[a-zA-Z0-9:/_-]+$`)

// KMSKey accepts the id, the ARN or the alias of a KMS key.
func KMSKey() validator.String {
	return tf.Check("a KMS key", func(s string) error {
		if !kmsKeys.MatchString(s) {
			return fmt.Errorf("%q is neither the id, nor the ARN, nor the alias of a KMS key", s)
		}
		return nil
	})
}
