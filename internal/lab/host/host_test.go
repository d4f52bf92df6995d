package host

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// world is a host with one setting, and labs.
type world struct {
	*testing.T
	Host
	setting string
	root    string
}

func newWorld(t *testing.T, value string) world {
	root := t.TempDir()
	w := world{T: t, setting: filepath.Join(root, "limit"), root: root}
	w.Host = Host{dir: filepath.Join(root, "run"), hosts: filepath.Join(root, "hosts"), raised: map[string]int{w.setting: 8192}}
	w.set(value)
	return w
}

func (w world) set(value string) {
	w.Helper()
	if err := os.WriteFile(w.setting, []byte(value), 0o644); err != nil {
		w.Fatal(err)
	}
}

func (w world) is(want string) {
	w.Helper()
	if b, err := os.ReadFile(w.setting); err != nil || strings.TrimSpace(string(b)) != want {
		w.Errorf("the setting is %q (%v), wanted %q", b, err, want)
	}
}

// lab makes a state directory.
func (w world) lab(name string) string {
	w.Helper()
	dir := filepath.Join(w.root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.Fatal(err)
	}
	return dir
}

func (w world) use(lab string, modules ...string) {
	w.Helper()
	if err := w.Use(w.Context(), lab, modules); err != nil {
		w.Fatal(err)
	}
}

func (w world) release(lab string) {
	w.Helper()
	if err := w.Release(w.Context(), lab); err != nil {
		w.Fatal(err)
	}
}

func TestLastLabPutsBack(t *testing.T) {
	w := newWorld(t, "128\n")
	a, b := w.lab("a"), w.lab("b")
	w.use(a, "overlay")
	w.is("8192")
	w.use(a) // again
	w.use(b)
	changes, err := w.Changes()
	if err != nil || !slices.Equal(changes.Labs, []string{a, b}) || !slices.Equal(changes.Modules, []string{"overlay"}) ||
		!slices.Equal(changes.Settings, []Setting{{w.setting, 128, 8192}}) {
		t.Errorf("changes: %+v, %v", changes, err)
	}
	w.release(a)
	w.is("8192")
	w.release(b)
	w.is("128")
	if changes, err := w.Changes(); err != nil || len(changes.Labs)+len(changes.Settings) > 0 || len(changes.Modules) != 1 {
		t.Errorf("after the last lab: %+v, %v", changes, err)
	}
	w.release(b) // again
	w.is("128")
}

func TestOthersSettingStays(t *testing.T) {
	w := newWorld(t, "100000\n")
	a := w.lab("a")
	w.use(a) // enough already
	w.is("100000")
	w.release(a)
	w.is("100000")
	w.set("128")
	w.use(a)
	w.set("9000") // by hand
	w.release(a)
	w.is("9000")
}

func TestLabWithoutDirectoryIsGone(t *testing.T) {
	w := newWorld(t, "128")
	lost, b := w.lab("lost"), w.lab("b")
	w.use(lost)
	w.use(b)
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	w.release(b)
	w.is("128")
}

func TestUnreadable(t *testing.T) {
	w := newWorld(t, "many")
	if err := w.Use(t.Context(), w.lab("a"), nil); err == nil || !strings.Contains(err.Error(), w.setting) {
		t.Errorf("a setting that is no number: %v", err)
	}
}

// TestComingAndGoing checks that the setting is never low while a lab is up.
func TestComingAndGoing(t *testing.T) {
	w := newWorld(t, "128")
	var all sync.WaitGroup
	for n := range 8 {
		lab := w.lab(strconv.Itoa(n))
		all.Go(func() {
			for range 10 {
				if err := w.Use(t.Context(), lab, nil); err != nil {
					t.Error(err)
					return
				}
				if now, err := read(w.setting); err != nil || now != 8192 {
					t.Errorf("a lab is up, and the setting %d, %v", now, err)
					return
				}
				if err := w.Release(t.Context(), lab); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	w.is("128")
}

func TestTurn(t *testing.T) {
	w := newWorld(t, "128")
	none := func(string) { t.Error("it waits for another lab") }
	end, err := w.Turn(t.Context(), "/labs/a", none)
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.Turn(t.Context(), "/labs/b", none)
	if err != nil {
		t.Fatal(err)
	}
	other()
	waits := make(chan string, 1)
	second := make(chan error, 1)
	go func() {
		end, err := w.Turn(t.Context(), "/labs/a", func(pid string) { waits <- pid })
		if err == nil {
			end()
		}
		second <- err
	}()
	if pid := <-waits; pid != strconv.Itoa(os.Getpid()) {
		t.Errorf("it waits for process %q", pid)
	}
	select {
	case err := <-second:
		t.Errorf("two have the turn of one lab: %v", err)
	default:
	}
	end()
	if err := <-second; err != nil {
		t.Error(err)
	}
}
