package host

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// bootingMachine is a localMachine that can be away. back is called when it is waited for.
type bootingMachine struct {
	*localMachine
	ended []error // how the next scripts end, before the real ones
	back  func()
}

func (m *bootingMachine) Run(ctx context.Context, c remote.Command) (remote.Output, error) {
	if len(m.ended) > 0 {
		err := m.ended[0]
		m.ended = m.ended[1:]
		return remote.Output{}, err
	}
	return m.localMachine.Run(ctx, c)
}

func (m *bootingMachine) WaitReady(context.Context, time.Duration) error {
	m.back()
	return nil
}

// configuring is a machine on which cloud-init is in its stage config.
var configuring = []string{"active.cloud-init-local.service", "active", "active.cloud-init.service", "active",
	"active.cloud-config.service", "activating", "job.cloud-config.service", "", "job.cloud-final.service", ""}

// await waits for the boot, and calls lift at each progress message.
func await(t *testing.T, m *bootingMachine, lift func(string)) (said []string, waited bool) {
	t.Helper()
	waited, err := m.layout().awaitBoot(t.Context(), m, func(s string) {
		said = append(said, s)
		lift(s)
	})
	if err != nil {
		t.Fatal(err)
	}
	return said, waited
}

// finish ends the present stage of cloud-init.
func (m *localMachine) finish(state string) {
	done, next := "cloud-config.service", "cloud-final.service"
	if m.read("state/active."+done) != "activating" {
		done, next = next, ""
	}
	_ = os.Remove(m.file("state/job." + done))
	m.state("active."+done, state)
	if next != "" {
		m.state("active."+next, "activating")
	}
}

// TestAwaitBoot: a boot is over when cloud-init has ended, and nothing is left that would shut the machine down.
func TestAwaitBoot(t *testing.T) {
	t.Run("over", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		m.state("active.cloud-config.service", "failed") // in a boot that was over long ago
		if said, waited := await(t, m, func(string) {}); waited || len(said) > 0 {
			t.Errorf("waited for %q", said)
		}
	})
	t.Run("at work", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		m.state(configuring...)
		said, waited := await(t, m, func(string) { m.finish("active") })
		if want := []string{"waiting for cloud-init (stage config)", "waiting for cloud-init (stage final)"}; !waited || !slices.Equal(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	})
	t.Run("held back", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		m.state("job.cloud-final.service", "", "processes", "7 /usr/bin/python3 /usr/bin/cloud-init --all-stages\n")
		wait := func(limit time.Duration) (said []string, waited bool, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			waited, err = m.layout().awaitBoot(ctx, m, func(s string) { said = append(said, s) })
			return said, waited, err
		}
		if _, _, err := wait(5 * time.Second); err == nil {
			t.Error("the first boot was over before stage final began")
		}
		if err := os.MkdirAll(m.file("var/lib/cloud/instance/sem"), 0o755); err != nil {
			t.Fatal(err)
		}
		m.write("var/lib/cloud/instance/sem/config_scripts_user", "") // of the first boot
		if _, _, err := wait(5 * time.Second); err == nil {
			t.Error("the boot was over before stage final began, and nothing held that back")
		}
		m.state("jobs", "17 cloud-final.service start waiting\n16 etcd.service start running\n")
		said, waited, err := wait(time.Minute)
		if want := []string{"waiting for cloud-init (stage final)", "cloud-init waits for etcd.service, which is not ready: going on all the same"}; err != nil || !waited || !slices.Equal(said, want) {
			t.Errorf("said %q, want %q: %v", said, want, err)
		}
		m.state("active.cloud-final.service", "activating")
		if _, _, err := wait(5 * time.Second); err == nil {
			t.Error("the boot was over while stage final was at work")
		}
	})
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		m.state(append(slices.Clone(configuring), "active.cloud-init-network.service", "failed")...)
		said, _ := await(t, m, func(string) { m.finish("failed") })
		if all := strings.Join(said, "\n"); !strings.Contains(all,
			"cloud-init has ended with errors (cloud-init-network.service cloud-config.service cloud-final.service), going on all the same: status: error") {
			t.Errorf("said:\n%s", all)
		}
	})
	t.Run("reboots", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		m.state("processes", "7 /usr/bin/python3 /usr/bin/cloud-init --all-stages\n") // cloud-init has ended, and the process that will reboot waits
		m.back = func() {
			_ = os.Remove(m.file("state/logind"))
			m.state(configuring...)
		}
		said, waited := await(t, m, func(s string) {
			switch s {
			case "waiting for a shutdown":
				m.state("logind", "b true") // an inhibitor delays the reboot
				_ = os.Remove(m.file("state/processes"))
			case "waiting for the end of a shutdown":
				if err := m.signal(); err != nil {
					t.Error(err)
				}
			case "waiting until it is back":
			default:
				m.finish("active")
			}
		})
		want := []string{"waiting for a shutdown", "waiting for the end of a shutdown", "waiting until it is back",
			"waiting for cloud-init (stage config)", "waiting for cloud-init (stage final)"}
		if !waited || !slices.Equal(said, want) {
			t.Errorf("said %q, want %q", said, want)
		}
	})
	t.Run("processes", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		for process, awaited := range map[string]bool{
			"/usr/bin/python3 /usr/bin/cloud-init modules --mode=final":              true,
			"/usr/libexec/platform-python -s /usr/bin/cloud-init modules --mode=fin": true,
			"python3.12 -sP /bin/cloud-init":                                         true,
			"shutdown -r now delayed":                                                true,
			"/sbin/shutdown -r +1":                                                   true,
			"/usr/bin/python3 /usr/bin/cloud-init status --wait":                     false,
			"/usr/bin/python3 /srv/app.py shutdown /usr/bin/cloud-init":              false,
			"/usr/local/bin/graceful-shutdown now":                                   false,
			"vi /usr/bin/cloud-init":                                                 false,
		} {
			m.state("processes", "7 "+process+"\n8 sleep 1\n")
			said, _ := await(t, m, func(string) { _ = os.Remove(m.file("state/processes")) })
			if (len(said) > 0) != awaited {
				t.Errorf("%s: waited for %q", process, said)
			}
		}
	})
	t.Run("shuts down", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		for system, awaited := range map[string]string{"stopping": "the end of a shutdown", "unknown": "an answer of systemd", "": "an answer of systemd"} {
			m.state("system", system)
			said, waited := await(t, m, func(string) { m.state("system", "degraded") })
			if want := []string{"waiting for " + awaited}; !waited || !slices.Equal(said, want) {
				t.Errorf("system is %q: said %q, want %q", system, said, want)
			}
		}
	})
	t.Run("away", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t), ended: []error{&remote.UnreachableError{}, &remote.ExitError{Code: 143}}, back: func() {}}
		if said, waited := await(t, m, func(string) {}); !waited || len(said) != 2 {
			t.Errorf("waited for %q", said)
		}
		m.ended = []error{&remote.ExitError{Code: 1}}
		var exit *remote.ExitError
		if _, err := m.layout().awaitBoot(t.Context(), m, func(string) {}); !errors.As(err, &exit) {
			t.Errorf("a script that fails by itself: %v", err)
		}
	})
	t.Run("a shutdown that does not come", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		m.state("processes", "7 /sbin/shutdown -r +1\n")
		_, err := m.layout().awaitBoot(announced{t.Context(), reportTime + 2*time.Second}, m, func(string) {})
		if err == nil || !strings.Contains(err.Error(), "machine local-0: wait for a shutdown: the boot is not over after ") {
			t.Errorf("error is %v", err)
		}
	})
	t.Run("never over", func(t *testing.T) {
		t.Parallel()
		m := &bootingMachine{localMachine: newLocalMachine(t)}
		m.state(configuring...)
		_, err := m.layout().awaitBoot(announced{t.Context(), reportTime + 2*time.Second}, m, func(string) {})
		var apply *ApplyError
		said := errors.As(err, &apply) && apply.Step.Kind == StepCloudInit && apply.Unit == "cloud-config.service" &&
			strings.Contains(err.Error(), "machine local-0: wait for cloud-config.service: the boot is not over after ")
		if !said {
			t.Errorf("error is %v", err)
		}
	})
}
