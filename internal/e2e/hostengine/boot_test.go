package hostengine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// neverEnding restarts a stage of cloud-init that does not end.
func (m *realMachine) neverEnding() {
	m.sh(`mkdir -p /run/systemd/system/cloud-final.service.d
printf '[Service]\nExecStart=\nExecStart=/bin/sleep infinity\nExecStartPost=\n' >/run/systemd/system/cloud-final.service.d/never.conf
systemctl daemon-reload
systemctl restart --no-block cloud-final.service
timeout 20 sh -c 'until systemctl show -p ActiveState cloud-final.service | grep -q activating; do sleep 0.05; done'`)
}

// testBoot checks that the end of the boot is waited for, and what is said if it does not come.
func (m *realMachine) testBoot(t *testing.T) {
	if waited, err := host.AwaitBoot(t.Context(), m.Machine, func(string) {}); waited || err != nil {
		t.Errorf("waited %v after the boot: %v", waited, err)
	}
	m.neverEnding()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := host.AwaitBoot(ctx, m.Machine, func(string) {})
	var apply *host.ApplyError
	if !errors.As(err, &apply) || apply.Unit != "cloud-final.service" || !strings.Contains(err.Error(), "still waiting for cloud-init (stage final)") {
		t.Errorf("error is %v", err)
	}
	t.Log(err)
	var said []string
	waited, err := host.AwaitBoot(t.Context(), m.Machine, func(s string) {
		said = append(said, s)
		if s == "waiting for cloud-init (stage final)" {
			m.sh("systemctl kill --signal=KILL cloud-final.service")
		}
	})
	if all := strings.Join(said, "\n"); !waited || err != nil || !strings.Contains(all, "cloud-init has ended with errors (cloud-final.service), going on all the same") {
		t.Errorf("said %q: %v", all, err)
	}
	m.sh("rm -r /run/systemd/system/cloud-final.service.d; systemctl daemon-reload; systemctl reset-failed cloud-final.service")
}
