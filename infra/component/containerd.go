package component

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/pelletier/go-toml/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/registry"
)

// ContainerdSpec holds the settings of containerd. The releases are for information: the Artifacts
// decide what is installed.
type ContainerdSpec struct {
	Version      string
	RuncVersion  string
	SandboxImage string // empty means DefaultSandboxImage
	Registries   registry.Registries
	Config       map[string]any // merged over containerd's config.toml
}

// Sandbox returns the image of pod sandboxes.
func (s ContainerdSpec) Sandbox() string { return cmp.Or(s.SandboxImage, DefaultSandboxImage) }

// imageName is roughly what containerd accepts as the name of an image
// (https://github.com/distribution/reference).
var imageName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]*$`)

// IsImageName says whether a text can be the name of a container image.
func IsImageName(s string) bool { return imageName.MatchString(s) }

func (s ContainerdSpec) check() (errs invalid.Fields) {
	if s.SandboxImage != "" && !IsImageName(s.SandboxImage) {
		errs.Say("sandbox_image", "Unusable image", "%q is not the name of an image, such as %s.", s.SandboxImage, DefaultSandboxImage)
	}
	errs = append(errs, s.Registries.Check("registries")...)
	checkOwnedFields(&errs, "containerd_config", artifact.Containerd, s.Config)
	return errs
}

var containerdProgram = binPath(artifact.Containerd)

// containerdFiles returns the files that readContainerd reads, and patterns.
func containerdFiles() []string {
	out := []string{ContainerdConfig}
	for _, p := range registry.Patterns() {
		out = append(out, ContainerdHostsDir+"/"+p)
	}
	return out
}

// runcRuntime is the type of the runtimes that are runc.
const runcRuntime = "io.containerd.runc.v2"

// The parts of containerd's configuration, version 3, that this project sets
// (https://github.com/containerd/containerd/blob/main/docs/cri/config.md).
type (
	containerdConfig struct {
		Version int               `toml:"version"`
		Plugins containerdPlugins `toml:"plugins"`
	}
	containerdPlugins struct {
		Images  criImages  `toml:"io.containerd.cri.v1.images"`
		Runtime criRuntime `toml:"io.containerd.cri.v1.runtime"`
	}
	criImages struct {
		Snapshotter  string            `toml:"snapshotter"`
		PinnedImages map[string]string `toml:"pinned_images"`
		Registry     struct {
			ConfigPath string `toml:"config_path"`
		} `toml:"registry"`
	}
	criRuntime struct {
		Containerd struct {
			DefaultRuntimeName string                `toml:"default_runtime_name"`
			Runtimes           map[string]criHandler `toml:"runtimes"`
		} `toml:"containerd"`
		CNI struct {
			ConfDir string `toml:"conf_dir"`
		} `toml:"cni"`
	}
	criHandler struct {
		RuntimeType string `toml:"runtime_type"`
		Options     struct {
			BinaryName    string `toml:"BinaryName"`
			SystemdCgroup bool   `toml:"SystemdCgroup"`
		} `toml:"options"`
	}
)

func (w *worker) addContainerd() error {
	if err := w.addRegistries(); err != nil {
		return err
	}
	containerd, err := binary(w.spec.Artifacts, artifact.Containerd)
	if err != nil {
		return err
	}
	runc, err := binary(w.spec.Artifacts, artifact.Runc)
	if err != nil {
		return err
	}
	w.m.State.Binaries = append(w.m.State.Binaries, containerd, runc)
	option := unit.NewUnitOption
	w.addFiles(w.configs.containerd)
	w.addFiles(service{
		description:   "containerd container runtime",
		documentation: "https://containerd.io/docs/",
		kind:          typeNotify,
		exec:          binPath("containerd"),
		options: append([]*unit.UnitOption{
			option("Service", "Delegate", "yes"),
			// Containers outlive a restart of containerd.
			option("Service", "KillMode", "process"),
			option("Service", "LimitNOFILE", "1048576"),
			option("Service", "LimitNPROC", "infinity"),
			option("Service", "LimitCORE", "infinity"),
			option("Service", "TasksMax", "infinity"),
			option("Service", "OOMScoreAdjust", "-999"),
		}, w.proxyOptions()...),
	}.file(ContainerdUnit))
	// containerd reads shims, runc, registry hosts and the CNI configuration on every use, authorities only once.
	w.m.State.Units = append(w.m.State.Units, running(ContainerdUnit, binPath("containerd"), ContainerdConfig, desired.AuthoritiesPath))
	return nil
}

// containerdFile returns the configuration with the user's settings. Its cgroups are the kubelet's.
func (s WorkerSpec) containerdFile(kubelet *kubeletconfig.KubeletConfiguration) (_ desired.File, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("containerd configuration: %w", err)
		}
	}()
	var c containerdConfig
	c.Version = 3
	images := &c.Plugins.Images
	images.Snapshotter = "overlayfs"
	images.PinnedImages = map[string]string{"sandbox": s.Containerd.Sandbox()}
	images.Registry.ConfigPath = ContainerdHostsDir
	var runc criHandler
	runc.RuntimeType = runcRuntime
	runc.Options.BinaryName = runcPath
	runc.Options.SystemdCgroup = kubelet.CgroupDriver == "systemd"
	runtime := &c.Plugins.Runtime
	runtime.Containerd.DefaultRuntimeName = "runc"
	runtime.Containerd.Runtimes = map[string]criHandler{"runc": runc}
	runtime.CNI.ConfDir = cniConfDir

	base, err := marshalTOML(c)
	if err != nil {
		return desired.File{}, err
	}
	// As a map, so that the user's settings move none of the provider's.
	m := map[string]any{}
	if err := toml.Unmarshal(base, &m); err != nil {
		return desired.File{}, err
	}
	over, err := normalize(s.Containerd.Config)
	if err != nil {
		return desired.File{}, err
	}
	merged := mergeMaps(m, over)
	content, err := marshalTOML(merged)
	if err != nil {
		return desired.File{}, err
	}
	text, err := marshalTOML(hideFields(artifact.Containerd, merged, over))
	if err != nil {
		return desired.File{}, err
	}
	return desired.File{Path: ContainerdConfig, Mode: 0o644, Content: content, Text: text}, nil
}

// readContainerd sets the settings found on a machine. It must run after readKubelet.
func (w *worker) readContainerd(f Found) error {
	w.spec.Containerd = ContainerdSpec{Version: f.Releases[containerdProgram], RuncVersion: f.Releases[runcPath]}
	s := &w.spec.Containerd
	var err error
	if s.Registries, err = registriesOf(f); err != nil {
		return err
	}
	var config containerdConfig
	if err := f.toml(ContainerdConfig, &config); err != nil {
		return err
	}
	s.SandboxImage = config.Plugins.Images.PinnedImages["sandbox"]
	_, kubelet, err := w.spec.kubeletConfig()
	if err != nil {
		return err
	}
	file, err := w.spec.containerdFile(kubelet)
	if err != nil {
		return fmt.Errorf("worker %s: %w", w.node.Name, err)
	}
	found, standard := map[string]any{}, map[string]any{}
	if err := f.toml(ContainerdConfig, &found); err != nil {
		return err
	}
	if err := toml.Unmarshal(file.Content, &standard); err != nil {
		return err
	}
	s.Config = beyond(found, standard)
	return nil
}

// addRegistries adds the host files of registries. Those with passwords are secrets.
func (w *worker) addRegistries() error {
	files, err := w.spec.Containerd.Registries.Files(hideURL)
	if err != nil {
		return err
	}
	// Whatever else is there sends pulls elsewhere, so it goes.
	w.m.State.Directories = append(w.m.State.Directories, desired.Directory{Path: ContainerdHostsDir, Mode: 0o755, Exclusive: true})
	for _, f := range files {
		at := ContainerdHostsDir + "/" + f.Path
		if !f.Secret {
			w.addFiles(desired.File{Path: at, Mode: 0o644, Content: f.Content, Text: f.Text})
			continue
		}
		w.m.Secrets = append(w.m.Secrets, Secret{Path: at, Mode: 0o600, Given: true, Text: f.Text,
			Render: func([][]byte) ([]byte, error) { return f.Filled() }, Rendering: "given, sha256:" + desired.Sum(f.Content)})
	}
	return nil
}

// registriesOf is the inverse of addRegistries, without passwords.
func registriesOf(f Found) (registry.Registries, error) {
	below := map[string][]byte{}
	for p, content := range f.Files {
		if rest, ok := strings.CutPrefix(p, ContainerdHostsDir+"/"); ok {
			below[rest] = content
		}
	}
	return registry.Read(below)
}

func marshalTOML(v any) ([]byte, error) {
	var b bytes.Buffer
	e := toml.NewEncoder(&b)
	e.SetIndentTables(true)
	err := e.Encode(v)
	return b.Bytes(), err
}
