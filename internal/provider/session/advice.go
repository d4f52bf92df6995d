package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/tunnel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// AddError adds err with a summary, and says what to do about it. An error about a field goes to the
// argument of that name.
func AddError(diags *diag.Diagnostics, summary string, err error) {
	if field := (*invalid.Field)(nil); errors.As(err, &field) {
		at, _ := FieldPath(field.Field, "")
		diags.AddAttributeError(at, summary, ErrorText(err))
		return
	}
	diags.AddError(summary, ErrorText(err))
}

// ErrorText returns an error's text, and what to do about it.
func ErrorText(err error) string {
	text := foreign.Text(err.Error())
	if next := Advice(err); next != "" {
		text += "\n\n" + next
	}
	return text
}

// Advice says what to do about an error. It is empty if the error's text says enough.
func Advice(err error) string {
	if errors.Is(err, ErrNotYetKnown) {
		return "Apply what the provider block depends on first, with -target."
	}
	if MustChoose(err) {
		return "Set ssh.agent_key of the provider, or K8S_SSH_AGENT_KEY, to the fingerprint (SHA256:...) of the key to use; `ssh-add -l` prints them. " +
			"New machines authorise this key only, and no other key is offered to machines."
	}
	if errors.Is(err, errNoKey) {
		return "Nothing was changed."
	}
	if infraaws.Unconfigured(err) {
		return cmp.Or(infraaws.Advice(err), "Nothing was changed.") +
			" With several provider blocks, provider of the resource, or providers of its module, says which provider configuration it uses."
	}
	if next := ownershipAdvice(err); next != "" {
		return next
	}
	if next := infraaws.Advice(err); next != "" {
		return next
	}
	var (
		hostKey     *remote.HostKeyError
		tagged      *awsmachine.HostKeyTagError
		doubted     *awsmachine.HostKeyDoubt
		auth        *remote.AuthError
		unreachable *remote.UnreachableError
		checksum    *host.ChecksumError
		none        *tunnel.NoEndpointError
		forwarding  *remote.ForwardingError
		failed      *host.ApplyError
		dial        *net.OpError
		left        *awsnetwork.LeftoversError
	)
	switch {
	case errors.As(err, &hostKey):
		return fmt.Sprintf("Find out why before you continue. If the machine was replaced on purpose, run apply with -replace for %s; "+
			"for a host of your own, correct its host_key.", hostKey.Machine)
	case errors.As(err, &tagged):
		return fmt.Sprintf("Nothing was sent to it. The provider writes this tag once, before a new machine uses its own key: somebody else has changed it since. "+
			"Find out who (CloudTrail records CreateTags). If the machine still shows the key of the state, write it into the tag again:\n"+
			"aws ec2 create-tags --resources %s --tags 'Key=%s,Value=%s'\n"+
			"Otherwise replace the machine: terraform apply -refresh=false -replace, with its address in the configuration.", tagged.ID, infraaws.TagHostKey, tagged.Pinned)
	case errors.As(err, &doubted) && doubted.Given == "" && doubted.Printed == "":
		return fmt.Sprintf("Nothing was imported: whoever may write tags could have written this one. A machine prints the fingerprint of its key on its console when it is made and at each boot, and EC2 keeps "+
			"the last 64 KiB: reboot it and import it again. Or give the fingerprint that you know from elsewhere, such as a former state or a known_hosts file, after the id: %s#SHA256:...", doubted.ID)
	case errors.As(err, &doubted):
		return fmt.Sprintf("Nothing was imported: somebody else has written the tag (CloudTrail records CreateTags), or the machine has got another key since. "+
			"Find out which. If the machine shows the key of the tag to somebody whom you trust, import it with the fingerprint of that key: %s#SHA256:...", doubted.ID)
	case errors.As(err, &auth):
		return fmt.Sprintf("Give the provider the private key with which %s was made (ssh.private_key, K8S_SSH_PRIVATE_KEY or ssh.agent_key), "+
			"and the login user of its image (user).", auth.Machine)
	case errors.As(err, &checksum):
		return "What was installed before stays in place and running. Either the source serves a damaged or different file, or artifact_checksums is out of date: " +
			"correct the one that is wrong, then run apply again."
	case errors.As(err, &none):
		return "Set instance_connect_endpoint of k8s_network, wait until the endpoint is ready, or set endpoint_id of ssh.instance_connect to one that leads there; then run apply again."
	case errors.As(err, &forwarding):
		what, other := "ports of the machine itself", ""
		if way := new(remote.WayError); errors.As(err, &way) {
			what, other = "machines", "; or choose another bastion"
		}
		return fmt.Sprintf("Allow it in the configuration of sshd on %s, with AllowTcpForwarding local (or yes), and a PermitOpen, if there is one, that has the %s%s. "+
			"Then run apply again.", forwarding.Machine, what, other)
	case errors.As(err, &unreachable) && unreachable.Tunnel != "":
		return adviceTunnelled(unreachable)
	case errors.As(err, &unreachable) && unreachable.Through != "":
		return adviceBehind(unreachable)
	case errors.As(err, &unreachable):
		return fmt.Sprintf("Check that %s runs, that admin_cidrs contains the address from which this computer reaches it, "+
			"and that nothing on the way blocks SSH; then run apply again: it continues where it stopped.", unreachable.Machine)
	case errors.As(err, &failed) && failed.Full():
		return fmt.Sprintf("Make room on %s, or give it a larger disk (root_volume_size), then run apply again: it continues where it stopped. "+
			"What was installed before stays in place and running.", failed.Machine)
	case errors.As(err, &failed) && failed.Step.Kind == host.StepDownload:
		return fmt.Sprintf("%s downloads files itself: the source (artifact_mirror, or upstream) must be up and reachable from there, not only from this computer. "+
			"What was installed before stays in place and running. Correct it, then run apply again.", failed.Machine)
	case errors.As(err, &failed) && failed.Step.Kind == host.StepPackages:
		return fmt.Sprintf("%s installs packages of its distribution from the archives in its /etc/apt: they must be reachable from there. "+
			"What was installed before stays in place and running. Correct what the error names, then run apply again.", failed.Machine)
	case errors.As(err, &failed) && failed.Step.Kind == host.StepCloudInit && failed.Unit == "":
		return fmt.Sprintf("Nothing is changed on %s while it is about to shut down. Let it, or take it back there (shutdown -c), then run apply again.", failed.Machine)
	case errors.As(err, &failed) && failed.Step.Kind == host.StepCloudInit:
		return fmt.Sprintf("Nothing is changed on %s before cloud-init has ended there: cloud-init status --long says what it is doing. "+
			"Remove what it waits for, then run apply again.", failed.Machine)
	case errors.As(err, &left) && left.Busy:
		return "Nothing was deleted. Detach or delete what keeps it in use, then run destroy again."
	case errors.As(err, &left):
		return fmt.Sprintf("Nothing was deleted. Objects that are to stay must lose their tag, %s. To delete all others with the network, volumes with their data, set delete_leftovers = true of "+
			"k8s_network, run apply with -target for its address, and then destroy again.", strings.Join(infraaws.Inside(left.Cluster).Tags(), " or "))
	case errors.As(err, &dial) && isPrivate(dial.Addr):
		return fmt.Sprintf("%s is a private address. Run Terraform where it is reached, such as in the VPC or over a VPN, or set ssh.bastion or ssh.instance_connect of the provider; "+
			"then run apply again: it continues where it stopped.", dial.Addr)
	case errors.Is(err, context.DeadlineExceeded):
		return "Run apply again: it continues where it stopped. If the last condition shows progress, set a longer time limit in timeouts. If everything is slow, set patience of the provider."
	case errors.Is(err, context.Canceled):
		return "It was interrupted. Run apply again: it continues where it stopped."
	}
	return ""
}

// isPrivate reports whether a TCP address is one of a private network.
func isPrivate(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	return ok && inside(ip)
}

// carrierGrade is a network of which VPCs take ranges beside those of RFC 1918.
// https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html
var carrierGrade = netip.MustParsePrefix("100.64.0.0/10")

// inside reports whether an address is that of a private network.
func inside(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsPrivate() || carrierGrade.Contains(ip)
}

// adviceTunnelled says what to do about a machine that could not be reached through an EC2 Instance Connect
// Endpoint.
func adviceTunnelled(e *remote.UnreachableError) string {
	return fmt.Sprintf("Check that %s runs, that one of its security groups lets tcp 22 in from the security group of the %s, and that the latter lets it out; "+
		"then run apply again: it continues where it stopped.", e.Machine, e.Tunnel)
}

// adviceBehind says what to do about a machine that could not be reached through its bastion. From
// where the bastion is reached says nothing about the machine behind it.
func adviceBehind(e *remote.UnreachableError) string {
	var bastion *remote.UnreachableError
	if errors.As(e.Err, &bastion) {
		return fmt.Sprintf("The bastion %s cannot be reached itself: check that it runs and that nothing on the way to it blocks SSH; "+
			"then run apply again: it continues where it stopped.", e.Through)
	}
	return fmt.Sprintf("Check that %s runs, and that it lets SSH in from the bastion %s: its security groups and its firewall must allow the address that the bastion has there. "+
		"If the bastion is a machine of this cluster, set bastion_role of k8s_network to the bastion's role; "+
		"then run apply again: it continues where it stopped.", e.Machine, e.Through)
}
