package provider

import (
	"fmt"
	"regexp"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/objectvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/tunnel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

func sshAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "How the provider reaches machines by SSH. It knows the host key of every machine before the first connection, and never trusts a key that only the connection shows.",
		Attributes: map[string]schema.Attribute{
			"private_key": schema.StringAttribute{
				Optional: true, Sensitive: true,
				MarkdownDescription: "Private key in PEM or OpenSSH format, without a passphrase. Machines authorise its public key at launch. May be ephemeral; it is never in the state. " +
					"Default: `K8S_SSH_PRIVATE_KEY`.",
				Validators: []validator.String{privateKey()},
			},
			"private_key_file": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Path of a file with the private key. Default: `K8S_SSH_PRIVATE_KEY_FILE`.",
				Validators:          []validator.String{stringvalidator.ConflictsWith(path.MatchRoot("ssh").AtName("private_key"))},
			},
			"agent": schema.BoolAttribute{
				Optional: true,
				MarkdownDescription: "Whether to use a key of the SSH agent at `SSH_AUTH_SOCK`, beside the private key if there is one. Default: `true` if `agent_key` is set, or if there " +
					"is an agent and no private key, else `false`.",
			},
			"agent_key": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Key of the SSH agent to use: its comment, its fingerprint as `ssh-add -l` prints it (`SHA256:...`), or its public key. New machines authorise only this key. Default: " +
					"`K8S_SSH_AGENT_KEY`, otherwise the agent's only key. If the agent holds several keys, the plan lists them and fails.",
				Validators: []validator.String{agentKey()},
			},
			"user": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Login user with passwordless sudo, for machines and hosts that do not set their own. Default: `admin`, as in Debian's images.",
				Validators:          []validator.String{tf.LoginUser()},
			},
			"connect_timeout": schema.StringAttribute{
				Optional: true, CustomType: timetypes.GoDurationType{},
				MarkdownDescription: "How long to wait for a machine to accept a connection before it counts as unreachable, as a duration such as `30s`. Default: `10s`, times `patience`.",
				Validators:          []validator.String{tf.PositiveDuration()},
			},
			"bastion": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "Bastion through which all machines are reached, with the same key and at their private addresses. It may be a machine of the cluster: set " +
					"`bastion_role` of `k8s_network`. The bastion itself is reached directly. Default: none.",
				Attributes: map[string]schema.Attribute{
					"address": schema.StringAttribute{Required: true, MarkdownDescription: "IP address or DNS name."},
					"port":    schema.Int64Attribute{Optional: true, MarkdownDescription: "SSH port. Default: 22.", Validators: []validator.Int64{tf.Port()}},
					"user":    schema.StringAttribute{Optional: true, MarkdownDescription: "Login user. Default: the provider's `ssh.user`.", Validators: []validator.String{tf.LoginUser()}},
					"host_keys": schema.ListAttribute{
						Required: true, ElementType: types.StringType,
						MarkdownDescription: "SSH host keys, as `ssh-ed25519 AAAA...`, any of which is accepted.",
						Validators:          []validator.List{listvalidator.SizeAtLeast(1), listvalidator.ValueStringsAre(argument.HostKey())},
					},
				},
			},
			"instance_connect": instanceConnectAttribute(),
		},
	}
}

func instanceConnectAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Reaches all machines at their private addresses through EC2 Instance Connect Endpoints, without public addresses or a bastion. SSH must be on port 22. `{}` finds the " +
			"endpoint of each machine by its VPC. Default: none.",
		Attributes: map[string]schema.Attribute{
			"endpoint_id": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Id of the endpoint, such as `eice-0123456789abcdef0`. Hosts that are no `k8s_machine` and have no `instance_id` need it. Default: the endpoint of each machine's VPC.",
				Validators: []validator.String{stringvalidator.RegexMatches(regexp.MustCompile(`^eice-[0-9a-f]{8,17}$`), "the id of an EC2 Instance Connect Endpoint begins with eice-")},
			},
			"max_tunnel_duration": schema.StringAttribute{
				Optional: true, CustomType: timetypes.GoDurationType{},
				MarkdownDescription: "How long one tunnel lasts, from `1m` to `1h`. An IAM policy may allow short ones only (`ec2-instance-connect:maxTunnelDuration`). A command that takes more than half of it may be " +
					"interrupted. Default: `1h`.",
				Validators: []validator.String{tunnelDuration()},
			},
		},
		Validators: []validator.Object{objectvalidator.ConflictsWith(path.MatchRoot("ssh").AtName("bastion"))},
	}
}

// tunnelDuration accepts how long a tunnel may last.
func tunnelDuration() validator.String {
	return tf.Check("a duration from 1m to 1h", func(s string) error {
		if d, err := time.ParseDuration(s); err == nil && (d < time.Minute || d > tunnel.MaxDuration) {
			return fmt.Errorf("%s is not from 1m to 1h: AWS ends a tunnel after an hour", s)
		}
		return nil
	})
}
