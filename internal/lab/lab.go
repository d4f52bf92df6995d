package lab

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// DefaultStateDir is the default state directory.
const DefaultStateDir = "/var/lib/k8s-lab/default"

// StateDirEnv names the environment variable that replaces DefaultStateDir.
const StateDirEnv = "K8S_LAB_STATE_DIR"

// DefaultRegion is the region of a lab unless it is given another one.
const DefaultRegion = "us-east-1"

// Lab is the local EC2 of a state directory, whether or not it runs.
type Lab struct {
	dir      string
	cache    string
	progress *progress.Reporter
}

// New returns the lab of a state directory. cacheDir is shared between labs; empty means
// cache.DefaultDir. report shows progress and may be nil.
func New(stateDir, cacheDir string, report *progress.Reporter) (*Lab, error) {
	dir, err := filepath.Abs(stateDir)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", stateDir, err)
	}
	if cacheDir == "" {
		cacheDir = cache.DefaultDir()
	}
	cache, err := filepath.Abs(cacheDir)
	if err != nil {
		return nil, fmt.Errorf("cache directory %s: %w", cacheDir, err)
	}
	return &Lab{dir: dir, cache: cache, progress: report}, nil
}

// Dir returns the state directory.
func (l *Lab) Dir() string { return l.dir }

func (l *Lab) file(name string) string { return filepath.Join(l.dir, name) }

// The files of a lab, in addition to those of packages network and machine.
const (
	settingsFile   = "settings.json"
	stateFile      = "state.json"
	parametersFile = "ssm.json"
	sessionsFile   = "sts.json"
	identitiesFile = "iam.json"
	balancersFile  = "elb.json"
	bucketsFile    = "s3.json"
	logFile        = "daemon.log"
	callsFile      = "calls.log"
	s3LogFile      = "s3.log"
	objectsDir     = "s3"
	pidFile        = "daemon.pid"
	lockFile       = "daemon.lock"
)

// format is the version of the files of a lab. It changes with the meaning of any of them.
const format = 4

// FormatError says that another version of this program has made a lab.
type FormatError struct {
	Dir   string
	Found int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("the lab in %s was made by another version of k8s-lab (its files have format %d, this version's %d): end it with k8s-lab down, then start it again", e.Dir, e.Found, format)
}

// settings are chosen once and kept as long as the lab exists.
type settings struct {
	Format          int             `json:"format"`
	CacheDir        string          `json:"cache_dir"`
	MirrorDir       string          `json:"mirror_dir"`
	ImagesDir       string          `json:"images_dir"`
	With            []string        `json:"with,omitempty"`        // names of release.Extras
	MoreImages      []string        `json:"more_images,omitempty"` // their image layouts
	MachineImages   []machine.Image `json:"machine_images"`
	AccessKeyID     string          `json:"access_key_id"`
	SecretAccessKey string          `json:"secret_access_key"`
	Token           string          `json:"token"` // of the control endpoint
	Region          string          `json:"region"`
	Machines        machine.Kind    `json:"machines"`
	Quotas          map[string]int  `json:"quotas,omitempty"` // by name; others have EC2's defaults
	Bare            bool            `json:"bare"`             // EC2 only, without mirror and registry
	APIPort         uint16          `json:"api_port,omitempty"`
	Operator        netip.Addr      `json:"operator"`
	Artifacts       netip.Addr      `json:"artifacts"` // of mirror and registry, in the lab's internet
	Slice           netip.Prefix    `json:"slice"`
}

func (s settings) endpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", s.APIPort) }

// mirror and registry are empty if the lab is bare.
func (s settings) mirror() string   { return s.served(mirrorPort) }
func (s settings) registry() string { return s.served(registryPort) }

func (s settings) served(port uint16) string {
	if s.Bare {
		return ""
	}
	return "http://" + netip.AddrPortFrom(s.Artifacts, port).String()
}

// readSettings returns settings without content if there is no lab. If another version made the
// lab, the error is a FormatError, and the settings are what could be read.
func (l *Lab) readSettings() (settings, error) {
	var s settings
	if err := file.ReadJSON(l.file(settingsFile), &s); err != nil {
		return s, fmt.Errorf("reading the settings of the lab in %s: %w", l.dir, err)
	}
	if s.Format == 0 && s.AccessKeyID == "" { // there is no lab
		s.Format = format
	}
	if s.Format != format {
		return s, &FormatError{l.dir, s.Format}
	}
	return s, nil
}

// writeSettings replaces the settings atomically; they hold the access key and the token (0600).
func (l *Lab) writeSettings(s settings) error {
	if err := file.WriteJSON(l.file(settingsFile), s, 0o600); err != nil {
		return fmt.Errorf("saving the settings: %w", err)
	}
	return nil
}

// turn waits until no other process starts or stops this lab. The function that it returns lets the
// next one begin.
func (l *Lab) turn(ctx context.Context) (end func(), err error) {
	end, err = host.This().Turn(ctx, l.dir, func(pid string) {
		l.progress.Line("waiting for process " + pid + ", which starts or stops this lab")
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for another process that starts or stops the lab in %s: %w", l.dir, err)
	}
	return end, nil
}
