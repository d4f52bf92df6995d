package rollout

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
)

// TestForwardingForbidden: a machine to be changed whose sshd has AllowTcpForwarding no is found before the change,
// if its program is to be asked there.
func TestForwardingForbidden(t *testing.T) {
	t.Parallel()
	var answer error
	server := remotetest.New(t, "controller-0", func(string) (string, int) { return "", 0 })
	server.Dial = func(string) (net.Conn, error) { return nil, answer }
	pool := remote.NewPool(remote.Config{})
	t.Cleanup(func() { pool.Close() })
	f := &fleet.Fleet{Pool: pool}
	m := &Machine{Machine: f.Machine(fleet.Target{Host: server.Host, Node: component.Node{Name: "controller-0"}}), Changes: []host.Change{{}}}
	o := &Operation{Fleet: f, role: Definition{Name: "etcd", AskedAt: 2379}}

	answer = errors.New("Connection refused")
	if err := o.checkForwarding(t.Context(), m); err != nil {
		t.Errorf("nothing listens yet: %v", err)
	}
	answer = &ssh.OpenChannelError{Reason: ssh.Prohibited, Message: "open failed"}
	err := o.checkForwarding(t.Context(), m)
	var forwarding *remote.ForwardingError
	if !errors.As(err, &forwarding) || forwarding.Machine != "controller-0" || !strings.HasSuffix(err.Error(), "nothing has been changed") {
		t.Errorf("AllowTcpForwarding no: %v", err)
	}
	m.Changes = nil
	if err := o.checkForwarding(t.Context(), m); err != nil {
		t.Errorf("a machine that stays as it is: %v", err)
	}
	m.Changes, o.role.AskedAt = []host.Change{{}}, 0
	if err := o.checkForwarding(t.Context(), m); err != nil {
		t.Errorf("a role that asks nothing: %v", err)
	}
}
